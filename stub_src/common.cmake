# The code that needs no Python, as object files, since a machine without binutils has no ar:
#   session      the session with the server without a model; in both halves
#   wire         the rest of the connection to the server; in the half that embeds Python
#   epoch_<N>    the wire of one epoch; in the half that embeds Python
#   launcher     the executable's own code: the front, and what finds libpython and the server's release
#   warm         what front and template send to each other, and messages as bytes; in both halves
#   template     forks workers; in the half that embeds Python
#   local        the wire without a server; in the half that embeds Python
#   gpu          NVIDIA's driver; in the half that embeds Python
#   demangle     names of C++ types; in both halves, unless sanitizers need all names
# `wires` stands for wire and every epoch_<N>.
set(parts session wire launcher warm template local gpu demangle)
set(wire_parts wire)
foreach(epoch IN LISTS ENVPACK_WIRE_EPOCHS)
  list(APPEND parts epoch_${epoch})
  list(APPEND wire_parts epoch_${epoch})
endforeach()

add_library(wires INTERFACE)
target_link_libraries(wires INTERFACE options)
foreach(part IN LISTS wire_parts)
  target_sources(wires INTERFACE $<TARGET_OBJECTS:${part}>)
endforeach()

if(ENVPACK_COMMON)
  foreach(part IN LISTS parts)
    file(GLOB_RECURSE objects ${ENVPACK_COMMON}/*/${part}/*.o)
    if(NOT objects)
      message(FATAL_ERROR "ENVPACK_COMMON: ${ENVPACK_COMMON} does not contain ${part}")
    endif()
    add_library(${part} OBJECT IMPORTED GLOBAL)
    set_target_properties(${part} PROPERTIES IMPORTED_OBJECTS "${objects}")
    target_link_libraries(${part} INTERFACE options)
  endforeach()
  return()
endif()

foreach(room shm front front/recovery two_halves local)
  file(GLOB ${room} CONFIGURE_DEPENDS ${room}/*.cc)
endforeach()
add_library(session OBJECT
  abi/base_session.cc
  abi/codec.cc
  abi/journal.cc
  abi/launch.cc
  base/descriptor.cc
  base/forks.cc
  base/output.cc
  channel/heartbeat.cc
  channel/refusal.cc
  channel/report.cc
  ${shm})
set_target_properties(session PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE BATCH UNITY_BUILD_BATCH_SIZE 8)
add_library(wire OBJECT
  abi/base_wire.cc
  channel/log_forwarder.cc
  channel/streams.cc)
foreach(epoch IN LISTS ENVPACK_WIRE_EPOCHS)
  add_library(epoch_${epoch} OBJECT abi/epoch.cc)
  target_compile_definitions(epoch_${epoch} PRIVATE EPOCH=${epoch})
  # Half the size of -O2, and there are many. Requests take as long.
  target_compile_options(epoch_${epoch} PRIVATE $<$<CONFIG:Release>:-Os>)
endforeach()
add_library(launcher OBJECT
  abi/server_release.cc
  main.cc
  ${front}
  ${front/recovery}
  ${two_halves})
add_library(warm OBJECT
  base/files.cc
  warm/order.cc)
add_library(template OBJECT warm/template_service.cc)
add_library(local OBJECT ${local})
# Runs once in the life of a stub, or only without a server.
foreach(part launcher warm template local)
  target_compile_options(${part} PRIVATE $<$<CONFIG:Release>:-Os>)
endforeach()
add_library(gpu OBJECT cuda/gpu.cc)
add_library(demangle OBJECT base/demangle.cc)
foreach(part IN LISTS parts)
  target_link_libraries(${part} PUBLIC options)
endforeach()
if(ENVPACK_ONLY_COMMON)
  install(TARGETS ${parts} OBJECTS DESTINATION .)
endif()
