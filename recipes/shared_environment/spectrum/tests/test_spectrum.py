import numpy as np


def test_a_wave_has_one_frequency(triton_model):
    wave = np.sin(2 * np.pi * 3 * np.arange(32) / 32)
    power = triton_model("spectrum").infer(SIGNAL=wave.astype(np.float32))["POWER"]
    assert power.argmax() == 3
    assert power[3] > 0.99 * power.sum()


def test_a_constant_has_no_power(triton_model):
    np.testing.assert_allclose(triton_model("spectrum").infer(SIGNAL=[7] * 8)["POWER"], 0, atol=1e-6)
