"""Turns each of some words around, byte by byte."""

import numpy as np
import triton_python_backend_utils as pb_utils


def mirrored(words):
    turned = np.empty(words.shape, dtype=object)
    turned.flat = [word[::-1] for word in words.flat]
    return turned


class TritonPythonModel:
    def execute(self, requests):
        words = [pb_utils.get_input_tensor_by_name(request, "WORDS").as_numpy() for request in requests]
        return [pb_utils.InferenceResponse([pb_utils.Tensor("MIRRORED", mirrored(some))]) for some in words]
