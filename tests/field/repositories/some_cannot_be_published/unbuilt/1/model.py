class TritonPythonModel:
    """Answers with nothing."""
