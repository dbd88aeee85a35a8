"""Asks the server when it does not listen yet."""

import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    @staticmethod
    def auto_complete_config(config):
        pb_utils.is_model_ready("batches")
        return config
