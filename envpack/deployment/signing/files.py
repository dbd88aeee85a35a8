"""Compares downloaded models, or files of them, with the signed statements that lie in their folders."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from envpack.archive import sha256_of
from envpack.deployment.objects.record import STATEMENT
from envpack.deployment.signing.envelope import signature_invalid, verify_statement
from envpack.deployment.signing.keys import PublicKey
from envpack.deployment.signing.statement import Subjects, parse_subjects
from envpack.support.bounded_reading import read_bytes
from envpack.support.errors import InputError

_MOST_STATEMENT = 64 << 20  # bytes


def check_signed(path: Path, key: PublicKey) -> int:
    """Check that everything at a path is as it was published and signed.

    Args:
        path: a folder of published models, the folder of one, or a file or folder in that.
        key: who must have signed.

    Returns:
        How many files were compared.

    Raises:
        InputError: kind ``signature-invalid``: a model has no statement, or one that was altered or signed by another
            key; kind ``published-changed``: a file is missing, differs, or was not published.
        OSError: a file cannot be read.
    """
    path = path.absolute()
    model = next((folder for folder in (path, *path.parents) if (folder / STATEMENT).is_file()), None)
    if model is not None:
        return _check(model, path, key)
    folders = sorted(entry for entry in path.iterdir() if entry.is_dir()) if path.is_dir() else []
    if not folders:
        raise signature_invalid(str(path), "no folder above it has a statement", key)
    return sum(_check(folder, folder, key) for folder in folders)


def _check(model: Path, path: Path, key: PublicKey) -> int:
    """Compare the files at a path in a model's folder with its statement; of the whole folder, none may be missing."""
    subjects = _subjects(model, key)
    found = {f"{model.name}/{file.relative_to(model)}": file for file in _files(path)}
    found.pop(f"{model.name}/{STATEMENT}", None)
    for name, file in found.items():
        if name not in subjects:
            raise _changed(f"{name} was not published", model)
        if sha256_of(file) != subjects[name]:
            raise _changed(f"{name} is not what was published", model)
    missing = sorted(subjects.keys() - found.keys()) if path == model else []
    if missing:
        raise _changed(f"{missing[0]} is missing", model)
    return len(found)


def _subjects(model: Path, key: PublicKey) -> Subjects:
    try:
        content = read_bytes(model / STATEMENT, most=_MOST_STATEMENT)
    except FileNotFoundError:
        raise signature_invalid(str(model), "the model has none", key) from None
    try:
        subjects = parse_subjects(verify_statement(content, key, str(model)))
    except ValueError as error:
        raise signature_invalid(str(model), str(error), key) from error
    if not all(name.startswith(f"{model.name}/") for name in subjects):
        raise signature_invalid(str(model), "it is that of another model", key)
    return subjects


def _files(path: Path) -> Iterator[Path]:
    if path.is_dir():
        yield from (file for file in sorted(path.rglob("*")) if not file.is_dir())
    else:
        yield path


def _changed(reason: str, model: Path) -> InputError:
    return InputError(
        reason, kind="published-changed", where=str(model), hint="download the model again, and nothing else into it"
    )
