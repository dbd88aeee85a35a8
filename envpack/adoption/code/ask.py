"""Runs in the execution environment of a model: calls it on an example, and writes what it answers.

    python ask.py FACTS REPORT

The example goes to the model's own library, not through the model.py that serves it, so that each checks the other.
"""

import base64
import json
import sys
import traceback
import types
from pathlib import Path

import numpy as np

HERE = str(Path(__file__).parent)
sys.modules["triton_python_backend_utils"] = types.ModuleType("triton_python_backend_utils")  # served.py imports it
from libraries import DATATYPES, MOST_ROWS, ONNX, Estimator, Function, MLflow, Tensor, in_type, png
from served import is_missing, named, to_array

_MOST_LISTED = 256  # numbers; more are written in base64


def report_of(facts):
    """The report; `envpack.adoption.answers.Answers` describes it."""
    kind = {"mlflow": MLflow, "sklearn": Estimator, "onnx": ONNX, "function": Function}[facts["kind"]]
    model = step("be loaded", kind, facts)
    step("declare its tensors", model.declare)
    notes = []
    data = accepted(model, step("read its example", model.example), notes)
    tensors = [one for one in (*model.inputs, *model.outputs) if not one.is_parameter]
    batched = all(one.shape[:1] == [-1] for one in tensors)
    independent, answered = False, []
    if data is not None:
        data = take(data, range(min(rows_of(data), MOST_ROWS))) if batched else data
        independent, answered = answers_to(model, data, batched, notes)
        batched = independent
    samples = complete_samples(model, answered, batched, notes)
    return {
        "inputs": [one.report(batched) for one in model.inputs],
        "outputs": [one.report(batched) for one in model.outputs],
        "is_batched": batched,
        "rows_are_independent": independent,
        "data": [entry for entry, _ in samples],
        "validation_data": [
            {one.name: content(answer[one.name], one, batched) for one in model.outputs} for _, answer in samples
        ],
        "notes": notes,
        "details": model.details,
    }


def accepted(model, data, notes):
    """The example of a model; None if it has none, or refuses one that was made up."""
    if data is None or not model.may_refuse_example:
        return data
    try:
        model.predict(data)
    except (Exception, SystemExit) as error:  # of the user's own code, which may raise anything
        why = f"{type(error).__name__}: {error}"
        notes.append(f"it refuses a made-up example, so verify compares no answers; add samples: {why}")
        if isinstance(error, FileNotFoundError):
            notes.append("a file that the module reads is not copied with it: put it beside the module's copy")
        return None
    return data


def answers_to(model, data, batched, notes):
    """Whether the answers to rows do not depend on each other, and pairs of data and answer: for each row then.

    The outputs get the types and shapes that were answered.
    """
    answer = step("answer its example", model.predict, data)
    model.outputs = model.outputs or [Tensor(name, "", []) for name in names_of(answer)]
    whole = typed_outputs(model, answer)
    alone = one_by_one(model, data) if batched else None
    independent = alone is not None and all(is_same(whole[name], [one[name] for one in alone]) for name in whole)
    if batched and not independent:
        notes.append("the answer to a row depends on other rows, so max_batch_size is 0, and a request is a table")
    for one in model.outputs:
        array = whole[one.name]
        one.datatype = DATATYPES.get(array.dtype.name, "STRING")
        if one.shape and not is_fitting(array.shape, one.shape):
            found = f"{one.name} has the shape {list(array.shape)}"
            notes.append(f"{found}, and is declared as {one.shape}: config.pbtxt has what was answered")
            one.shape = []
        one.shape = one.shape or ([-1, *array.shape[1:]] if independent else [-1] * array.ndim)
    rows = range(rows_of(data)) if independent else ()
    return independent, [(take(data, [row]), alone[row]) for row in rows] or [(data, whole)]


def complete_samples(model, answered, batched, notes):
    """The samples that a request can have, each with its answer."""
    sent = [(sample(model, inputs, batched), answer) for inputs, answer in answered]
    kept = [(entry, answer) for entry, answer in sent if entry is not None]
    if len(kept) < len(sent):
        notes.append(f"{len(sent) - len(kept)} of {len(sent)} rows of the example lack a text, which no tensor can")
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
    return {name: typed(values) for name, values in named(answer, [one.name for one in model.outputs]).items()}


def one_by_one(model, data):
    """The answers to each row alone; None if a row alone is not answered, or twice otherwise than once."""
    try:
        alone = [typed_outputs(model, model.predict(take(data, [row]))) for row in range(rows_of(data))]
        if len(alone) == 1:
            twice = typed_outputs(model, model.predict(take(data, [0, 0])))
            return alone if all(is_same(values, [alone[0][name]] * 2) for name, values in twice.items()) else None
    except Exception:  # of the model, which may refuse a single row in any way; then requests are whole tables
        return None
    return alone


def is_same(whole, rows):
    """Whether the rows of an answer are what they are alone."""
    if len(whole) != len(rows) or any(len(row) != 1 for row in rows):
        return False
    if whole.dtype.kind == "f":
        return all(np.allclose(row[0], one, rtol=1e-3, atol=1e-5, equal_nan=True) for row, one in zip(rows, whole))
    return all(np.array_equal(row[0], one) for row, one in zip(rows, whole))


def take(data, rows):
    rows = list(rows)
    if isinstance(data, dict):
        return {name: take(values, rows) for name, values in data.items()}
    if hasattr(data, "iloc"):
        return data.iloc[rows].reset_index(drop=True)
    return [data[row] for row in rows] if isinstance(data, list) else data[rows]


def rows_of(data):
    return len(next(iter(data.values())) if isinstance(data, dict) else data)


def typed(values):
    """Values as an array of numbers, or of bytes for everything else."""
    values = [values] if np.ndim(values) == 0 else values
    array = np.asarray(values)
    if array.dtype == object and len(array) and isinstance(array.flat[0], (list, np.ndarray)):
        array = np.array([np.asarray(row) for row in array])
    if array.dtype.name in DATATYPES:
        return array
    return to_array(values if isinstance(values, np.ndarray) else list(values), "TYPE_STRING")


def sample(model, data, batched):
    """An example as a sample; None if a value is missing that a request must have."""
    entry, values = {}, dict(model.params)
    names = [one.name for one in model.inputs if not one.is_parameter]
    if isinstance(data, dict) or hasattr(data, "columns"):
        keys = names if set(names) & set(data) else list(data)
        values.update({name: data[key] for name, key in zip(names, keys) if key in data})
    else:
        values[names[0]] = data
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
    for name in ("libraries", "served"):  # the model may have modules with these names
        del sys.modules[name]
    try:
        report = step("be served", report_of, facts)
    except StepError as error:
        report = {"step": error.args[0], "error": error.args[1]}
    Path(sys.argv[2]).write_text(json.dumps(report))


if __name__ == "__main__":
    main()
