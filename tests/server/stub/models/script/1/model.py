"""Runs the code that a request brings, as the body of execute: a test shows in one place what its model does."""

import json
import os
import sys
import textwrap

import c_python_backend_utils  # noqa: F401 - for the code of the tests
import numpy as np
import triton_python_backend_utils as pb_utils

ARGV = list(sys.argv)
PATH = list(sys.path)


def respond(array, name: str = "OUT", error=None) -> pb_utils.InferenceResponse:
    return pb_utils.InferenceResponse([pb_utils.Tensor(name, array)], error)


def reply(value) -> pb_utils.InferenceResponse:
    return respond(np.array([json.dumps(value)], dtype=object))


def bls_call(model, code, outputs=("OUT",), **options):
    """A request to a script model."""
    code = pb_utils.Tensor("CODE", np.array([textwrap.dedent(code)], dtype=object))
    return pb_utils.InferenceRequest(model_name=model, inputs=[code], requested_output_names=list(outputs), **options)


def fetch(response):
    """What a script model text, or the error that it answered with."""
    if response.has_error():
        return response.error().message()
    tensors = response.output_tensors()
    return json.loads(tensors[0].as_numpy()[0]) if tensors else None


def request_twice(number):
    return fetch(bls_call("customized", f"return [reply(2 * {number})]").exec())


def request_stream():
    try:
        return [fetch(r) for r in bls_call("stream", "").exec(decoupled=True)]
    except pb_utils.TritonModelException as error:
        return str(error)


class TritonPythonModel:
    tensor_class = pb_utils.Tensor

    def initialize(self, args):
        self.args = args
        pb_utils.Logger.log_info("from initialize")
        self.early_request = self.request_at_the_wrong_time()

    def request_at_the_wrong_time(self):
        try:
            return fetch(bls_call("customized", "return [reply(1)]").exec())
        except pb_utils.TritonModelException as error:
            return str(error)

    def execute(self, requests):
        code = pb_utils.get_input_tensor_by_name(requests[0], "CODE").as_numpy()[0].decode()
        names = {**globals(), "self": self, "requests": requests, "request": requests[0]}
        exec("def body():\n" + textwrap.indent(code, "    "), names)
        try:
            return names["body"]()
        finally:
            # A function and its globals are a cycle, which would keep the request. One that runs later needs them.
            if "async def" not in code and "def later" not in code:
                names.clear()

    def log_at_all_levels(self):
        logger = pb_utils.Logger
        logger.log("plain")
        logger.log("as a warning", logger.WARNING)
        logger.log_info("for information")
        logger.log_warn("a warning")
        logger.log_error("an error")
        logger.log_verbose("in detail")

    def finalize(self):
        pb_utils.Logger.log_info("from finalize")
        pb_utils.Logger.log_info("requested too late: " + self.request_at_the_wrong_time())
        with open(os.path.join(pb_utils.get_model_dir(), "finalized"), "a") as file:
            file.write("%d\n" % os.getpid())
