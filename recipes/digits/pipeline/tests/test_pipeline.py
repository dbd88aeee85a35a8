import base64
import json
from pathlib import Path

import numpy as np

SAMPLES = Path(__file__).parents[1] / "envpack/smoke.json"


def test_names_most_of_the_digits_that_it_was_not_trained_on(triton_model):
    samples = json.loads(SAMPLES.read_text(encoding="utf-8"))
    images = [base64.b64decode(sample["IMAGE"]["b64"]) for sample in samples["data"][:40]]
    labels = [sample["LABEL"][0].encode() for sample in samples["validation_data"][:40]]
    found = triton_model("pipeline").infer(IMAGE=np.array(images, dtype=np.object_).reshape(-1, 1))["LABEL"]
    assert np.mean(found[:, 0] == np.array(labels, dtype=np.object_)) > 0.9
