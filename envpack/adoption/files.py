"""Writes the folder of a model: its files, its requirements, config.pbtxt, model.py and samples."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from envpack.adoption.answers import Answers, Tensor
from envpack.adoption.artifact import Artifact, bad_artifact
from envpack.adoption.model_code import model_code
from envpack.support.failures import storage_errors
from envpack.support.folders import real_path
from envpack.support.tables import quote

_LARGEST_BATCH = 64
_FLAT = ("numbers", "texts", "plain_texts")  # forms of tensors that have rows and no other dimension
_IGNORED = shutil.ignore_patterns("__pycache__", ".git")


def write_artifact(artifact: Artifact, folder: Path) -> None:
    """Copy an artifact and its requirements into a model's folder, which can be opened then."""
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
    (folder / "config.pbtxt").write_text('backend: "python"\n', encoding="utf-8")


def _check_name(name: str, content: str | Path, artifact: Artifact) -> None:
    """Refuse a name that leaves the model's folder, by which the artifact's writer would choose what is overwritten,
    and a module with the name of the model's own, which would be imported in its place or overwritten.
    """
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
    """Write what depends on the tensors of a model: config.pbtxt, model.py and samples."""
    if artifact.platform:
        for name in ("1/model.py", *artifact.requirements):  # it is served without Python
            (folder / name).unlink()
    else:
        (folder / "1" / "model.py").write_text(model_code(artifact, answers), encoding="utf-8")
    (folder / "config.pbtxt").write_text("\n".join(_configuration(artifact, answers)) + "\n", encoding="utf-8")
    if answers.data:
        samples: dict[str, Any] = {"data": answers.data, "validation_data": answers.validation_data}
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
