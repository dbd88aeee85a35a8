from envpack.testing import TritonModel


def test_adds_to_the_answer_of_the_other_model(triton_model: TritonModel) -> None:
    assert triton_model("MODEL").infer(X=[1, 2])["Y"].tolist() == [3, 5]
