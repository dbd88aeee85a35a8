"""Can do nothing."""


class TritonPythonModel:
    pass
