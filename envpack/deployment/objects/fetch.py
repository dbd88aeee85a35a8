"""Copies or checks a published repository, and refuses what is not as it was published or signed."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from envpack.archive import sha256_of
from envpack.deployment.objects.record import RECORD, STATEMENT, PublicationRecord
from envpack.deployment.signing import PublicKey, Subjects, parse_subjects, signature_invalid, verify_statement
from envpack.store import ObjectInfo, Objects
from envpack.support.bounded_reading import read_bytes
from envpack.support.errors import InputError
from envpack.support.failures import storage_errors
from envpack.support.progress import Progress

_PIECE = 4 << 20  # bytes
_MOST_STATEMENT = 64 << 20  # bytes
_PUBLISH_AGAIN = "publish again; with --force if another program writes there"


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
            raise _changed(f"{path} is missing", str(objects.location), _PUBLISH_AGAIN)
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
            raise _changed(f"{path} is not what was published", str(objects.location), _PUBLISH_AGAIN)


def _signed(objects: Objects, present: Iterable[str], key: PublicKey) -> dict[str, str]:
    """The digests of all files of all models, by their signed statements."""
    expected: dict[str, str] = {}
    for model in sorted({path.split("/")[0] for path in present if "/" in path}):
        where = f"{objects.location}/{model}"
        found = objects.read(f"{model}/{STATEMENT}", _MOST_STATEMENT)
        expected |= _subjects(found[0] if found else None, model, key, where)
    return expected


def _subjects(envelope: bytes | None, model: str, key: PublicKey, where: str) -> Subjects:
    """The digests of the files of a model, by its signed statement."""
    if envelope is None:
        raise signature_invalid(where, "the model has none", key)
    try:
        subjects = parse_subjects(verify_statement(envelope, key, where))
    except ValueError as error:
        raise signature_invalid(where, str(error), key) from error
    if not all(name.startswith(f"{model}/") for name in subjects):
        raise signature_invalid(where, "it is that of another model", key)
    return subjects


def _refuse_others(objects: Objects, present: Mapping[str, ObjectInfo], expected: Mapping[str, str]) -> None:
    """Refuse files that were not published in folders that were: a server may load them."""
    models = {path.split("/")[0] for path in expected}
    for path in present:
        if path.split("/")[0] in models and path not in expected and not path.endswith(f"/{STATEMENT}"):
            raise _changed(f"{path} was not published", str(objects.location), _PUBLISH_AGAIN)


def _inside(folder: Path, path: str, objects: Objects) -> Path:
    """A path below a folder for an object; its folder is made."""
    if any(part in ("", ".", "..") for part in path.split("/")):
        raise objects.corrupt(path, "its name leads to another folder")
    file = folder / path
    file.parent.mkdir(parents=True, exist_ok=True)
    return file


def _changed(reason: str, where: str, hint: str) -> InputError:
    return InputError(reason, kind="published-changed", where=where, hint=hint)


_DOWNLOAD_AGAIN = "download the model again, and nothing else into it"


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
    envelope = model / STATEMENT
    content = read_bytes(envelope, most=_MOST_STATEMENT) if envelope.is_file() else None
    subjects = _subjects(content, model.name, key, str(model))
    found = {f"{model.name}/{file.relative_to(model)}": file for file in _files(path)}
    found.pop(f"{model.name}/{STATEMENT}", None)
    for name, file in found.items():
        if name not in subjects:
            raise _changed(f"{name} was not published", str(model), _DOWNLOAD_AGAIN)
        if sha256_of(file) != subjects[name]:
            raise _changed(f"{name} is not what was published", str(model), _DOWNLOAD_AGAIN)
    missing = sorted(subjects.keys() - found.keys()) if path == model else []
    if missing:
        raise _changed(f"{missing[0]} is missing", str(model), _DOWNLOAD_AGAIN)
    return len(found)


def _files(path: Path) -> Iterator[Path]:
    if path.is_dir():
        yield from (file for file in sorted(path.rglob("*")) if not file.is_dir())
    else:
        yield path
