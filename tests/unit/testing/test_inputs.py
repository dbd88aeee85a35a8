"""What `envpack run --input` sends, and why a file is refused: what is wrong, which file, what to do."""

import json
import os

import numpy as np
import pytest

from envpack.server.tensors import decode, encode, read_served_config
from envpack.support.errors import InputError
from envpack.testing import trial as module
from envpack.testing.trial import check_sources, read_requests
from envpack.verification.samples import SAMPLES_FILE
from tests.tables import every_row


def config(*inputs, batch=0):
    return read_served_config(
        {
            "name": "m",
            "backend": "python",
            "max_batch_size": batch,
            "input": [{"name": name, "data_type": f"TYPE_{kind}", "dims": dims} for name, kind, dims in inputs],
            "output": [{"name": "OUT", "data_type": "TYPE_INT32", "dims": [-1]}],
        }
    )


NUMBERS = config(("A", "INT32", [-1]), ("B", "INT32", [-1]))
ONE = config(("A", "INT32", [-1]))
TEXT = config(("T", "STRING", [1]), ("A", "INT32", [-1]))
TEXTS = config(("T", "STRING", [1]), ("U", "STRING", [-1, 1]))


@pytest.fixture
def file(tmp_path):
    def write(name, content=b""):
        (tmp_path / name).write_bytes(content)
        return tmp_path / name

    return write


@pytest.fixture
def array(tmp_path):
    def write(name, **arrays):
        np.savez(tmp_path / name, **arrays) if name.endswith(".npz") else np.save(tmp_path / name, arrays[""])
        return tmp_path / name

    return write


def sent(sources, served, folder):
    """The inputs of the only request, by name, as lists."""
    (request,), _ = read_requests(list(map(str, sources)), served, "m", folder)
    assert request.model == "m"
    return {
        tensor.name: (tensor.datatype, tensor.shape, list(decode(tensor.datatype, bytes(tensor.content))))
        for tensor in request.inputs
    }


def refused(sources, served, folder):
    with pytest.raises(InputError) as raised:
        read_requests(list(map(str, sources)), served, "m", folder)
    error = raised.value
    assert error.kind == "bad-input"
    return error.where, error.message, error.hint


def test_an_array_is_the_only_input_or_the_one_that_is_named(tmp_path, array, file):
    one = array("one.npy", **{"": np.array([1, 2], np.int32)})
    assert sent([one], ONE, tmp_path) == {"A": ("INT32", (2,), [1, 2])}
    assert sent([f"B={one}", f"A={one}"], NUMBERS, tmp_path) == {name: ("INT32", (2,), [1, 2]) for name in ("A", "B")}
    text = file("text", b"x")
    assert sent([f"A={one}", text], TEXT, tmp_path) == {"A": ("INT32", (2,), [1, 2]), "T": ("BYTES", (1,), [b"x"])}
    assert refused([one], NUMBERS, tmp_path) == (
        str(one),
        "the model has the inputs A, B",
        "say which: INPUT=FILE",
    )


def test_nothing_can_be_sent_to_a_model_without_inputs(tmp_path, array):
    one = array("one.npy", **{"": np.array([1, 2], np.int32)})
    _, message, hint = refused([one], config(), tmp_path)
    assert message == "neither config.pbtxt nor the model names an input"
    assert hint.startswith("declare them in config.pbtxt")


def test_an_archive_names_its_inputs_itself(tmp_path, array):
    both = array("both.npz", A=np.array([1], np.int32), B=np.array([2], np.int32))
    assert sent([both], NUMBERS, tmp_path) == {"A": ("INT32", (1,), [1]), "B": ("INT32", (1,), [2])}
    other = array("other.npz", C=np.array([1], np.int32))
    assert refused([other], NUMBERS, tmp_path)[1:] == ("the model has no input 'C', only A, B", "say which: INPUT=FILE")
    assert sent([f"B={other}"], NUMBERS, tmp_path) == {"B": ("INT32", (1,), [1])}
    others = array("others.npz", C=np.array([1], np.int32), D=np.array([2], np.int32))
    _, said, hint = refused([f"A={others}"], NUMBERS, tmp_path)
    assert said == "the model has no input 'C', only A, B"
    assert hint == "name the arrays after inputs"
    assert refused([both, f"A={both}"], NUMBERS, tmp_path) == (
        str(both),
        "the input 'A' is given twice",
        "give each input once",
    )


def test_any_other_file_is_a_string(tmp_path, file):
    image = file("image.png", b"\x89PNG\xff")
    assert sent([image], TEXT, tmp_path) == {"T": ("BYTES", (1,), [b"\x89PNG\xff"])}
    assert sent([f"U={image}"], TEXTS, tmp_path) == {"U": ("BYTES", (1, 1), [b"\x89PNG\xff"])}
    assert refused([image], TEXTS, tmp_path) == (
        str(image),
        "the model has 2 inputs of strings",
        "say which one: INPUT=FILE",
    )
    assert refused([image], ONE, tmp_path) == (
        str(image),
        "the model has no input of strings, which files can be sent to",
        "give .json, .npy or .npz",
    )
    assert refused([f"A={image}"], TEXT, tmp_path)[1] == (
        "the input 'A' is no input of strings, which files can be sent to"
    )


def test_a_file_that_cannot_be_read_is_named(tmp_path, file, monkeypatch):
    missing = tmp_path / "missing.png"
    assert refused([missing], TEXT, tmp_path) == (
        str(missing),
        "cannot be read: No such file or directory",
        "give a file that you can read",
    )
    large = file("large.png", b"12345")
    monkeypatch.setattr(module, "MOST_BYTES", 5)
    assert sent([large], TEXT, tmp_path)["T"][2] == [b"12345"]
    monkeypatch.setattr(module, "MOST_BYTES", 4)
    where, message, _ = refused([large], TEXT, tmp_path)
    assert (where, message.startswith("cannot be read: ")) == (str(large), True)


def test_a_name_that_is_no_input_is_refused_unless_it_is_part_of_a_file(tmp_path, file):
    assert refused([f"X={tmp_path}/none"], TEXT, tmp_path) == (
        f"X={tmp_path}/none",
        "the model has no input 'X', only T, A",
        "name one of its inputs",
    )
    odd = file("a=b.png", b"x")
    assert sent([odd], TEXT, tmp_path)["T"][2] == [b"x"]


def test_samples_are_whole_requests(tmp_path, file):
    text = json.dumps({"data": [{"A": [1]}, {"A": [2, 3]}], "validation_data": [{"OUT": [1]}, {}]})
    samples = file("samples.json", text.encode())
    requests, found = read_requests([str(samples)], ONE, "m", tmp_path)
    assert [list(decode("INT32", bytes(request.inputs[0].content))) for request in requests] == [[1], [2, 3]]
    assert len(found.samples) == 2
    for second in (samples, file("array.npy", b"")):
        assert refused([samples, second], ONE, tmp_path) == (
            str(samples),
            "samples hold all inputs of a request, but --input is given more than once",
            "give one",
        )


def test_without_sources_the_samples_of_the_model_are_sent_if_there_are_any(tmp_path):
    assert read_requests([], ONE, "m", tmp_path) == ((), None)
    (tmp_path / SAMPLES_FILE).parent.mkdir()
    (tmp_path / SAMPLES_FILE).write_text('{"data": [{"A": [7]}]}')
    (request,), samples = read_requests([], ONE, "m", tmp_path)
    assert (request.model, bytes(request.inputs[0].content)) == ("m", encode("INT32", (7,)))
    assert samples is not None


UNREADABLE = {
    "pipe": (os.mkfifo, "it is not a regular file"),
    "folder": (os.mkdir, "Is a directory"),
    "broken link": (lambda place: place.symlink_to("nowhere"), "No such file or directory"),
    "endless device": (lambda place: place.symlink_to("/dev/zero"), "it is not a regular file"),
}


@pytest.mark.timeout(60)
@every_row("what", UNREADABLE)
def test_no_requests_are_made_up_in_place_of_samples_that_cannot_be_read(tmp_path, what):
    make, reason = UNREADABLE[what]
    file = tmp_path / what / SAMPLES_FILE
    file.parent.mkdir(parents=True)
    make(file)
    with pytest.raises(InputError) as raised:
        read_requests([], ONE, "m", tmp_path / what)
    error = raised.value
    assert (error.kind, error.where) == ("bad-samples", str(file))
    assert error.message == f"these samples cannot be read: {reason}"
    assert error.hint == "it must be a text file that you can read"


def test_samples_of_a_sequence_are_placed_in_it(tmp_path, file):
    document = {
        "name": "m",
        "backend": "python",
        "max_batch_size": 0,
        "sequence_batching": {},
        "input": [{"name": "A", "data_type": "TYPE_INT32", "dims": [-1]}],
        "output": [{"name": "OUT", "data_type": "TYPE_INT32", "dims": [-1]}],
    }
    samples = file("samples.json", json.dumps({"data": [[{"A": [1]}, {"A": [2]}, {"A": [3]}]]}).encode())
    requests, _ = read_requests([str(samples)], read_served_config(document), "m", tmp_path)
    assert [request.flags for request in requests] == [1, 0, 2]
    assert {request.correlation_id for request in requests} == {1}


def test_files_are_looked_for_before_a_model_is_loaded(tmp_path, file):
    there = file("there.npy")
    odd = file("a=b")
    check_sources([str(there), f"A={there}", str(odd)])
    for source, where, reason in (
        (f"A={tmp_path}/none", f"{tmp_path}/none", "No such file or directory"),
        (f"{tmp_path}/none", f"{tmp_path}/none", "No such file or directory"),
        (str(tmp_path), str(tmp_path), "Is a directory"),
    ):
        with pytest.raises(InputError) as raised:
            check_sources([source])
        error = raised.value
        assert (error.kind, error.where) == ("bad-input", where)
        assert error.message == f"cannot be read: {reason}"
        assert error.hint == "give a file that you can read"
