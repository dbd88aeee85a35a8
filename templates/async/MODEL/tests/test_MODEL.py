from envpack.testing import TritonModel


def test_looks_up_each_number(triton_model: TritonModel) -> None:
    assert triton_model("MODEL").infer(X=[1, 2, 3])["Y"].tolist() == [2, 3, 4]


def test_nothing_to_look_up(triton_model: TritonModel) -> None:
    assert triton_model("MODEL").infer(X=[])["Y"].tolist() == []
