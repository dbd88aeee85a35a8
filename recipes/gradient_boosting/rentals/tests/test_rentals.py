import pytest

from envpack.testing import ModelError


def an_hour(hour=8, temperature=15.0, holiday=False, weather="clear"):
    return {"HOUR": [[hour]], "TEMPERATURE": [[temperature]], "HOLIDAY": [[holiday]], "WEATHER": [[weather]]}


def test_more_are_rented_in_the_rush_hour(triton_model):
    model = triton_model("rentals")
    rush, night = (model.infer(an_hour(hour=hour))["RENTALS"][0, 0] for hour in (8, 3))
    assert rush > 5 * night


def test_an_unknown_weather_is_an_error_of_its_request_only(triton_model):
    model = triton_model("rentals")
    good, bad = model.infer_batch([an_hour(), an_hour(weather="hail")], return_errors=True)
    assert good["RENTALS"][0, 0] > 0
    assert isinstance(bad, ModelError)
    assert "WEATHER is 'hail', not one of clear, cloudy, rain, snow" in str(bad)


def test_requests_of_a_batch_do_not_mix(triton_model):
    model = triton_model("rentals")
    hours = [an_hour(hour=hour) for hour in range(24)]
    together = [outputs["RENTALS"][0, 0] for outputs in model.infer_batch(hours)]
    assert together == pytest.approx([model.infer(hour)["RENTALS"][0, 0] for hour in hours])
