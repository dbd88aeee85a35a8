"""Writes the folder of a model: its files, its requirements, config.pbtxt, model.py and samples."""

from __future__ import annotations

import ast
import json
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from envpack.repository.adoption.answers import Answers, Tensor
from envpack.repository.adoption.artifact import Artifact, bad_artifact
from envpack.support.errors import storage_errors
from envpack.support.folders import real_path
from envpack.support.placed_files import CONFIG_NAME
from envpack.support.tables import quote

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


_LARGEST_BATCH = 64
_FLAT = ("numbers", "texts", "plain_texts")  # forms of tensors that have rows and no other dimension
_IGNORED = shutil.ignore_patterns("__pycache__", ".git")


def write_artifact(artifact: Artifact, folder: Path) -> None:
    for below, contents in ((folder / "1", artifact.files), (folder, artifact.requirements)):
        for name, content in contents.items():
            _check_name(name, content, artifact)
            target = below / name
            target.parent.mkdir(parents=True, exist_ok=True)
            if isinstance(content, str):
                target.write_text(content, encoding="utf-8")
            elif content.is_dir():
                _copy_folder(content, target)
            else:
                shutil.copyfile(content, target)
    (folder / "1" / "model.py").touch()
    (folder / CONFIG_NAME).write_text('backend: "python"\n', encoding="utf-8")


def _check_name(name: str, content: str | Path, artifact: Artifact) -> None:
    """Refuse a name outside of the model's folder, or of its own module: the artifact's writer has chosen it."""
    path = Path(name)
    if path.is_absolute() or ".." in path.parts or not path.parts:
        what = f"it names {quote(name)}, which lies outside of its folder"
        raise bad_artifact(what, "write the artifact again, with all files in one folder", artifact.source)
    is_folder = isinstance(content, Path) and content.is_dir()
    is_package = is_folder and (content != artifact.source or Path(content, "__init__.py").exists())
    if name == "model.py" or (name == "model" and is_package):
        raise bad_artifact("the model.py that envpack writes has the same name", "give it another name", str(content))


def _copy_folder(source: Path, target: Path) -> None:
    for path in source.rglob("*"):
        _check_link(path, source)
    try:
        with storage_errors(target):
            shutil.copytree(source, target, ignore=_IGNORED)
    except shutil.Error as error:  # a list of what could not be copied
        first, _, reason = error.args[0][0]
        raise bad_artifact(f"it cannot be copied: {reason}", "remove it, or make it readable", first) from error


def _check_link(path: Path, source: Path) -> None:
    """Refuse a link out of the artifact, by which its writer would choose what is copied, or to a folder around it."""
    place, real = real_path(path.parent), real_path(path)
    if path.is_symlink() and (place.is_relative_to(real) or not real.is_relative_to(real_path(source))):
        what = f"it is a link to {path.readlink()}, which is not a part of the artifact"
        raise bad_artifact(what, "put a copy in its place, or remove it", path)


def write_served(artifact: Artifact, answers: Answers, folder: Path) -> None:
    if artifact.platform:
        for name in ("1/model.py", *artifact.requirements):  # it is served without Python
            (folder / name).unlink()
    else:
        (folder / "1" / "model.py").write_text(model_code(artifact, answers), encoding="utf-8")
    (folder / CONFIG_NAME).write_text("\n".join(_configuration(artifact, answers)) + "\n", encoding="utf-8")
    if answers.data:
        samples: dict[str, Any] = {"data": answers.data}
        if answers.validation_data:
            samples["validation_data"] = answers.validation_data
        if any(tensor.datatype in ("FP16", "FP32") for tensor in answers.outputs):
            samples["envpack"] = {"rtol": 1e-3, "atol": 1e-5}  # they differ with the rows that are computed at once
        (folder / "envpack").mkdir(exist_ok=True)  # the requirements may include a file of this folder
        text = json.dumps(samples, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
        (folder / "envpack" / "smoke.json").write_text(text, encoding="utf-8")


def _configuration(artifact: Artifact, answers: Answers) -> Iterator[str]:
    yield f"# {artifact.title}"
    yield f'platform: "{artifact.platform}"' if artifact.platform else 'backend: "python"'
    if answers.is_batched:
        yield f"max_batch_size: {_LARGEST_BATCH}"
    if answers.rows_are_independent:
        yield "dynamic_batching { }"
    flat_forms = _FLAT if artifact.platform and answers.is_batched else ()
    for field, tensors in (("input", answers.inputs), ("output", answers.outputs)):
        lines = [_tensor(one, is_flat=one.form in flat_forms) for one in tensors]
        yield from ("", f"{field} [", ",\n".join(lines), "]")


def _tensor(tensor: Tensor, *, is_flat: bool) -> str:
    from google.protobuf.text_encoding import CEscape

    name, dims = CEscape(tensor.name.encode(), as_utf8=True), ", ".join(map(str, tensor.dims))
    optional = ", optional: true" if tensor.is_optional else ""
    reshaped = ", reshape { shape: [ ] }" if is_flat else ""
    return f'  {{ name: "{name}", data_type: TYPE_{tensor.datatype}, dims: [ {dims} ]{reshaped}{optional} }}'
