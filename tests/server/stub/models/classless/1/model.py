"""Has no TritonPythonModel."""

VALUE = 1
