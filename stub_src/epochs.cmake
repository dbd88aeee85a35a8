# Selects the epochs of the protocol that the stub is built with: those of the releases in ENVPACK_RELEASES.
#   ENVPACK_EPOCHS       their numbers, oldest first
#   ENVPACK_EPOCHS_JSON  their names, for the facts of the stub
#   ENVPACK_WIRE_EPOCHS  the epochs whose wires they use; abi/epoch.cc is compiled once for each
# abi/release.h is the only list of epochs.
file(READ ${CMAKE_CURRENT_LIST_DIR}/abi/release.h ENVPACK_RELEASE_H)

# Sets `result` to the numbers in an array of abi/release.h.
function(read_epochs array result)
  string(REGEX MATCH "${array}\\[\\] = {[^}]*}" list "${ENVPACK_RELEASE_H}")
  string(REGEX MATCHALL "[0-9][0-9][0-9][0-9]" numbers "${list}")
  set(${result} ${numbers} PARENT_SCOPE)
endfunction()

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

read_epochs(kEpochs every_epoch)
read_epochs(kWireEpochs every_wire_epoch)

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
