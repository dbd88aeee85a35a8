"""Logs a lot and then fails to initialise: the log must not hold up the error."""

import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        for number in range(500):
            pb_utils.Logger.log_info("line %d" % number)
        raise RuntimeError("after 500 lines")

    def execute(self, requests):
        return []
