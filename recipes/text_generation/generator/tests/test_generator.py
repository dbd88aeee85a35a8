from itertools import islice

import pytest

from envpack.testing import ModelError


def texts(stream):
    return [outputs["TEXT"][0].decode() for outputs in stream]


def test_continues_what_it_was_trained_on(triton_model):
    pieces = texts(triton_model("generator").stream(PROMPT=["A model repository"], MAX_TOKENS=[200]))
    assert len(pieces) > 20
    text = "".join(pieces)
    assert text.startswith(" is a folder. Each model has a folder in it")
    assert "naïve" in text, "characters of two bytes come whole"


def test_sends_as_many_tokens_as_the_client_wants(triton_model):
    assert len(texts(triton_model("generator").stream(PROMPT=["The server"], MAX_TOKENS=[3]))) == 3


def test_stops_when_the_client_does(triton_model):
    stream = triton_model("generator").stream(PROMPT=["A model"], MAX_TOKENS=[200])
    assert texts(islice(stream, 2))
    stream.close()
    assert texts(triton_model("generator").stream(PROMPT=["A model"], MAX_TOKENS=[1]))


def test_refuses_an_empty_prompt(triton_model):
    with pytest.raises(ModelError, match="the prompt is empty"):
        texts(triton_model("generator").stream(PROMPT=[""]))
