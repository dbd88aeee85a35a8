"""What a function is asked in a process of its own: its tensors, and what it answers to made-up values."""

import sys
from pathlib import Path

import pytest

from envpack.repository.adoption.answers import ask
from envpack.repository.adoption.kinds import inspect_artifact
from envpack.support.errors import InputError
from tests.tables import every_row

HEAD = """
from typing import Annotated

import numpy as np
from numpy.typing import NDArray

Rows = Annotated[np.ndarray, np.float32, (-1, 2)]
Flat = Annotated[np.ndarray, np.int64, (-1,)]
"""


@pytest.fixture
def answers(tmp_path, monkeypatch):
    """The answers of a function, by its source."""
    monkeypatch.chdir(tmp_path)

    def asked(source):
        (tmp_path / "app.py").write_text(f"{HEAD}\n{source}\n")
        return ask(inspect_artifact("app:f"), tmp_path, Path(sys.executable), 60)

    return asked


def test_an_array_of_one_dimension_is_one_number_for_each_row(answers):
    found = answers("def f(x: Rows, y: Flat) -> Flat:\n    assert (x.ndim, y.ndim) == (2, 1)\n    return y + 1")
    assert [(one.dims, one.form) for one in found.inputs] == [([2], "array"), ([1], "numbers")]
    assert (found.is_batched, found.notes) == (True, [])
    assert [sample["result"] for sample in found.validation_data] == [[2], [3]]


def test_a_function_does_without_further_arguments(answers):
    found = answers("def f(x: Rows, *others, **options) -> Flat:\n    return np.array([len(options)] * len(x))")
    assert [one.name for one in found.inputs] == ["x"]
    with pytest.raises(InputError, match="functools.wraps"):
        answers("def hidden(f):\n    return lambda *a: f(*a)\n@hidden\ndef f(x: Rows) -> Rows: return x")


@pytest.mark.parametrize(
    ("dtype", "element", "form"),
    [("object", bytes, "numbers"), ("np.bytes_", bytes, "numbers"), ("str", str, "plain_texts")],
)
def test_strings_are_bytes_unless_the_hint_says_text(answers, dtype, element, form):
    hint = f"Annotated[np.ndarray, {dtype}, (-1,)]"
    found = answers(f"def f(x: {hint}) -> {hint}:\n    assert isinstance(x[0], {element.__name__})\n    return x")
    assert (found.inputs[0].datatype, found.inputs[0].form, found.notes) == ("STRING", form, [])
    assert [sample["result"] for sample in found.validation_data] == [["text 1"], ["text 2"]]


def test_the_type_of_numpy_typing_counts(answers):
    found = answers("def f(x: Annotated[NDArray[np.int8], (-1, 3)]) -> Flat:\n    return x[:, 0].astype(np.int64)")
    assert (found.inputs[0].datatype, found.inputs[0].dims) == ("INT8", [3])


def test_a_missing_text_is_an_empty_one(answers):
    hint = "Annotated[np.ndarray, object, (-1, 3)]"
    found = answers(f"def f(x: Rows) -> {hint}:\n    return np.array([[None, np.nan, 'nan']] * len(x), dtype=object)")
    assert [sample["result"] for sample in found.validation_data] == [["", "", "nan"]] * 2


@pytest.mark.parametrize("name", ["served", "libraries", "forms", "ask"])
def test_a_module_of_the_model_may_have_any_name(answers, tmp_path, name):
    (tmp_path / f"{name}.py").write_text("class MLflow:\n    offset = 7\n")
    found = answers(f"from {name} import MLflow\ndef f(x: Flat) -> Flat:\n    return x + MLflow.offset")
    assert [sample["result"] for sample in found.validation_data] == [[8], [9]]


@pytest.mark.parametrize(
    ("source", "reason", "fix"),
    [
        ("def f(x: Annotated[np.ndarray, np.complex64, (-1,)]) -> Flat: ...", "array of complex64", "annotate with"),
        ("def f(x: Rows): ...", "the return value has no hint", "annotate with"),
        ("def f(x: np.ndarray) -> Flat: ...", "which is no tensor", "annotate with"),
        ("import nowhere\ndef f(x: Rows) -> Rows: ...", "No module named 'nowhere'", "requirements.txt"),
        ("1 / 0\ndef f(x: Rows) -> Rows: ...", "cannot be loaded in its own environment: ZeroDivisionError", "correct"),
    ],
)
def test_what_cannot_be_served_is_refused_with_its_cause(answers, source, reason, fix):
    with pytest.raises(InputError) as refused:
        answers(source)
    assert reason in refused.value.message
    assert fix in refused.value.hint


@pytest.mark.parametrize(
    ("body", "notes"),
    [
        ("raise SystemExit(3)", ["add samples: SystemExit: 3"]),
        ("open('weights')", ["No such file or directory: 'weights'", "is not copied with it"]),
    ],
)
def test_a_function_may_refuse_what_was_made_up(answers, body, notes):
    found = answers(f"def f(x: Rows) -> Rows:\n    {body}")
    assert (found.data, len(found.notes)) == ([], len(notes))
    assert all(part in note for part, note in zip(notes, found.notes, strict=True))


def test_an_answer_of_another_shape_than_its_hint_decides(answers):
    found = answers("def f(x: Rows) -> Annotated[np.ndarray, np.float32, (-1, 5)]:\n    return x")
    assert found.outputs[0].dims == [2]
    assert found.notes == [
        "result has the shape [2, 2], and is declared as [-1, 5]: config.pbtxt has what was answered"
    ]


WORDS = "def f(x: list[str]) -> list[str]:\n    return "
NUMBERS = "def f(x: Flat) -> Flat:\n    return "
FLAGS = "def f(x: Annotated[np.ndarray, np.bool_, (-1,)]) -> Annotated[np.ndarray, np.bool_, (-1,)]:\n    return "


@every_row(
    "source",
    [
        f"{WORDS}sorted(x)",
        f"{WORDS}sorted(x, reverse=True)",
        f"{WORDS}[str(sorted(set(x)).index(one)) for one in x]",
        f"{NUMBERS}np.arange(len(x))",
        f"{FLAGS}x | x.any()",
        "def f(x: Rows) -> Rows:\n    return x / x.max(axis=0)",
        "def f(x: Rows) -> Annotated[np.ndarray, np.float32, (-1, -1)]:\n    return np.ones((len(x), len(x)))",
        "def f(x: Rows) -> Annotated[np.ndarray, np.float32, (-1, -1)]:\n    return np.ones((len(x), len(x) + 1))",
    ],
)
def test_a_row_that_depends_on_others_is_found(answers, source):
    found = answers(source)
    assert (found.is_batched, found.rows_are_independent) == (False, False)
    assert found.notes == [
        "the answer to a row depends on other rows, so max_batch_size is 0, and a request is a table"
    ]


@every_row("source", [f"{NUMBERS}np.random.randint(1 << 30, size=len(x))", f"{NUMBERS}x + time.monotonic_ns()"])
def test_answers_that_differ_each_time_are_not_expected_of_the_server(answers, source):
    found = answers(f"import time\n{source}")
    assert (found.is_batched, found.rows_are_independent) == (False, False)
    assert (len(found.data), found.validation_data) == (1, [])
    assert found.notes == [
        "it answers the same example differently each time, so verify compares no answers, and max_batch_size is 0"
    ]


@every_row(
    ("source", "sent"),
    [
        (f"{WORDS}[one.upper() for one in x]", [["text 1"], ["text 2"]]),
        (f"{NUMBERS}x * 2", [[1], [2]]),
        (f"{NUMBERS}np.array([5, 6])[x]", [[1], [0]]),  # an index into a table of two
        (f"{FLAGS}~x", [[True], [False]]),
    ],
)
def test_made_up_rows_differ(answers, source, sent):
    found = answers(source)
    assert (found.is_batched, found.rows_are_independent, found.notes) == (True, True, [])
    assert [sample["x"] for sample in found.data] == sent


@every_row(
    ("source", "sent"),
    [
        (f"{WORDS}[{{'text': 'known'}}[one] for one in x]", "text"),
        (f"{NUMBERS}np.array([{{1: 5}}[one] for one in x])", 1),
    ],
)
def test_a_model_that_refuses_all_rows_but_equal_ones_gets_no_joined_requests(answers, source, sent):
    found = answers(source)
    assert (found.is_batched, found.rows_are_independent) == (True, False)
    assert [sample["x"] for sample in found.data] == [[sent], [sent]]
    (note,) = found.notes
    assert note == (
        "it is unknown whether the answer to a row depends on other rows, so config.pbtxt has no dynamic_batching: add"
        " it if it does not"
    )


def test_a_function_may_change_its_inputs(answers):
    found = answers("def f(x: Flat) -> Flat:\n    x += 1\n    return x")
    assert (found.rows_are_independent, found.notes) == (True, [])
    assert [sample["x"] for sample in found.data] == [[1], [2]]
    assert [sample["result"] for sample in found.validation_data] == [[2], [3]]
