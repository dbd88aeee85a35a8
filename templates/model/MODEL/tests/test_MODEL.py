import numpy as np
import pytest

from envpack.testing import ModelError, TritonModel


def test_multiplies(triton_model: TritonModel) -> None:
    assert triton_model("MODEL").infer(X=[[1, 2]])["Y"].tolist() == [[2, 4]]


def test_answers_each_request_of_a_batch(triton_model: TritonModel) -> None:
    requests = [{"X": [[1]]}, {"X": [[2], [3]]}]
    assert [outputs["Y"].tolist() for outputs in triton_model("MODEL").infer_batch(requests)] == [[[2]], [[4], [6]]]


def test_refuses_another_type(triton_model: TritonModel) -> None:
    with pytest.raises(ModelError, match="type"):
        triton_model("MODEL").infer(X=np.array([[1]], dtype=np.int64))
