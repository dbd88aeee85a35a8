"""What a model answers in its own execution environment."""

from __future__ import annotations

import contextlib
import json
import re
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from packaging.requirements import InvalidRequirement, Requirement

from envpack.repository.adoption.artifact import IN_A_PACKAGE, Artifact, bad_artifact
from envpack.requirements.import_names import NAMESPACES, package_of
from envpack.support.bounded_reading import read_json
from envpack.support.errors import InputError
from envpack.support.processes import bare_environment, ended_by_limit, how_ended, run
from envpack.support.text import enumerated, one_line, printable_line

# Steps of `code/ask.py`.
_DECLARE, _ANSWER = "declare its tensors", "answer its example"
_PROGRAM = Path(__file__).with_name("code") / "ask.py"
_LOG = "log the model with MLflow, with a signature"
_EXPORT = "export it with tensors of numbers or text alone; a classifier of scikit-learn with zipmap=False"
# What to do if the model lacks a module, if its tensors cannot be declared, and if it fails otherwise.
_LACKS_MODULE = {"mlflow": "log the model again with code_paths=[…] or pip_requirements=[…]"}
_OWN_MODULE = "put the module beside it, or the package into a requirements.txt there"
# Of a package that is there.
_PART = re.compile(r"ModuleNotFoundError: No module named '(?P<name>(?P<of>\w+)\.[\w.]+)'")
_UNDECLARED = {
    "sklearn": IN_A_PACKAGE,  # which has no `predict`, such as a transformer or a dict
    "onnx": _EXPORT,
    "function": "annotate with str, bytes, int, float, bool, list[str], PIL.Image.Image, or with an array's type and"
    " shape: Annotated[np.ndarray, np.float32, (-1, 4)]",
}
_FAILED = {
    "mlflow": "try it there: mlflow models predict; and log it again once that works",
    "sklearn": f"write the file again with the versions that load it, or {_LOG}",
    "onnx": "onnx.checker.check_model says what is wrong with a file",
    "function": "correct the module until it can be imported in an empty folder, with the packages that it requires; a"
    " file that it reads is copied with a package alone: make it MODULE/__init__.py, with the file beside it, and open"
    " that by Path(__file__)",
}
# What to do about what NumPy, or ONNX Runtime, says of a file that is not damaged.
_OF_LIBRARIES = {
    r"numpy\.dtype size changed|numpy\.core\.multiarray failed to import|_ARRAY_API not found": "its packages need"
    " NumPy 1: add numpy<2 to each of its files that lists them: requirements.txt, python_env.yaml, conda.yaml",
    r"Unsupported model IR version|Current official support for domain": "export it with an older opset;"
    " or name a newer Python, which may have a newer ONNX Runtime: --python 3.12",
    r"Failed to construct locale": "Triton's images have no such locale either:"
    " with skl2onnx, give each text vectorizer the option {'locale': 'C'}",
}
# Where in its own source ONNX Runtime has failed, and the copy that it was given.
_PLACE_IN_RUNTIME = re.compile(r"Load model from .{1,4000}? failed:|/onnxruntime_src/\S+ .{1,4000}?\)(?:::\S+)? ")


@dataclass(frozen=True)
class Tensor:
    """An input or output of a model."""

    name: str  # of the tensor
    datatype: str  # as in config.pbtxt, without ``TYPE_``
    dims: list[int]  # as in config.pbtxt
    form: str  # the function of ``code/forms.py`` that makes the model's value of it
    is_optional: bool  # whether a request may leave it out
    is_parameter: bool  # whether all rows of a request share it


@dataclass(frozen=True, kw_only=True)
class Answers:
    """The tensors of a model, and samples with the answers that it gave."""

    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    is_batched: bool  # whether a request has rows
    rows_are_independent: bool  # whether the answer to a row was the same alone and among rows that differ
    data: list[dict[str, Any]]  # inputs of samples, as in a file of samples
    validation_data: list[dict[str, Any]]  # their outputs
    notes: list[str]  # what the user should know
    details: Mapping[str, Any]  # more for `model_code`


def ask(artifact: Artifact, version_folder: Path, python: Path, timeout: int) -> Answers:
    """Call a model once, by the interpreter of its environment, with a copy of its files in the version folder."""
    with tempfile.TemporaryDirectory(prefix="envpack-ask-") as folder:
        facts, report = Path(folder) / "facts.json", Path(folder) / "report.json"
        facts.write_text(json.dumps({"kind": artifact.kind, "folder": str(version_folder), **artifact.details}))
        variables = bare_environment() | {"HOME": folder, "TMPDIR": folder}
        try:
            done = run([python, "-B", _PROGRAM, facts, report], env=variables, cwd=Path(folder), timeout=timeout)
        except subprocess.TimeoutExpired:
            fix = "give it more time: timeout = 600 in the envpack.toml of the repository"
            raise bad_artifact(f"the model did not answer within {timeout} s", fix, artifact.source) from None
        try:
            found = read_json(report)
        except (OSError, ValueError):
            if ended := ended_by_limit(done.returncode):
                raise ended from None
            last = "".join(f": {line}" for line in done.stderr.strip().splitlines()[-1:])
            found = {"step": "answer", "error": f"its process ended {how_ended(done.returncode)}{last}"}
    try:
        return answers_of(artifact, found, done.stderr)
    except InputError as error:
        error.hint = _unmet(artifact, python.parents[1]) or error.hint
        raise


def _unmet(artifact: Artifact, prefix: Path) -> str:
    """What to do if the environment has other versions than those that the file was written with."""
    unmet, needs = [], list[Requirement]()
    with contextlib.suppress(InvalidRequirement):  # the file may name any text as a version
        needs += map(Requirement, artifact.details.get("needs", ()))
    for needed in needs:
        name = needed.name.replace("-", "_")
        found = next(prefix.glob(f"lib/python3*/site-packages/{name}-*.dist-info"), Path())
        version = found.stem.partition("-")[2]
        if version and not needed.specifier.contains(version):
            unmet.append(f"{needed} in place of {version}")
    return f"require {enumerated(unmet)}, as the file was written with; or write it again" if unmet else ""


def answers_of(artifact: Artifact, report: dict[str, Any], details: str) -> Answers:
    from cattrs import BaseValidationError, Converter

    if isinstance(report, dict) and {"step", "error"} <= report.keys():
        raise _unusable(artifact, str(report["step"]), str(report["error"]), details)
    try:
        return Converter(forbid_extra_keys=True).structure(report, Answers)
    except (BaseValidationError, ValueError, TypeError) as error:
        raise _unusable(artifact, "be served", f"its process wrote no report: {error}", details) from error


def _unusable(artifact: Artifact, step: str, reason: str, details: str) -> InputError:
    cause = printable_line(one_line(_PLACE_IN_RUNTIME.sub("", reason)))
    what = f"the model cannot {printable_line(step)} in its own environment: {cause}"
    fix, own = _FAILED[artifact.kind], {Path(name).stem for name in artifact.files}
    if known := [fix for said, fix in _OF_LIBRARIES.items() if re.search(said, reason)]:
        fix = known[0]
    elif step == _DECLARE:
        fix = _UNDECLARED.get(artifact.kind, fix)
    elif step == _ANSWER and artifact.kind == "sklearn":
        fix = _LOG  # only its author knows which inputs it accepts
    elif (part := _PART.match(reason)) and part["of"] not in {*NAMESPACES, *own}:
        fix = f"require a version of {package_of(part['of'])} that has {part['name']}, such as the one that wrote it"
    elif reason.startswith(("ModuleNotFoundError", "ImportError", "AttributeError: Can't get attribute")):
        fix = _LACKS_MODULE.get(artifact.kind, _OWN_MODULE)
    error = bad_artifact(what, fix, artifact.source)
    error.details = details
    return error
