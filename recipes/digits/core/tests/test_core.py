import numpy as np


def test_scores_are_probabilities(triton_model):
    scores = triton_model("core").infer(PIXELS=np.zeros((2, 64), np.float32))["SCORES"]
    np.testing.assert_allclose(scores.sum(axis=1), 1, rtol=1e-4)


def test_a_ring_is_a_zero(triton_model):
    row, column = np.mgrid[0:8, 0:8] - 3.5
    ring = np.where(np.abs(np.hypot(row, column * 1.4) - 3) < 0.9, 14, 0).astype(np.float32)
    assert triton_model("core").infer(PIXELS=ring.reshape(1, 64))["SCORES"].argmax() == 0
