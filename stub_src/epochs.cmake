# Selects the epochs of the protocol that the stub is built with: those of the releases in ENVPACK_RELEASES.
#   ENVPACK_EPOCHS       their numbers, oldest first
#   ENVPACK_EPOCHS_JSON  their names, for the facts of the stub
#   ENVPACK_WIRE_EPOCHS  the epochs whose wires they use; abi/epoch.cc is compiled once for each
# envpack/releases.toml names the epochs. Those with a wire of their own are the first, those that a line of abi/traits.h
# names, and those with another layout of a record.
set(ENVPACK_RELEASES_FILE ${CMAKE_CURRENT_LIST_DIR}/../envpack/releases.toml)
file(STRINGS ${ENVPACK_RELEASES_FILE} every_epoch REGEX "^stub_abi = ")
list(TRANSFORM every_epoch REPLACE "^stub_abi = \"(..)[.](..)\".*" "\\1\\2")
list(GET every_epoch 0 every_wire_epoch)

# The lines of the data, each whole, without comments.
file(STRINGS ${CMAKE_CURRENT_LIST_DIR}/abi/layouts.txt ENVPACK_LAYOUTS REGEX "^[^#]")
string(REPLACE ";  " " " ENVPACK_LAYOUTS "${ENVPACK_LAYOUTS}")
set(records)
foreach(line IN LISTS ENVPACK_LAYOUTS)
  if(line MATCHES "^([A-Z][A-Za-z]+) (..)[.](..) ")
    if(CMAKE_MATCH_1 IN_LIST records)
      list(APPEND every_wire_epoch ${CMAKE_MATCH_2}${CMAKE_MATCH_3})
    endif()
    list(APPEND records ${CMAKE_MATCH_1})
  endif()
endforeach()
file(READ ${CMAKE_CURRENT_LIST_DIR}/abi/traits.h traits)
string(REGEX MATCHALL "release [<>]=? [0-9]+" compared "${traits}")
list(TRANSFORM compared REPLACE "[^0-9]" "")
list(APPEND every_wire_epoch ${compared})
list(REMOVE_DUPLICATES every_wire_epoch)
list(SORT every_wire_epoch)

# Sets `result` to the last of `epochs` that does not begin after `number`; to nothing if all do.
function(last_up_to number epochs result)
  set(found)
  foreach(epoch IN LISTS epochs)
    if(epoch LESS_EQUAL number)
      set(found ${epoch})
    endif()
  endforeach()
  set(${result} ${found} PARENT_SCOPE)
endfunction()

set(ENVPACK_EPOCHS ${every_epoch})
if(NOT ENVPACK_RELEASES STREQUAL "all")
  set(ENVPACK_EPOCHS)
  foreach(release IN LISTS ENVPACK_RELEASES)
    string(REPLACE "." "" number "${release}")
    set(epoch)
    if(release MATCHES "^[0-9][0-9][.][0-9][0-9]$")
      last_up_to(${number} "${every_epoch}" epoch)
    endif()
    if(NOT epoch)
      message(FATAL_ERROR "ENVPACK_RELEASES: the stub does not support release ${release}")
    endif()
    list(APPEND ENVPACK_EPOCHS ${epoch})
  endforeach()
  list(REMOVE_DUPLICATES ENVPACK_EPOCHS)
  list(SORT ENVPACK_EPOCHS COMPARE NATURAL)
endif()

set(ENVPACK_WIRE_EPOCHS)
foreach(epoch IN LISTS ENVPACK_EPOCHS)
  last_up_to(${epoch} "${every_wire_epoch}" wire_epoch)
  list(APPEND ENVPACK_WIRE_EPOCHS ${wire_epoch})
endforeach()
list(REMOVE_DUPLICATES ENVPACK_WIRE_EPOCHS)

list(TRANSFORM ENVPACK_EPOCHS REPLACE "^(..)(..)$" "\"\\1.\\2\"" OUTPUT_VARIABLE ENVPACK_EPOCHS_JSON)
list(JOIN ENVPACK_EPOCHS_JSON ", " ENVPACK_EPOCHS_JSON)
