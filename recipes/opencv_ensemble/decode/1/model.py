"""Image files to pixels: OpenCV."""

import cv2
import numpy as np
import triton_python_backend_utils as pb_utils

SIZE = 64
LARGEST_FILE = 32 << 20  # bytes


def pixels_of(file: bytes) -> np.ndarray:
    """RGB, FP32 from 0 to 1, of shape (64, 64, 3); the shorter side fills the image. Raises ValueError."""
    if len(file) > LARGEST_FILE:
        raise ValueError(f"the file has more than {LARGEST_FILE >> 20} MB")
    try:
        image = cv2.imdecode(np.frombuffer(file, np.uint8), cv2.IMREAD_COLOR) if file else None
    except cv2.error:  # it names more pixels than OpenCV wants to hold
        image = None
    if image is None:
        raise ValueError("not a readable image")
    height, width = image.shape[:2]
    side = min(height, width)
    top, left = (height - side) // 2, (width - side) // 2
    square = image[top : top + side, left : left + side]
    resized = cv2.resize(square, (SIZE, SIZE), interpolation=cv2.INTER_AREA)
    return cv2.cvtColor(resized, cv2.COLOR_BGR2RGB).astype(np.float32) / 255


class TritonPythonModel:
    def initialize(self, args: dict):
        cv2.setNumThreads(1)  # instances are what runs in parallel

    def execute(self, requests: list) -> list:
        return [self.respond(request) for request in requests]

    def respond(self, request):
        files = pb_utils.get_input_tensor_by_name(request, "FILE").as_numpy()[:, 0]
        try:
            pixels = np.stack([pixels_of(file) for file in files])
        except ValueError as error:
            problem = pb_utils.TritonError(str(error), pb_utils.TritonError.INVALID_ARG)
            return pb_utils.InferenceResponse(error=problem)
        return pb_utils.InferenceResponse([pb_utils.Tensor("PIXELS", pixels)])
