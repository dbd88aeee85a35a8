"""Copies a published repository, and refuses what is not as it was published or signed."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from pathlib import Path

from envpack.deployment.objects.record import RECORD, STATEMENT, PublicationRecord
from envpack.deployment.signing.envelope import signature_invalid, verify_statement
from envpack.deployment.signing.keys import PublicKey
from envpack.deployment.signing.statement import parse_subjects
from envpack.store import ObjectInfo, Objects
from envpack.support.errors import InputError
from envpack.support.failures import storage_errors
from envpack.support.progress import Progress

_PIECE = 4 << 20  # bytes
_MOST_STATEMENT = 64 << 20  # bytes


def copy_publication(objects: Objects, folder: Path, progress: Progress, *, key: PublicKey | None = None) -> None:
    """Copy a published repository to a folder. Each file is compared with the record of the publication.

    With a key, it is compared with signed statements instead, of which each model must have one. What is there without
    record, because another program put it there, is copied as it is, unless a key is given.
    """
    present = {info.path: info for info in objects.list() if info.path != RECORD}
    if key is not None:
        expected = _signed(objects, present, key)
    else:
        expected = {path: entry.sha256 for path, entry in PublicationRecord.read(objects).entries.items()}
    _refuse_others(objects, present, expected)
    wanted = expected or dict.fromkeys(present, "")
    total, done = sum(present[path].size for path in wanted if path in present), 0
    for path, sha256 in wanted.items():
        if path not in present:
            raise _changed(f"{path} is missing", objects)
        digest, size = hashlib.sha256(), present[path].size
        file = _inside(folder, path, objects)
        with storage_errors(file), file.open("wb") as content:
            for start in range(0, size, _PIECE):
                piece = objects.read_part(path, start, min(_PIECE, size - start), size)
                digest.update(piece)
                content.write(piece)
                done += len(piece)
                progress.advance(done, total, "bytes")
        if sha256 and digest.hexdigest() != sha256:
            raise _changed(f"{path} is not what was published", objects)


def _signed(objects: Objects, present: Iterable[str], key: PublicKey) -> dict[str, str]:
    """The digests of all files of all models, by their signed statements."""
    expected: dict[str, str] = {}
    for model in sorted({path.split("/")[0] for path in present if "/" in path}):
        where = f"{objects.location}/{model}"
        found = objects.read(f"{model}/{STATEMENT}", _MOST_STATEMENT)
        if found is None:
            raise signature_invalid(where, "the model has none", key)
        try:
            subjects = parse_subjects(verify_statement(found[0], key, where))
        except ValueError as error:
            raise signature_invalid(where, str(error), key) from error
        if not all(name.startswith(f"{model}/") for name in subjects):
            raise signature_invalid(where, "it is that of another model", key)
        expected |= subjects
    return expected


def _refuse_others(objects: Objects, present: Mapping[str, ObjectInfo], expected: Mapping[str, str]) -> None:
    """Refuse files that were not published in folders that were: a server may load them."""
    models = {path.split("/")[0] for path in expected}
    for path in present:
        if path.split("/")[0] in models and path not in expected and not path.endswith(f"/{STATEMENT}"):
            raise _changed(f"{path} was not published", objects)


def _inside(folder: Path, path: str, objects: Objects) -> Path:
    """A path below a folder for an object; its folder is made."""
    if any(part in ("", ".", "..") for part in path.split("/")):
        raise objects.corrupt(path, "its name leads to another folder")
    file = folder / path
    file.parent.mkdir(parents=True, exist_ok=True)
    return file


def _changed(reason: str, objects: Objects) -> InputError:
    return InputError(
        reason,
        kind="published-changed",
        where=str(objects.location),
        hint="publish again; with --force if another program writes there",
    )
