# Sets ENVPACK_PYBIND11_HEADERS, the folder to include pybind11 from, and compares its version with ENVPACK_PYBIND11.
file(STRINGS ${PYBIND11_INCLUDE_DIR}/pybind11/detail/common.h lines REGEX "^#define PYBIND11_VERSION_[A-Z]+ +[0-9]")
string(REGEX REPLACE "#define PYBIND11_VERSION_[A-Z]+ +" "" found "${lines}")
list(GET found 0 1 2 found)
list(JOIN found "." found)
if(ENVPACK_PYBIND11 AND NOT ENVPACK_PYBIND11 STREQUAL found)
  message(FATAL_ERROR "pybind11 ${found} was found, and ${ENVPACK_PYBIND11} is required")
endif()
# A folder with a link to pybind11 alone. The folder of pybind11-global may be a prefix with headers of other software.
set(ENVPACK_PYBIND11_HEADERS ${CMAKE_CURRENT_BINARY_DIR}/headers)
file(MAKE_DIRECTORY ${ENVPACK_PYBIND11_HEADERS})
file(CREATE_LINK ${PYBIND11_INCLUDE_DIR}/pybind11 ${ENVPACK_PYBIND11_HEADERS}/pybind11 SYMBOLIC)
