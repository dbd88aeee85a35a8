"""Runs the code that a request brings: a test shows in one place what its model does."""

import json
import textwrap

import numpy as np
import triton_python_backend_utils as pb_utils


def reply(value, error=None):
    """A response that tells a value as JSON."""
    return pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.array([json.dumps(value)], dtype=object))], error)


def bls_call(model, code="return None", **options):
    """A request to a script model."""
    code = pb_utils.Tensor("CODE", np.array([code], dtype=object))
    return pb_utils.InferenceRequest(model_name=model, inputs=[code], requested_output_names=["OUT"], **options)


def fetch(response):
    """What a script model text, or the error that it answered with."""
    if response.has_error():
        return response.error().message()
    tensors = response.output_tensors()
    return json.loads(tensors[0].as_numpy()[0]) if tensors else None


class TritonPythonModel:
    def initialize(self, args):
        self.args = args
        self.streams = pb_utils.using_decoupled_model_transaction_policy(json.loads(args["model_config"]))

    def execute(self, requests):
        answers = [self.answer(request) for request in requests]
        return None if self.streams else answers

    def answer(self, request):
        code = pb_utils.get_input_tensor_by_name(request, "CODE").as_numpy()[0].decode()
        names = {**globals(), "self": self, "request": request}
        exec("def body():\n" + textwrap.indent(code, "    "), names)
        try:
            value = names["body"]()
        finally:
            names.clear()  # a function and its globals are a cycle, which would keep the request
        return value if value is None or isinstance(value, pb_utils.InferenceResponse) else reply(value)

    def finalize(self):
        pb_utils.Logger.log_info("finalized " + self.args["model_name"])
