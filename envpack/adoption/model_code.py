"""The text of the model.py that serves an artifact."""

from __future__ import annotations

import ast
import json
from collections.abc import Iterable
from pathlib import Path

from envpack.adoption.answers import Answers, Tensor
from envpack.adoption.artifact import Artifact

_CODE = Path(__file__).with_name("code")
_WIDEST = 100  # characters of a literal on one line
_LOAD, _PREDICT = ["", "", "def load(folder):"], ["", "", "def predict(model, inputs):"]
_VALUES = "{name: read(inputs[name]) for name, read in INPUTS.items() if name in inputs}"


def model_code(artifact: Artifact, answers: Answers) -> str:
    """A module of four parts: its imports, the functions that it needs of `code/forms.py`, what this model is, and the
    class that is the same for all.

    The libraries are imported in functions, since a server imports the module twice, the first time for nothing else
    than a look at its configuration.
    """
    write = {"mlflow": _mlflow, "sklearn": _estimator, "onnx": _onnx, "function": _function}[artifact.kind]
    own = "\n".join(write(artifact, answers))
    _, _, served = (_CODE / "served.py").read_text(encoding="utf-8").partition('"""\n\n')
    imports, _, served = served.partition("\n\n\n")
    head = f'"""Serves the {artifact.title}. Written by envpack init; it is yours to change."""\n\n{imports}'
    return "\n\n\n".join([head, *_functions(own), own, served])


def _functions(code: str) -> list[str]:
    """The functions of `code/forms.py` that some code names."""
    text = (_CODE / "forms.py").read_text(encoding="utf-8")
    nodes = [node for node in ast.parse(text).body if isinstance(node, ast.FunctionDef)]
    names = {node.id for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Name)}
    return [ast.get_source_segment(text, node) or "" for node in nodes if node.name in names]


def _table(name: str, tensors: Iterable[Tensor]) -> str:
    """A constant: how each input is read."""
    entries = [f"{_quoted(tensor.name)}: {tensor.form}" for tensor in tensors]
    line = f"{name} = {{{', '.join(entries)}}}"
    return line if len(line) <= _WIDEST else "\n".join([f"{name} = {{", *(f"    {entry}," for entry in entries), "}"])


def _quoted(value: str | list[str]) -> str:
    return json.dumps(value, ensure_ascii=False)  # which is a literal of Python, too


def _mlflow(_: Artifact, answers: Answers) -> list[str]:
    inputs = [tensor for tensor in answers.inputs if not tensor.is_parameter]
    parameters = [tensor for tensor in answers.inputs if tensor.is_parameter]
    only = f"values[{_quoted(inputs[0].name)}]"
    columns = f"pd.DataFrame(dict(zip({answers.details['columns']}, values.values())))"
    data = {"table": "pd.DataFrame(values)", "columns": columns}
    data |= {"list": f"list({only})", "array": only, "arrays": "values"}
    called = data[answers.details["call"]]
    value = "once(inputs[name])" if answers.is_batched else "inputs[name][np.newaxis]"
    lines = [_table("INPUTS", inputs), *([_table("PARAMETERS", parameters)] if parameters else [])]
    lines += [*_LOAD, "    import mlflow.pyfunc", "", '    return mlflow.pyfunc.load_model(str(folder / "model"))']
    lines += [*_PREDICT, *(["    import pandas as pd", ""] if "pd." in called else []), f"    values = {_VALUES}"]
    if parameters:
        lines += [f"    params = {{name: read({value})[0] for name, read in PARAMETERS.items() if name in inputs}}"]
        called += ", params=params"
    return [*lines, f"    return model.predict({called})"]


def _estimator(_: Artifact, answers: Answers) -> list[str]:
    rows = 'inputs["inputs"]' if answers.inputs[0].form == "array" else 'texts(inputs["inputs"])'
    lines = [*_LOAD[2:], "    import joblib", "", '    return joblib.load(folder / "model.joblib")', *_PREDICT]
    if answers.details["columns"]:
        lines += ["    import pandas as pd", ""]
        rows = f"pd.DataFrame({rows}, columns=model.feature_names_in_)"
    both = '{"predictions": model.predict(rows), "probabilities": model.predict_proba(rows)}'
    return [
        *lines,
        f"    rows = {rows}",
        f"    return {both if answers.details['has_probabilities'] else 'model.predict(rows)'}",
    ]


def _onnx(_: Artifact, answers: Answers) -> list[str]:
    lines = [_table("INPUTS", answers.inputs), f"OUTPUTS = {_quoted([tensor.name for tensor in answers.outputs])}"]
    lines += [*_LOAD, "    import onnxruntime", "", "    providers = onnxruntime.get_available_providers()"]
    lines += ['    return onnxruntime.InferenceSession(str(folder / "model.onnx"), providers=providers)']
    return [*lines, *_PREDICT, f"    answer = model.run(OUTPUTS, {_VALUES})", "    return dict(zip(OUTPUTS, answer))"]


def _function(artifact: Artifact, answers: Answers) -> list[str]:
    module, name = artifact.details["module"], artifact.details["function"]
    lines = [_table("INPUTS", answers.inputs), *_LOAD, f"    from {module} import {name}", "", f"    return {name}"]
    entries = []
    for number, one in enumerate(answers.outputs):
        part = f"answer[{number}]" if len(answers.outputs) > 1 else "answer"
        entries.append(f"{_quoted(one.name)}: {f'png({part})' if one.form == 'picture' else part}")
    return [*lines, *_PREDICT, f"    answer = model(**{_VALUES})", f"    return {{{', '.join(entries)}}}"]
