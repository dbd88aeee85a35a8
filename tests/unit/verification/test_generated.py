"""What is made up for models without samples."""

import base64
import io
import struct
import wave
import zlib
from dataclasses import replace

import pytest

from envpack.server.tensors import read_served_config
from envpack.verification.contents import CONTENTS, content
from envpack.verification.requests import (
    PLAIN,
    Filling,
    fillings,
    generate_foreign_text,
    generate_longer,
    generate_other,
    generate_partial,
    generate_requests,
    generate_variants,
)
from tests.tables import every_row


def config(*inputs, **more):
    described = [{"name": f"IN{number}", "data_type": kind, "dims": dims} for number, (kind, dims) in enumerate(inputs)]
    return read_served_config({"input": described, **more})


@pytest.mark.parametrize("kind", CONTENTS)
def test_every_content_differs_from_number_to_number(kind):
    assert len({content(kind, number) for number in range(8)}) == 8


def test_contents_have_the_form_that_they_are_named_after():
    png, jpeg = content("PNG", 1), content("JPEG", 1)
    assert struct.unpack(">II", png[16:24]) == (64, 64)
    assert len(zlib.decompress(png[png.index(b"IDAT") + 4 : png.index(b"IEND") - 8])) == 64 * (1 + 3 * 64)
    assert (jpeg[:2], jpeg[-2:]) == (b"\xff\xd8", b"\xff\xd9")
    assert base64.b64decode(content("PNG in base64", 1)) == png
    with wave.open(io.BytesIO(content("WAV", 1))) as sound:
        assert (sound.getframerate(), sound.getnframes(), sound.getnchannels()) == (16_000, 16_000, 1)


def described(config):
    return [str(filling) for filling in fillings(config)]


def test_the_plain_filling_is_tried_first_and_then_what_differs_least():
    assert described(config(("TYPE_FP32", [2]))) == ["", "zeros"]
    assert described(config(("TYPE_BOOL", [2]))) == [""]
    assert described(config(("TYPE_STRING", [1]))) == ["", *(f"{kind} in IN0" for kind in CONTENTS[1:])]
    sizes = ["variable dimensions of 16", "variable dimensions of 224", "variable dimensions of 16000"]
    assert described(config(("TYPE_FP32", [-1, 2])))[:5] == ["", "zeros", *sizes]


def test_two_strings_may_hold_different_things_and_three_hold_the_same():
    two = described(config(*[("TYPE_STRING", [1])] * 2))
    assert len(two) == len(CONTENTS) ** 2
    assert two.index("PNG in IN1") < two.index("PNG in IN0, WAV in IN1")
    assert len(described(config(*[("TYPE_STRING", [1])] * 3))) == len(CONTENTS)


def test_the_number_of_attempts_and_their_size_have_a_limit():
    assert len(described(config(*[("TYPE_STRING", [-1])] * 2, ("TYPE_INT64", [-1])))) == 64
    images = described(config(("TYPE_FP32", [3, -1, -1])))
    assert "variable dimensions of 224" in images
    assert not [text for text in images if "16000" in text]
    strings = config(("TYPE_STRING", [-1]))
    large = (Filling({"IN0": kind}, size) for kind, size in (("WAV", 224), ("text", 16_000), ("WAV", 16_000)))
    assert [len(list(generate_requests(strings, filling))) for filling in large] == [1, 1, 0]


def test_a_batch_is_no_variable_dimension():
    batched = config(("TYPE_FP32", [2]), max_batch_size=8)
    assert described(batched) == ["", "zeros"]
    alone, two = generate_requests(batched, Filling(number=0))
    assert (alone.inputs[0].shape, two.inputs[0].shape, two.inputs[0].data) == ((1, 2), (2, 2), (0.0,) * 4)
    assert alone.description == "with every input (zeros)"


def test_bytes_of_any_length_are_those_of_a_file():
    filling = Filling({"IN0": "JPEG"})
    (request, two) = generate_requests(config(("TYPE_UINT8", [-1]), max_batch_size=2), filling)
    file = content("JPEG", 1)
    assert (request.inputs[0].shape, bytes(request.inputs[0].data)) == ((1, len(file)), file)
    assert (two.inputs[0].shape, bytes(two.inputs[0].data)) == ((2, len(file)), file * 2)


def test_requests_of_many_clients_differ():
    images = config(("TYPE_STRING", [1]))
    filling = Filling({"IN0": "PNG"})
    sent = [request.inputs[0].data for request in generate_variants(images, 8, filling)]
    assert sent == [(content("PNG", number),) for number in range(1, 9)]
    assert [request.inputs[0].data for request in generate_variants(images, 2, PLAIN)] == [(b"1",), (b"2",)]


def test_uneven_requests_differ_in_length_from_their_neighbours():
    served = config(*[("TYPE_STRING", [1])] * len(CONTENTS), ("TYPE_INT64", [-1]))
    filling = Filling({f"IN{at}": kind for at, kind in enumerate(CONTENTS)})
    first, second, third = generate_variants(replace(served, ragged=True), 3, filling, uneven=True)
    for at, kind in enumerate(CONTENTS):
        plain, other = content(kind, 2), content(kind, 2, 2)
        assert (first.inputs[at].data, second.inputs[at].data) == ((content(kind, 1),), (other,))
        assert (len(other) != len(plain)) is (kind != "JPEG")
    assert [request.inputs[-1].shape for request in (first, second, third)] == [(1,), (2,), (1,)]
    _, second = generate_variants(served, 2, uneven=True)
    assert second.inputs[-1].shape == (1,)


def test_another_request_has_other_differences_of_its_inputs():
    """A model that subtracts one from the other would have the same answer."""
    served = config(("TYPE_FP32", [3]), ("TYPE_FP32", [3]))
    first, second = generate_other(served, next(generate_requests(served)), PLAIN).inputs
    assert (first.data, second.data) == ((2.0, 1.0, 2.0), (1.0, 2.0, 1.0))


def other(described, filling=PLAIN, **more):
    served = config(described, **more)
    found = generate_other(served, next(generate_requests(served, filling)), filling)
    return found and found.inputs[0].data


def test_another_request_is_no_multiple_of_the_first():
    assert other(("TYPE_FP32", [4])) == (2.0, 1.0, 2.0, 1.0)
    assert other(("TYPE_INT64", [-1])) == (2,)
    assert other(("TYPE_BOOL", [3])) == (False, True, False)
    assert other(("TYPE_STRING", [1])) == (b"2",)
    assert other(("TYPE_FP32", [2]), max_batch_size=4) == (2.0, 1.0)
    assert other(("TYPE_FP32", [0])) is None
    image = Filling({"IN0": "PNG"})
    assert bytes(other(("TYPE_UINT8", [-1]), image)) == content("PNG", 2)
    assert other(("TYPE_STRING", [1]), image) == (content("PNG", 2),)


def test_another_request_has_the_place_of_the_first_in_a_sequence():
    served = config(("TYPE_FP32", [2]), sequence_batching={})
    first = next(generate_requests(served))
    assert first.parameters
    assert generate_other(served, first, PLAIN).parameters == first.parameters


def test_variable_dimensions_have_several_elements_after_one():
    served = config(("TYPE_FP32", [-1, 2]), ("TYPE_STRING", [1]))
    first, longer = next(generate_requests(served)), generate_longer(served, next(generate_requests(served)), PLAIN)
    assert [tensor.shape for tensor in longer.inputs] == [(3, 2), (1,)]
    assert longer.description == "with every input (variable dimensions of 3)"
    assert generate_longer(served, first, Filling(size=16)) is None
    fixed = config(("TYPE_FP32", [2]))
    assert generate_longer(fixed, next(generate_requests(fixed)), PLAIN) is None


def test_text_of_other_languages_is_where_text_was():
    served = config(("TYPE_STRING", [2]), ("TYPE_STRING", [1]), ("TYPE_FP32", [1]))
    filling = Filling({"IN0": "text", "IN1": "JSON"})
    first = next(generate_requests(served, filling))
    text, *others = generate_foreign_text(first, filling).inputs
    assert [item.decode().isascii() for item in text.data] == [False, False]
    assert others == list(first.inputs[1:])
    assert generate_foreign_text(first, Filling(dict.fromkeys(("IN0", "IN1"), "PNG"))) is None


def test_each_of_several_optional_inputs_is_sent_without_the_others():
    def names(*optional):
        inputs = [{"name": name, "data_type": "TYPE_FP32", "dims": [1], "optional": name in optional} for name in "XAB"]
        served = read_served_config({"input": inputs})
        partial = generate_partial(served, next(generate_requests(served)))
        return {request.description: [tensor.name for tensor in request.inputs] for request in partial}

    alone = "with {} and no other optional input".format
    assert names("A", "B") == {alone("A"): ["X", "A"], alone("B"): ["X", "B"]}
    assert list(names("X", "A", "B").values()) == [["X"], ["A"], ["B"]]
    assert names("A") == {}


@every_row(
    ("batching", "instances", "at_once"),
    [
        ({"direct": {}}, 1, 4),
        ({}, 3, 12),
        ({"oldest": {}}, 1, 4),
        ({"oldest": {"max_candidate_sequences": 8}}, 1, 8),
        ({"oldest": {"max_candidate_sequences": 2}}, 3, 6),
    ],
)
def test_each_instance_answers_as_many_sequences_at_once_as_a_server_lets_it(batching, instances, at_once):
    """As Triton 24.10 did with twice as many clients as a batch has items."""
    served = config(sequence_batching=batching, instance_group=[{"count": instances}], max_batch_size=4)
    assert served.sequences_at_once == at_once
