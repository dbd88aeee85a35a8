"""Pixels to the most frequent colour: NumPy."""

import numpy as np
import triton_python_backend_utils as pb_utils

COLOURS = {
    "black": (0, 0, 0),
    "blue": (0, 0, 1),
    "cyan": (0, 1, 1),
    "green": (0, 1, 0),
    "magenta": (1, 0, 1),
    "red": (1, 0, 0),
    "white": (1, 1, 1),
    "yellow": (1, 1, 0),
}
NAMES = np.array([name.encode() for name in COLOURS], dtype=np.object_)
VALUES = np.array(list(COLOURS.values()), dtype=np.float32)


def most_frequent(pixels: np.ndarray) -> tuple:
    """The number of the colour that most pixels are nearest to, and their share, of FP32 pixels (height, width, 3)."""
    distances = np.square(pixels.reshape(-1, 1, 3) - VALUES).sum(axis=2)
    counts = np.bincount(distances.argmin(axis=1), minlength=len(VALUES))
    return counts.argmax(), counts.max() / counts.sum()


class TritonPythonModel:
    def execute(self, requests: list) -> list:
        return [self.respond(request) for request in requests]

    def respond(self, request):
        images = pb_utils.get_input_tensor_by_name(request, "PIXELS").as_numpy()
        numbers, shares = zip(*map(most_frequent, images), strict=True)
        names = NAMES[list(numbers)].reshape(-1, 1)
        share = np.array(shares, dtype=np.float32).reshape(-1, 1)
        return pb_utils.InferenceResponse([pb_utils.Tensor("COLOUR", names), pb_utils.Tensor("SHARE", share)])
