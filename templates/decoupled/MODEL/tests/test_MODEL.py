from envpack.testing import ModelUnderTest, TritonModel


def words(model: ModelUnderTest, text: str) -> list[str]:
    return [outputs["WORD"][0].decode() for outputs in model.stream(TEXT=[text])]


def test_sends_each_word(triton_model: TritonModel) -> None:
    assert words(triton_model("MODEL"), "one two") == ["one", "two"]


def test_an_empty_text_has_no_words(triton_model: TritonModel) -> None:
    assert words(triton_model("MODEL"), "") == []
