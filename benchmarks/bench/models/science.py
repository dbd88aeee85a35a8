"""Imports NumPy, pandas, SciPy and scikit-learn, and returns its input."""

import numpy
import pandas
import scipy.optimize
import sklearn.linear_model
import triton_python_backend_utils as pb_utils

USED = (numpy, pandas, scipy.optimize, sklearn.linear_model)


class TritonPythonModel:
    def execute(self, requests):
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", r.inputs()[0].as_numpy())]) for r in requests]
