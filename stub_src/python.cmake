# What is compiled for each Python: the half that embeds it, and the executable around that.
set(needed Development.Embed)
if(NOT (Python_INCLUDE_DIR AND Python_LIBRARY))
  list(PREPEND needed Interpreter)
endif()
find_package(Python 3.8 REQUIRED COMPONENTS ${needed})
find_path(PYBIND11_INCLUDE_DIR pybind11/embed.h REQUIRED)

set(ENVPACK_PYTHON_MINOR ${Python_VERSION_MAJOR}.${Python_VERSION_MINOR})
set(ENVPACK_NUMPY "[1, 2]")  # what pybind11 2.12 and later run with, whichever they are compiled for
set(ENVPACK_LIBPYTHON libpython${ENVPACK_PYTHON_MINOR}.so.1.0)
# How the stub calls what it serves, as in "for Triton …".
list(JOIN ENVPACK_RELEASES ", " ENVPACK_RELEASES_IN_WORDS)
string(REGEX REPLACE "^all$" "23.04 and later" ENVPACK_RELEASES_IN_WORDS "${ENVPACK_RELEASES_IN_WORDS}")
configure_file(build_info.cc.in build_info.cc @ONLY)
add_library(info OBJECT ${CMAKE_CURRENT_BINARY_DIR}/build_info.cc)
target_link_libraries(info PRIVATE options)

add_library(body MODULE
  body.cc
  model/crash_notice.cc
  model/event_loop.cc
  model/execution.cc
  model/import_model.cc
  model/interpreter.cc
  model/life.cc
  model/python_model.cc
  model/readiness.cc
  module/bytes.cc
  module/dlpack.cc
  module/dtype.cc
  module/error.cc
  module/inference.cc
  module/logger.cc
  module/metrics.cc
  module/model_control.cc
  module/module.cc
  module/parameters.cc
  module/request.cc
  module/response.cc
  module/response_iterator.cc
  module/response_sender.cc
  module/server_link.cc
  module/shared_memory.cc
  module/tensor.cc)
# Models load extension modules built with other pybind11s; theirs and ours must not mix their registries.
target_compile_definitions(body PRIVATE PYBIND11_BUILD_ABI="_envpack")
# Only libpython itself: what else an interpreter's own build was linked with (-lcrypt …) is not needed here.
target_link_libraries(body PRIVATE attendance wire gpu info ${Python_LIBRARY_RELEASE})
target_include_directories(body SYSTEM PRIVATE ${Python_INCLUDE_DIRS} ${PYBIND11_INCLUDE_DIR})
# Headers of Python that were made where there was a <crypt.h> include it, whether there is one here or not.
target_compile_options(body PRIVATE "SHELL:-idirafter ${CMAKE_CURRENT_SOURCE_DIR}/compat")
# Debian's pyconfig.h only says which one to read, such as <aarch64-linux-gnu/python3.11/pyconfig.h> in this folder.
if(ENVPACK_MULTIARCH_INCLUDE)
  target_compile_options(body PRIVATE "SHELL:-idirafter ${ENVPACK_MULTIARCH_INCLUDE}")
endif()
target_link_options(body PRIVATE -Wl,--version-script=${CMAKE_CURRENT_SOURCE_DIR}/body.map)
set_target_properties(body PROPERTIES
  PREFIX "" LINK_FLAGS_RELEASE -s BUILD_WITH_INSTALL_RPATH ON LINK_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/body.map)

# Two files go through the compiler instead of two dozen: reading pybind11's headers, and compiling what every user of
# them gets, is most of the work. Two, for two cores; the first half of the list holds the cheaper files.
get_target_property(sources body SOURCES)
list(LENGTH sources count)
math(EXPR half "${count} / 2 + 2")
set_target_properties(body PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE BATCH UNITY_BUILD_BATCH_SIZE ${half})

# The executable, with the body inside.
set(ENVPACK_BODY_FILE ${CMAKE_CURRENT_BINARY_DIR}/body.so)
set(ENVPACK_FACTS_FILE ${CMAKE_CURRENT_BINARY_DIR}/facts.json)
configure_file(facts.json.in ${ENVPACK_FACTS_FILE} @ONLY)
configure_file(embed.cc.in embed.cc @ONLY)
add_executable(triton_python_backend_stub ${CMAKE_CURRENT_BINARY_DIR}/embed.cc)
target_link_libraries(triton_python_backend_stub PRIVATE launcher attendance info)
set_source_files_properties(${CMAKE_CURRENT_BINARY_DIR}/embed.cc PROPERTIES
  OBJECT_DEPENDS "${ENVPACK_BODY_FILE};${ENVPACK_FACTS_FILE}")
add_dependencies(triton_python_backend_stub body)
set_target_properties(triton_python_backend_stub PROPERTIES LINK_FLAGS_RELEASE -s)
