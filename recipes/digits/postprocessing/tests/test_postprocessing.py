import numpy as np


def test_the_highest_score_is_the_label(triton_model):
    scores = np.eye(10, dtype=np.float32)[[3, 0]] * 0.75
    outputs = triton_model("postprocessing").infer(SCORES=scores)
    assert outputs["LABEL"].tolist() == [[b"three"], [b"zero"]]
    assert outputs["CONFIDENCE"].tolist() == [[0.75], [0.75]]
