// Empty on purpose. Python.h up to 3.12 includes <crypt.h> without needing it, and compilers that bring their
// own C library headers do not have it.
