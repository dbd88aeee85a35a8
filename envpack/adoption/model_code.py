"""The text of the model.py that serves an artifact."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable
from pathlib import Path

from envpack.adoption.answers import Answers, Tensor
from envpack.adoption.artifact import Artifact

_CODE = Path(__file__).with_name("code")
# What some names in the code are imported by; NumPy, JSON and paths are always used.
_IMPORTS = {"io": "import io", "pd": "import pandas as pd", "Image": "from PIL import Image"}
_OURS = {"import io", "import json", "from pathlib import Path"}
_WIDEST = 100  # characters of a literal on one line
_VALUES = "{name: read(inputs[name]) for name, read in INPUTS.items() if name in inputs}"


def model_code(artifact: Artifact, answers: Answers) -> str:
    """A module of three parts: what this model is, the functions that it needs of `code/forms.py`, `code/served.py`."""
    write = {"mlflow": _mlflow, "sklearn": _estimator, "onnx": _onnx, "function": _function}[artifact.kind]
    library, lines = write(artifact, answers)
    served = (_CODE / "served.py").read_text(encoding="utf-8")
    served = served[served.index("class TritonPythonModel") :]
    own = "\n".join(lines)
    forms = _functions(own)
    used = {line for name, line in _IMPORTS.items() if re.search(rf"\b{name}\.", "\n".join([own, *forms]))}
    ours = _OURS & {*used, "import json", "from pathlib import Path"}
    theirs = {library, "import numpy as np", "import triton_python_backend_utils as pb_utils", *used} - ours
    head = f'"""Serves the {artifact.title}. Written by envpack init; it is yours to change."""'
    return "\n\n".join([head, _sorted(ours), _sorted(theirs) + "\n", *(f"{part}\n" for part in (*forms, own)), served])


def _sorted(imports: Iterable[str]) -> str:
    return "\n".join(sorted(imports, key=lambda line: (line.startswith("from"), line)))


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


def _quoted(text: str) -> str:
    return f'"{text}"' if text.isidentifier() else repr(text)


def _names(tensors: Iterable[Tensor]) -> str:
    return f"[{', '.join(_quoted(tensor.name) for tensor in tensors)}]"


def _mlflow(_: Artifact, answers: Answers) -> tuple[str, list[str]]:
    inputs = [tensor for tensor in answers.inputs if not tensor.is_parameter]
    parameters = [tensor for tensor in answers.inputs if tensor.is_parameter]
    only = f"values[{_quoted(inputs[0].name)}]"
    data = {"table": "pd.DataFrame(values)", "columns": "pd.DataFrame(dict(enumerate(values.values())))"}
    data |= {"list": f"list({only})", "array": only, "arrays": "values"}
    called = data[answers.details["call"]]
    value = "once(inputs[name])" if answers.is_batched else "inputs[name][np.newaxis]"
    lines = [_table("INPUTS", inputs), *([_table("PARAMETERS", parameters)] if parameters else [])]
    lines += ["", "", "def load(folder):", '    return mlflow.pyfunc.load_model(str(folder / "model"))']
    lines += ["", "", "def predict(model, inputs):", f"    values = {_VALUES}"]
    if parameters:
        lines += [f"    params = {{name: read({value})[0] for name, read in PARAMETERS.items() if name in inputs}}"]
        called += ", params=params"
    return "import mlflow.pyfunc", [*lines, f"    return model.predict({called})"]


def _estimator(_: Artifact, answers: Answers) -> tuple[str, list[str]]:
    rows = 'inputs["inputs"]' if answers.inputs[0].form == "array" else 'texts(inputs["inputs"])'
    rows = f"pd.DataFrame({rows}, columns=model.feature_names_in_)" if answers.details["columns"] else rows
    both = '    return {"predictions": model.predict(rows), "probabilities": model.predict_proba(rows)}'
    answer = both if answers.details["has_probabilities"] else "    return model.predict(rows)"
    load = ["def load(folder):", '    return joblib.load(folder / "model.joblib")', "", ""]
    return "import joblib", [*load, "def predict(model, inputs):", f"    rows = {rows}", answer]


def _onnx(_: Artifact, answers: Answers) -> tuple[str, list[str]]:
    lines = [_table("INPUTS", answers.inputs), f"OUTPUTS = {_names(answers.outputs)}", "", "", "def load(folder):"]
    lines += ["    providers = onnxruntime.get_available_providers()"]
    lines += ['    return onnxruntime.InferenceSession(str(folder / "model.onnx"), providers=providers)', "", ""]
    lines += ["def predict(session, inputs):", f"    values = {_VALUES}"]
    return "import onnxruntime", [*lines, "    return dict(zip(OUTPUTS, session.run(OUTPUTS, values)))"]


def _function(artifact: Artifact, answers: Answers) -> tuple[str, list[str]]:
    module, name = artifact.details["module"], artifact.details["function"]
    lines = [_table("INPUTS", answers.inputs), "", "", "def load(folder):", "    return user_function", "", ""]
    lines += ["def predict(function, inputs):", f"    answer = function(**{_VALUES})"]
    parts = [f"answer[{number}]" for number in range(len(answers.outputs))] if len(answers.outputs) > 1 else ["answer"]
    parts = [
        f"png({part})" if one.form == "picture" else part for part, one in zip(parts, answers.outputs, strict=True)
    ]
    entries = [f"{_quoted(one.name)}: {part}" for part, one in zip(parts, answers.outputs, strict=True)]
    return f"from {module} import {name} as user_function", [*lines, f"    return {{{', '.join(entries)}}}"]
