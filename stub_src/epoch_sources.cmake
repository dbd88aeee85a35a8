# Writes one source file for each of ENVPACK_EPOCHS, and the table that chooses among them. Sets ENVPACK_EPOCH_SOURCES
# and ENVPACK_EPOCH_NUMBERS.
set(ENVPACK_EPOCH_SOURCES)
set(ENVPACK_EPOCH_DECLARATIONS)
set(ENVPACK_EPOCH_ROWS)
foreach(ENVPACK_EPOCH IN LISTS ENVPACK_EPOCHS)
  configure_file(abi/epoch.cc.in abi/epoch_${ENVPACK_EPOCH}.cc @ONLY)
  list(APPEND ENVPACK_EPOCH_SOURCES ${CMAKE_CURRENT_BINARY_DIR}/abi/epoch_${ENVPACK_EPOCH}.cc)
  string(APPEND ENVPACK_EPOCH_DECLARATIONS
    "template <>\nstd::unique_ptr<Wire> OpenEpoch<${ENVPACK_EPOCH}>(const Launch&, Release, GpuMemory&);\n")
  list(APPEND ENVPACK_EPOCH_ROWS "{${ENVPACK_EPOCH}, &OpenEpoch<${ENVPACK_EPOCH}>}")
endforeach()
list(JOIN ENVPACK_EPOCHS ", " ENVPACK_EPOCH_NUMBERS)
list(JOIN ENVPACK_EPOCH_ROWS ", " ENVPACK_EPOCH_ROWS)
configure_file(abi/built_epochs.h.in abi/built_epochs.h @ONLY)
