# The code that is compiled for each Python: the half that embeds it, and the executable that contains that half.
set(needed Development.Embed)
if(NOT (Python_INCLUDE_DIR AND Python_LIBRARY))
  list(PREPEND needed Interpreter)
endif()
find_package(Python 3.6 REQUIRED COMPONENTS ${needed})
find_path(PYBIND11_INCLUDE_DIR pybind11/embed.h REQUIRED)
include(pybind11.cmake)

set(ENVPACK_PYTHON_MINOR ${Python_VERSION_MAJOR}.${Python_VERSION_MINOR})
set(ENVPACK_NUMPY "[1, 2]")  # pybind11 2.12 and later work with both at run time
# Up to 3.7 the name tells the memory allocator, which nobody changes.
set(abi_flags "")
if(Python_VERSION VERSION_LESS 3.8)
  set(abi_flags m)
endif()
set(ENVPACK_LIBPYTHON libpython${ENVPACK_PYTHON_MINOR}${abi_flags}.so.1.0)
# The releases in the text of --version, as in "Triton 23.04 and later".
list(JOIN ENVPACK_RELEASES ", " ENVPACK_RELEASES_IN_WORDS)
string(REGEX REPLACE "^all$" "23.04 and later" ENVPACK_RELEASES_IN_WORDS "${ENVPACK_RELEASES_IN_WORDS}")
configure_file(two_halves/build_info.cc.in build_info.cc @ONLY)
add_library(info OBJECT ${CMAKE_CURRENT_BINARY_DIR}/build_info.cc)
target_link_libraries(info PRIVATE options)

file(GLOB sources CONFIGURE_DEPENDS body.cc model/*.cc module/*.cc)
add_library(body MODULE ${sources})
# Models load extension modules built with other versions of pybind11, which must not share the stub's registry.
target_compile_definitions(body PRIVATE PYBIND11_BUILD_ABI="_envpack")
# Mostly what pybind11 generates. -O2 takes half as long again to compile, for 2 % of a request without a server; -Os
# makes requests 5 % slower.
target_compile_options(body PRIVATE $<$<CONFIG:Release>:-O1>)
# Only libpython: the other libraries that the interpreter is linked with (-lcrypt …) are not needed.
target_link_libraries(body PRIVATE session wires warm template local gpu info ${Python_LIBRARY_RELEASE})
target_include_directories(body SYSTEM PRIVATE ${Python_INCLUDE_DIRS} ${ENVPACK_PYBIND11_HEADERS})
# Python.h up to 3.12 may include <crypt.h> without using it, and compilers with their own C library headers do not have
# it. An empty one is found last.
file(CONFIGURE OUTPUT compat/crypt.h CONTENT "// Empty on purpose.\n")
target_compile_options(body PRIVATE "SHELL:-idirafter \"${CMAKE_CURRENT_BINARY_DIR}/compat\"")
# Debian's pyconfig.h includes the machine's, such as <aarch64-linux-gnu/python3.11/pyconfig.h>, from this folder.
if(ENVPACK_MULTIARCH_INCLUDE)
  target_compile_options(body PRIVATE "SHELL:-idirafter \"${ENVPACK_MULTIARCH_INCLUDE}\"")
endif()
# Only the entry is exported. -Wl, would end the path at a comma.
file(CONFIGURE OUTPUT body.map CONTENT "{ global: envpack_stub_run; local: *; };\n")
target_link_options(body PRIVATE -Xlinker --version-script=${CMAKE_CURRENT_BINARY_DIR}/body.map)
set_target_properties(body PROPERTIES
  PREFIX "" LINK_FLAGS_RELEASE -s BUILD_WITH_INSTALL_RPATH ON LINK_DEPENDS ${CMAKE_CURRENT_BINARY_DIR}/body.map)

# Compiles two files instead of two dozen: parsing pybind11's headers and instantiating their common templates is most of
# the work. Two, for two cores.
list(LENGTH sources count)
math(EXPR half "${count} / 2 + 2")
set_target_properties(body PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE BATCH UNITY_BUILD_BATCH_SIZE ${half})

set(demangle)
if(NOT ENVPACK_SANITIZE)
  set(demangle demangle)
endif()
target_link_libraries(body PRIVATE ${demangle})

# The executable, which contains the body.
set(ENVPACK_BODY_FILE ${CMAKE_CURRENT_BINARY_DIR}/body.so)
set(ENVPACK_FACTS_FILE ${CMAKE_CURRENT_BINARY_DIR}/facts.json)
file(CONFIGURE OUTPUT facts.json @ONLY CONTENT [[
{"schema": 2, "version": "@ENVPACK_VERSION@", "python": "@ENVPACK_PYTHON_MINOR@", "libpython": "@ENVPACK_LIBPYTHON@", "epochs": [@ENVPACK_EPOCHS_JSON@], "compiler": "@CMAKE_CXX_COMPILER_ID@ @CMAKE_CXX_COMPILER_VERSION@", "numpy": @ENVPACK_NUMPY@}
]])
configure_file(two_halves/embed.cc.in embed.cc @ONLY)
add_executable(triton_python_backend_stub ${CMAKE_CURRENT_BINARY_DIR}/embed.cc)
target_link_libraries(triton_python_backend_stub PRIVATE launcher session warm info ${demangle})
set_source_files_properties(${CMAKE_CURRENT_BINARY_DIR}/embed.cc PROPERTIES
  OBJECT_DEPENDS "${ENVPACK_BODY_FILE};${ENVPACK_FACTS_FILE}")
add_dependencies(triton_python_backend_stub body)
set_target_properties(triton_python_backend_stub PROPERTIES LINK_FLAGS_RELEASE -s)
