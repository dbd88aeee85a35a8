# Which epochs of the protocol the stub is built with: those that the releases in ENVPACK_RELEASES belong to. Sets
# ENVPACK_EPOCHS, numbers as in abi/release.h, oldest first, and ENVPACK_EPOCHS_JSON, their names.

# The list of epochs is in abi/release.h, and nowhere else.
file(READ ${CMAKE_CURRENT_LIST_DIR}/abi/release.h ENVPACK_RELEASE_H)
string(REGEX MATCH "kEpochs\\[\\] = {[^}]*}" ENVPACK_EPOCH_LIST "${ENVPACK_RELEASE_H}")
string(REGEX MATCHALL "[0-9][0-9][0-9][0-9]" ENVPACK_EPOCHS "${ENVPACK_EPOCH_LIST}")

if(NOT ENVPACK_RELEASES STREQUAL "all")
  set(WANTED)
  foreach(RELEASE IN LISTS ENVPACK_RELEASES)
    string(REPLACE "." "" NUMBER "${RELEASE}")
    set(FOUND)
    foreach(EPOCH IN LISTS ENVPACK_EPOCHS)
      if(RELEASE MATCHES "^[0-9][0-9][.][0-9][0-9]$" AND EPOCH LESS_EQUAL NUMBER)
        set(FOUND ${EPOCH})
      endif()
    endforeach()
    if(NOT FOUND)
      message(FATAL_ERROR "ENVPACK_RELEASES: ${RELEASE} is no release that the stub can speak with")
    endif()
    list(APPEND WANTED ${FOUND})
  endforeach()
  list(REMOVE_DUPLICATES WANTED)
  list(SORT WANTED COMPARE NATURAL)
  set(ENVPACK_EPOCHS ${WANTED})
endif()

list(TRANSFORM ENVPACK_EPOCHS REPLACE "^(..)(..)$" "\"\\1.\\2\"" OUTPUT_VARIABLE ENVPACK_EPOCHS_JSON)
list(JOIN ENVPACK_EPOCHS_JSON ", " ENVPACK_EPOCHS_JSON)
