"""Runs in the execution environment of a model: calls it on an example, and writes what it answers.

    python ask.py FACTS REPORT

The example goes to the model's own library, not through the model.py that serves it, so that each checks the other.
"""

import base64
import contextlib
import copy
import json
import sys
import traceback
import types
from pathlib import Path

import numpy as np

HERE = str(Path(__file__).parent)
sys.modules["triton_python_backend_utils"] = types.ModuleType("triton_python_backend_utils")  # served.py imports it
from forms import png
from libraries import DATATYPES, INTEGERS, MOST_ROWS, ONNX, Estimator, Function, MLflow, Tensor, in_type, made_up
from served import is_missing, named, to_array

_MOST_LISTED = 256  # numbers; more are written in base64
_UNPROVEN = (
    "it is unknown whether the answer to a row depends on other rows, so config.pbtxt has no dynamic_batching: add it"
    " if it does not"
)
_UNSTEADY = "it answers the same example differently each time, so verify compares no answers, and max_batch_size is 0"


def report_of(facts):
    """The report; `envpack.repository.adoption.answers.Answers` describes it."""
    kind = {"mlflow": MLflow, "sklearn": Estimator, "onnx": ONNX, "function": Function}[facts["kind"]]
    model = step("be loaded", kind, facts)
    step("declare its tensors", model.declare)
    notes = []
    data = accepted(model, notes)
    tensors = [one for one in (*model.inputs, *model.outputs) if not one.is_parameter]
    batched = all(one.shape[:1] == [-1] for one in tensors)
    independent, answered, steady = False, [], True
    if data is not None:
        data = take(data, range(min(rows_of(data), MOST_ROWS))) if batched else data
        batched, independent, answered, steady = answers_to(model, data, batched, notes)
    samples = complete_samples(model, answered, batched, notes)
    return {
        "inputs": [one.report(batched) for one in model.inputs],
        "outputs": [one.report(batched) for one in model.outputs],
        "is_batched": batched,
        "rows_are_independent": independent,
        "data": [entry for entry, _ in samples],
        "validation_data": [
            {one.name: content(answer[one.name], one, batched) for one in model.outputs}
            for _, answer in (samples if steady else ())
        ],
        "notes": notes,
        "details": model.details,
    }


def accepted(model, notes):
    """The example of a model, the first that it accepts if they are made up; None if there is none."""
    if not model.may_refuse_example:
        if not model.outputs:  # which only the example can tell
            return step("read its example", model.example)
        try:
            return model.example()
        except Exception as error:  # an example of MLflow 1 may be one that MLflow 2 does not read
            why = f"{type(error).__name__}: {error}"
            notes.append(f"its example cannot be read, so verify compares no answers; add samples: {why}")
            return None
    for integers in INTEGERS:
        data = step("read its example", model.example, integers)
        try:
            predict(model, data)
            return data
        except (Exception, SystemExit) as error:  # of the user's own code, which may raise anything
            refusal = error
    why = f"{type(refusal).__name__}: {refusal}"
    notes.append(f"it refuses a made-up example, so verify compares no answers; add samples: {why}")
    if isinstance(refusal, FileNotFoundError):
        notes.append("a file that the module reads is not copied with it: put it beside the module's copy")
    return None


def predict(model, data):
    """The model's answer; it may change its inputs."""
    return model.predict(copy.deepcopy(data))


def answers_to(model, data, batched, notes):
    """Whether requests have rows, whether these are known to be independent, and pairs of data and answer: of each row;
    and whether the model repeats an answer.

    The outputs get the types and shapes that were answered.
    """
    answer = step("answer its example", predict, model, data)
    model.outputs = model.outputs or [Tensor(name, "", []) for name in names_of(answer)]
    whole = typed_outputs(model, answer)
    again = typed_outputs(model, step("answer its example again", predict, model, data))
    steady = all(is_equal(again[name], whole[name]) for name in whole)
    alone, independent = one_by_one(model, data, whole) if batched and steady else (None, False)
    if not steady:
        notes.append(_UNSTEADY)
    elif batched and alone is None:
        notes.append("the answer to a row depends on other rows, so max_batch_size is 0, and a request is a table")
    elif batched and not independent:
        notes.append(_UNPROVEN)
    for one in model.outputs:
        array = whole[one.name]
        one.datatype = DATATYPES.get(array.dtype.name, "STRING")
        if one.shape and not (is_fitting(array.shape, one.shape) and (alone or array.ndim == len(one.shape))):
            found = f"{one.name} has the shape {list(array.shape)}"
            notes.append(f"{found}, and is declared as {one.shape}: config.pbtxt has what was answered")
            one.shape = []
        one.shape = one.shape or ([-1, *array.shape[1:]] if alone else [-1] * array.ndim)
    rows = [(take(data, [row]), answer) for row, answer in enumerate(alone or ())]
    return alone is not None, independent, rows or [(data, whole)], steady


def complete_samples(model, answered, batched, notes):
    """The samples that a request can have, each with its answer."""
    sent = [(sample(model, inputs, batched), answer) for inputs, answer in answered]
    kept = [(entry, answer) for entry, answer in sent if entry is not None]
    if len(kept) < len(sent):
        notes.append(f"{len(sent) - len(kept)} of {len(sent)} rows of the example lack a text, so they are no samples")
    return kept


def is_fitting(shape, declared):
    """Whether an answer is as declared; rows of one number may have a dimension for it."""
    found, wanted = ([*each[:1], *(each[1:] or [1])] for each in (shape, declared))
    return len(found) == len(wanted) and all(size in (-1, dim) for size, dim in zip(wanted, found))


def names_of(answer):
    """The names of outputs that the signature leaves out."""
    rows = isinstance(answer, list) and bool(answer) and isinstance(answer[0], dict)
    has_names = rows or isinstance(answer, dict) or hasattr(answer, "columns")
    return list(answer[0] if rows else answer) if has_names else ["predictions"]


def typed_outputs(model, answer):
    answers = named(answer, [one.name for one in model.outputs])
    return {one.name: typed(answers[one.name], one) for one in model.outputs}


def one_by_one(model, data, whole):
    """The answers to each row alone, None if they depend on other rows; and whether rows that differ have shown it.

    If no rows of the example differ, two that are made up show it, unless the model refuses them.
    """
    alone = rows_alone(model, data, whole)
    if alone is None or rows_differ(model, data):
        return alone, alone is not None
    numbers = [one for one in model.inputs if one.datatype != "STRING"]
    for varied in (model.inputs, numbers):  # a text may be one of few that the model knows
        with contextlib.suppress(Exception, SystemExit):
            pair = take(data, [0, 0])
            pair.update((one.name, made_up(one, INTEGERS[0])) for one in varied if one.name in data)
            if rows_differ(model, pair):
                is_shown = rows_alone(model, pair, typed_outputs(model, predict(model, pair))) is not None
                return alone if is_shown else None, is_shown
    return alone, False


def rows_alone(model, data, whole):
    """The answers to each row alone; None if they differ from those among other rows, or in another order."""
    turned = [*reversed(range(rows_of(data))), 0]
    try:
        alone = [typed_outputs(model, predict(model, take(data, [row]))) for row in range(rows_of(data))]
        again = typed_outputs(model, predict(model, take(data, turned)))
    except Exception:  # of the model, which may refuse a single row in any way; then requests are whole tables
        return None
    expected = [alone[row] for row in turned]
    pairs = [(whole, alone), (again, expected)]
    are_same = all(is_same(table[name], [one[name] for one in rows]) for table, rows in pairs for name in whole)
    return alone if are_same else None


def rows_differ(model, data):
    rows = range(rows_of(data))
    return len({json.dumps(sample(model, take(data, [row]), batched=True)) for row in rows}) > 1


def is_same(whole, rows):
    """Whether the rows of an answer are what they are alone."""
    if [row.shape for row in rows] != [(1, *whole.shape[1:])] * len(whole):
        return False
    return is_equal(np.concatenate(rows), whole)


def is_equal(found, expected):
    if found.shape == expected.shape and found.dtype.kind == expected.dtype.kind == "f":
        return np.allclose(found, expected, rtol=1e-3, atol=1e-5, equal_nan=True)
    return np.array_equal(found, expected)


def take(data, rows):
    rows = list(rows)
    return {
        name: [values[row] for row in rows] if isinstance(values, list) else values[rows]
        for name, values in data.items()
    }


def rows_of(data):
    return len(next(iter(data.values())))


def typed(values, output=None):
    """Values as an array of numbers, or of bytes for everything else; each row of an output may be JSON."""
    values = values if isinstance(values, (list, tuple)) or np.ndim(values) else [values]
    array = np.empty(0, dtype=object)
    if output is None or output.form != "documents":
        try:
            array = np.asarray(values)
            if array.dtype == object and len(array) and isinstance(array.flat[0], (list, np.ndarray)):
                array = np.array([np.asarray(row) for row in array])
        except ValueError:  # rows of different lengths
            if output is None:
                raise
            output.form, output.shape = "documents", [-1]
    if array.dtype.name in DATATYPES:
        return array
    return to_array(values if isinstance(values, np.ndarray) else list(values), "TYPE_STRING")


def sample(model, data, batched):
    """An example as a sample; None if a value is missing that a request must have."""
    entry, values = {}, dict(model.params, **data)
    for one in model.inputs:
        value = values.get(one.name)
        if value is None and one.is_optional:
            continue
        if value is None or (one.datatype == "STRING" and any(map(is_missing, np.asarray(value, object).flat))):
            return None
        if (one.is_parameter and not one.shape) or one.form == "picture":
            value = [png(value) if one.form == "picture" else value]
        if one.form == "documents":
            value = [json.dumps(each, default=lambda part: part.tolist()) for each in value]
        array = typed(value)
        entry[one.name] = content(array if one.datatype == "STRING" else in_type(array, one), one, batched)
    return entry


def content(values, one, batched):
    """A tensor as it is written into a file of samples."""
    if values.dtype == object:
        try:
            written = [item.decode() for item in values.flat]
        except UnicodeDecodeError:
            lengths = b"".join(len(item).to_bytes(4, "little") + item for item in values.flat)
            written = {"b64_with_lengths": base64.b64encode(lengths).decode()}
    else:
        small = values.size <= _MOST_LISTED and np.isfinite(values).all()
        written = values.ravel().tolist() if small else {"b64": base64.b64encode(values.tobytes()).decode()}
    has_rows = batched and not one.is_parameter
    return {"content": written, "shape": list(values.shape[has_rows:])} if one.dims(batched).count(-1) > 1 else written


class StepError(Exception):
    """A step that failed: which, and why."""


def step(what, do, *arguments):
    try:
        return do(*arguments)
    except StepError:
        raise
    except BaseException as error:  # whatever a model raises
        traceback.print_exc()
        raise StepError(what, f"{type(error).__name__}: {error}") from error


def main():
    facts = json.loads(Path(sys.argv[1]).read_text())
    sys.path[:] = [facts["folder"], *(path for path in sys.path if path != HERE)]
    for name in ("forms", "libraries", "served"):  # the model may have modules with these names
        del sys.modules[name]
    try:
        report = step("be served", report_of, facts)
    except StepError as error:
        report = {"step": error.args[0], "error": error.args[1]}
    Path(sys.argv[2]).write_text(json.dumps(report))


if __name__ == "__main__":
    main()
