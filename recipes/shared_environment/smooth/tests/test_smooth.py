import numpy as np


def test_a_parabola_has_no_noise(triton_model):
    squares = np.arange(10, dtype=np.float32) ** 2
    np.testing.assert_allclose(triton_model("smooth").infer(SIGNAL=squares)["SMOOTHED"], squares, atol=1e-3)


def test_noise_gets_less(triton_model):
    noise = np.array([1, -1] * 8, np.float32)
    assert np.abs(triton_model("smooth").infer(SIGNAL=noise)["SMOOTHED"][2:-2]).max() < 1


def test_a_short_signal_stays_as_it_is(triton_model):
    assert triton_model("smooth").infer(SIGNAL=[3, 4])["SMOOTHED"].tolist() == [3, 4]
