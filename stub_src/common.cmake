# What needs no Python, as objects, since a machine without binutils has no ar:
#   attendance  being there for the server, without running a model; in both halves
#   wire        the rest of talking to the server; in the half that embeds Python
#   launcher    the executable's own part
#   gpu         NVIDIA's driver; in the half that embeds Python
set(ENVPACK_COMMON_PARTS attendance wire launcher gpu)

if(ENVPACK_COMMON)
  foreach(part IN LISTS ENVPACK_COMMON_PARTS)
    file(GLOB_RECURSE objects ${ENVPACK_COMMON}/*/${part}/*.o)
    if(NOT objects)
      message(FATAL_ERROR "ENVPACK_COMMON: ${ENVPACK_COMMON} holds no ${part}")
    endif()
    add_library(${part} OBJECT IMPORTED)
    set_target_properties(${part} PROPERTIES IMPORTED_OBJECTS "${objects}")
    target_link_libraries(${part} INTERFACE options)
  endforeach()
  return()
endif()

include(epoch_sources.cmake)

add_library(attendance OBJECT
  abi/launch.cc
  abi/plain_reader.cc
  abi/plain_writer.cc
  abi/release.cc
  abi/session.cc
  channel/heartbeat.cc
  channel/refusal.cc
  forks.cc
  shm/mapping.cc
  shm/queue.cc
  shm/region.cc
  shm/sync.cc)
set_target_properties(attendance PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE BATCH UNITY_BUILD_BATCH_SIZE 8)
add_library(wire OBJECT
  abi/common_wire.cc
  abi/readiness_question.cc
  abi/wire.cc
  channel/guarded_child.cc
  channel/log_forwarder.cc
  channel/streams.cc
  channel/unasked.cc
  ${ENVPACK_EPOCH_SOURCES})
add_library(launcher OBJECT main.cc libpython.cc abi/server_library.cc abi/server_release.cc)
add_library(gpu OBJECT cuda/driver.cc cuda/gpu.cc)
foreach(part IN LISTS ENVPACK_COMMON_PARTS)
  target_link_libraries(${part} PUBLIC options)
endforeach()
if(ENVPACK_ONLY_COMMON)
  install(TARGETS ${ENVPACK_COMMON_PARTS} OBJECTS DESTINATION .)
endif()
