"""PNG files to brightness: Python 3.8, Pillow and NumPy 1."""

import io

import numpy as np
import triton_python_backend_utils as pb_utils
from PIL import Image


def pixels_of(png: bytes) -> np.ndarray:
    image = Image.open(io.BytesIO(png)).convert("L").resize((8, 8))
    return np.asarray(image, dtype=np.float32).reshape(64) * (16 / 255)


class TritonPythonModel:
    def execute(self, requests):
        responses = []
        for request in requests:
            images = pb_utils.get_input_tensor_by_name(request, "IMAGE").as_numpy()
            try:
                pixels = np.stack([pixels_of(png) for png in images[:, 0]])
            except Exception as error:  # Pillow has many for files that are damaged, or far too large
                problem = pb_utils.TritonError(f"not a readable image: {error}", pb_utils.TritonError.INVALID_ARG)
                responses.append(pb_utils.InferenceResponse(error=problem))
                continue
            responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("PIXELS", pixels)]))
        return responses
