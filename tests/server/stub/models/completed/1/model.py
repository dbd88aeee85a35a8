"""Says itself what its inputs and outputs are."""

import json

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    @staticmethod
    def auto_complete_config(config):
        pb_utils.Logger.log_warn("completing")
        config.add_input({"name": "IN", "data_type": "TYPE_INT32", "dims": [2]})
        config.add_output({"name": "OUT", "data_type": "TYPE_STRING", "dims": [1]})
        config.set_max_batch_size(0)
        return config

    def initialize(self, args):
        self.args = args

    def execute(self, requests):
        text = np.array([json.dumps(self.args)], dtype=object)
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", text)]) for _ in requests]
