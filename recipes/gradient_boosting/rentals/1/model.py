"""Columns to predictions: one table for all requests of a batch."""

from pathlib import Path

import numpy as np
import pandas as pd
import triton_python_backend_utils as pb_utils
import xgboost
from features import table


def column(request, name: str) -> np.ndarray:
    return pb_utils.get_input_tensor_by_name(request, name).as_numpy()[:, 0]


def table_of(request) -> pd.DataFrame:
    weather = [value.decode() for value in column(request, "WEATHER")]
    return table(column(request, "HOUR"), column(request, "TEMPERATURE"), column(request, "HOLIDAY"), weather)


class TritonPythonModel:
    def initialize(self, args: dict):
        self.booster = xgboost.Booster(model_file=Path(__file__).with_name("booster.json"))

    def execute(self, requests: list) -> list:
        responses, tables = [None] * len(requests), {}
        for number, request in enumerate(requests):
            try:
                tables[number] = table_of(request)
            except ValueError as error:
                problem = pb_utils.TritonError(str(error), pb_utils.TritonError.INVALID_ARG)
                responses[number] = pb_utils.InferenceResponse(error=problem)
        for number, rentals in zip(tables, self.predict(list(tables.values())), strict=True):
            responses[number] = pb_utils.InferenceResponse([pb_utils.Tensor("RENTALS", rentals[:, None])])
        return responses

    def predict(self, tables: list) -> list:
        """The predictions for each of the tables, FP32."""
        if not tables:
            return []
        rentals = self.booster.predict(xgboost.DMatrix(pd.concat(tables), enable_categorical=True))
        return np.split(rentals, np.cumsum([len(rows) for rows in tables])[:-1])
