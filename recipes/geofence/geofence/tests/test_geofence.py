import numpy as np


def names(model, points):
    return [name.decode() for name in model.infer(POINTS=np.array(points).reshape(-1, 2))["AREA"]]


def test_names_the_area_of_each_point(triton_model):
    points = [[9.95, 53.52], [10.5, 53.5], [9.99, 53.63]]
    assert names(triton_model("geofence"), points) == ["harbour", "", "airport"]


def test_the_slanted_side_of_an_area_counts(triton_model):
    """Both points are in the rectangle around the airport."""
    assert names(triton_model("geofence"), [[9.965, 53.655], [9.965, 53.621]]) == ["", "airport"]


def test_no_points_have_no_areas(triton_model):
    assert names(triton_model("geofence"), []) == []
