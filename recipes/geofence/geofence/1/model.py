"""Points to the names of the areas that they are in."""

import json
from pathlib import Path

import numpy as np
import shapely
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args: dict):
        areas = json.loads(Path(__file__).with_name("areas.geojson").read_text(encoding="utf-8"))["features"]
        self.names = np.array([area["properties"]["name"].encode() for area in areas], dtype=np.object_)
        self.areas = shapely.STRtree([shapely.geometry.shape(area["geometry"]) for area in areas])

    def execute(self, requests: list) -> list:
        return [self.respond(request) for request in requests]

    def respond(self, request):
        points = pb_utils.get_input_tensor_by_name(request, "POINTS").as_numpy()
        found = np.full(len(points), b"", dtype=np.object_)
        numbers, areas = self.areas.query(shapely.points(points), predicate="within")
        found[numbers] = self.names[areas]
        return pb_utils.InferenceResponse([pb_utils.Tensor("AREA", found)])
