import json
from pathlib import Path

import pytest

from envpack.testing import ModelError

SAMPLES = json.loads((Path(__file__).parents[1] / "envpack/smoke.json").read_text())


def columns(row):
    return {name: [values] for name, values in row.items()}


def test_a_batch_is_answered_row_by_row(triton_model):
    wine = triton_model("wine")
    answers = wine.infer_batch([columns(row) for row in SAMPLES["data"][:3]])
    assert [answer["predictions"][0, 0].decode() for answer in answers] == [
        expected["predictions"][0] for expected in SAMPLES["validation_data"][:3]
    ]


def test_a_request_without_a_column_is_refused(triton_model):
    row = columns(SAMPLES["data"][0])
    del row["alcohol"]
    with pytest.raises(ModelError, match="input"):
        triton_model("wine").infer(row)
