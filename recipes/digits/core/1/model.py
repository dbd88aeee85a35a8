"""Brightness to scores: Python 3.10 and scikit-learn."""

from pathlib import Path

import joblib
import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        self.classifier = joblib.load(Path(__file__).with_name("classifier.joblib"))

    def execute(self, requests):
        pixels = [pb_utils.get_input_tensor_by_name(request, "PIXELS").as_numpy() for request in requests]
        # One call for the whole batch, then each request gets its own rows back.
        scores = self.classifier.predict_proba(np.concatenate(pixels)).astype(np.float32)
        ends = np.cumsum([len(rows) for rows in pixels])[:-1]
        return [pb_utils.InferenceResponse([pb_utils.Tensor("SCORES", rows)]) for rows in np.split(scores, ends)]
