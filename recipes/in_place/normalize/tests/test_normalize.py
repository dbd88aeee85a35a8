import numpy as np


def test_the_mean_is_0_and_the_deviation_1(triton_model):
    pixels = np.arange(3 * 4 * 5, dtype=np.uint8).reshape(3, 4, 5)
    normalized = triton_model("normalize").infer(PIXELS=pixels)["NORMALIZED"]
    assert (normalized.dtype, normalized.shape) == (np.float32, (3, 4, 5))
    np.testing.assert_allclose([normalized.mean(), normalized.std()], [0, 1], atol=1e-6)


def test_pixels_of_one_value_become_0(triton_model):
    pixels = np.full((3, 2, 2), 200, dtype=np.uint8)
    assert not triton_model("normalize").infer(PIXELS=pixels)["NORMALIZED"].any()
