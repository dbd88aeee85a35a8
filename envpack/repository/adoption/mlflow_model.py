"""Reads an MLflow model: a folder with the file MLmodel."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from envpack.repository.adoption.artifact import OTHER_MODELS, Artifact, Files, bad_artifact, python_env
from envpack.requirements.format import read_requirements
from envpack.requirements.model import Requirements
from envpack.support.bounded_reading import read_text
from envpack.support.redaction import public_url
from envpack.support.tables import Location, Table, parse_yaml, quote

MLMODEL = "MLmodel"
_MOST = 16 << 20  # bytes
_COPY = "model"  # the folder's name in the version folder
_FILES = ("model_path", "data", "python_model", "model_code_path", "code")  # keys that name files of the folder
_SIGNATURE = (
    "add one: mlflow.models.set_signature(FOLDER, mlflow.models.infer_signature(X, model.predict(X))),"
    " or signature=… and input_example=X[:5] where the model is logged"
)


def read_mlflow_model(folder: Path) -> Artifact:
    """Read what the files of an MLflow model say of it; nothing is loaded."""
    content = _content(folder / MLMODEL)
    flavors, signature = content.table("flavors"), content.table("signature")
    flavor, has_example = flavors.table("python_function"), "saved_input_example_info" in content
    if not flavor.values:
        what = "the model has no flavor python_function, which is the one that is served"
        raise content.get("flavors")[1].error(what, hint="log it with a flavor of MLflow that has one, such as pyfunc")
    for name, location in _named_files(flavor):
        if not Path(os.path.normpath(folder / name)).is_relative_to(folder):
            fix = "write the model again with MLflow, which puts all its files there"
            raise location.error(f"it names {quote(name)}, which lies outside of the folder", hint=fix)
        if not (folder / name).exists():
            fix = "copy the whole folder, or fetch it again from where it was logged"
            raise location.error(f"it names {quote(name)}, which the folder does not have", hint=fix)
    if not signature.text("inputs", ""):
        hint, pickled = _SIGNATURE, flavors.table("sklearn").text("pickled_model", "")
        if pickled and not pickled.endswith(".skops"):  # which is no pickle
            hint += f"; or serve its scikit-learn model, whose inputs are numbers: --from {folder / pickled}"
        what = "the model has no signature that names its inputs"
        raise content.get("signature")[1].error(what, hint=hint)
    if not (signature.text("outputs", "") or has_example):
        what = "the signature names no outputs, and there is no example to ask the model for them"
        raise content.get("signature")[1].error(what, hint=_SIGNATURE)
    note = "the model has no input_example: verify sends generated inputs, and compares no answers"
    names = [name for name in flavors.values if name != "python_function"] or ["pyfunc"]
    return Artifact(
        kind="mlflow",
        title=f"MLflow model, flavor {' and '.join(names)}",
        source=folder,
        files={_COPY: folder},
        requirements=_requirements(folder, flavor),
        details={
            "has_example": has_example,
            "is_hinted": content.text("is_signature_from_type_hint", "") == "true",
        },
        notes=() if has_example else (note,),
    )


def _content(file: Path) -> Table:
    if not file.is_file():
        fix = f"name the folder that MLflow wrote; {OTHER_MODELS}"
        raise bad_artifact(f"this folder has no file {MLMODEL}", fix, file.parent)
    try:
        return parse_yaml(read_text(file, most=_MOST), file, kind="bad-artifact")
    except (OSError, ValueError) as error:
        raise bad_artifact(f"it cannot be read: {error}", "write the model again with MLflow", file) from error


def _named_files(flavor: Table) -> Iterator[tuple[str, Location]]:
    artifacts, _ = flavor.get("artifacts")
    entries = artifacts.values.values() if isinstance(artifacts, Table) else ()
    tables = [(entry, "path") for entry, _ in entries if isinstance(entry, Table)]
    for table, key in [*((flavor, key) for key in _FILES), *tables]:
        value, location = table.get(key)
        if isinstance(value, str):  # of the path of code, which is as it was where it was logged, MLflow takes the name
            yield Path(value).name if key == "model_code_path" else value, location


def _requirements(folder: Path, flavor: Table) -> Files:
    """The model's requirements: conda's packages by conda.yaml, all others by python_env.yaml."""
    conda = _read(folder / "conda.yaml")
    if conda and conda.conda:
        return {"conda.yaml": folder / "conda.yaml"}
    listed = _read(folder / "requirements.txt")
    found = _read(folder / "python_env.yaml") or conda or listed
    if found is None:
        fix = "write its packages into requirements.txt there, one on a line, such as scikit-learn==1.5.2"
        raise bad_artifact("the folder has neither python_env.yaml, conda.yaml nor requirements.txt", fix, folder)
    python = found.python or ".".join(flavor.text("python_version", "").split(".")[:2])
    if listed and set(listed.pip) <= set(found.pip):
        others = (line for line in found.pip if line not in listed.pip)
        return python_env(python, (f"-r 1/{_COPY}/requirements.txt", *others))
    return python_env(python, (*map(public_url, found.pip_options), *found.pip))  # variables have their values there


def _read(file: Path) -> Requirements | None:
    return read_requirements(file, python=lambda _: "") if file.is_file() else None
