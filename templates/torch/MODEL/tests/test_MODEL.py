import numpy as np

from envpack.testing import TritonModel


def test_scores_each_row(triton_model: TritonModel) -> None:
    scores = triton_model("MODEL").infer(X=[[1, 2, 3, 4], [0, 0, 0, 0]])["Y"]
    assert scores.shape == (2, 2)
    assert np.isfinite(scores).all()


def test_requests_of_a_batch_do_not_mix(triton_model: TritonModel) -> None:
    model = triton_model("MODEL")
    rows = np.eye(4, dtype=np.float32)
    alone = [model.infer(X=row[None])["Y"] for row in rows]
    together = model.infer_batch([{"X": row[None]} for row in rows])
    for one, other in zip(alone, together, strict=True):
        np.testing.assert_allclose(one, other["Y"], rtol=1e-5)
