"""Copies a published repository, for a server or to a folder, or checks it; refuses what is not as it was published."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from envpack.archive.folder import locked_destination
from envpack.deployment.objects.content import content_digest
from envpack.deployment.objects.record import MOST_STATEMENT, STATEMENT, PublicationRecord
from envpack.deployment.signing import Statement, Trust, check_statement, signature_invalid
from envpack.store.location import Location, is_object_path
from envpack.store.objects import ObjectInfo, Objects
from envpack.support.bounded_reading import read_bytes, read_json, sha256_of
from envpack.support.errors import EnvpackError, InputError, UsageError, disk_full, storage_errors
from envpack.support.folders import real_path
from envpack.support.links_and_modes import FILE, FOLDER, PROGRAM
from envpack.support.placed_files import STUB_NAME
from envpack.support.pool import Pool, Report, transfer_all
from envpack.support.progress import Progress
from envpack.support.replacement import (
    remove_folder,
    remove_leftovers,
    replaced_folder,
    temporaries_of,
    write_text,
)
from envpack.support.temp_dirs import partial_folder, partial_folders

_AT_ONCE = 8  # requests
_SPARE = 64 << 20  # bytes of the disk that a copy leaves free
_PUBLISH_AGAIN = "publish again; with --force if another program writes there"
_SIGN_AGAIN = "publish again: with --sign if the statement is older, with --force if another program writes there"
_REMOVE = "remove it, or publish to an empty folder"
_DELETE = (
    "publish again: with --sign if the statement is older, with --delete if an earlier publication left it; "
    "otherwise remove it"
)


@dataclass(frozen=True)
class CopiedPublication:
    """A published repository in a folder."""

    files: int
    size: int
    compared: bool  # each file, with a signed statement or the record of the publication


def copy_publication(
    objects: Objects, folder: Path, progress: Progress, *, trust: Trust | None = None
) -> CopiedPublication:
    """Copy a published repository to a folder. Each file is compared with the record of the publication.

    With trust, it is compared with signed statements instead, of which each model must have one. What is there without
    record, because another program put it there, is copied as it is and not compared, unless trust is given.
    """
    record = PublicationRecord.read(objects) if trust is None else None
    try:
        return _copied(objects, record, folder, progress, trust)
    except EnvpackError as error:
        is_about_content = error.kind in ("published-changed", "store-corrupt")
        if not is_about_content or record is None or not record.exists or record.is_current():
            raise
        fix = "run the command again when no publication is under way"
        raise _changed("it was published again while it was read", str(objects.location), fix) from error


def _copied(
    objects: Objects, record: PublicationRecord | None, folder: Path, progress: Progress, trust: Trust | None
) -> CopiedPublication:
    present = {info.path: info for info in objects.list() if "/" in info.path}
    folders = {path.rsplit("/", count)[0] for path in present for count in range(1, path.count("/") + 1)}
    present = {path: info for path, info in present.items() if info.size or path not in folders}  # those of consoles
    if trust is not None:
        expected = _signed(objects, present, trust)
    else:
        expected = _recorded(objects, record, present) if record and record.exists else dict.fromkeys(present, "")
    fix = _PUBLISH_AGAIN if trust is None else _SIGN_AGAIN
    for path in present:
        if path not in expected:  # a server may load it
            remedy = _REMOVE if trust is None else _DELETE
            raise _changed(f"{path} was not published", str(objects.location), remedy)
    if missing := sorted(expected.keys() - present.keys()):
        raise _changed(f"{missing[0]} is missing", str(objects.location), fix)
    total = sum(present[path].size for path in expected)
    if total + _SPARE > shutil.disk_usage(folder).free:
        raise disk_full(folder.parent)  # a temporary name says nothing to the user
    transfer_all(
        [partial(_copy, objects, present[path], sha256, folder, fix) for path, sha256 in expected.items()],
        total=total,
        threads=_AT_ONCE,
        progress=progress,
        done=lambda *_: None,
    )
    for path in folders:
        (folder / path).chmod(FOLDER)
    return CopiedPublication(len(expected), total, bool(trust or (record and record.exists)))


def no_published_models(location: Location) -> InputError:
    fix = "correct the address, or publish models there: envpack publish ADDRESS"
    return InputError("repository-empty", "no model is published there", fix, str(location))


def _copy(objects: Objects, info: ObjectInfo, sha256: str, folder: Path, fix: str, report: Report) -> None:
    digest, file = hashlib.sha256(), _inside(folder, info.path, objects)
    if file.is_dir():
        raise objects.corrupt(info.path, "another object has its name as a folder")
    with storage_errors(file), file.open("xb") as content:
        for piece in objects.pieces(info.path, info.size):
            digest.update(piece)
            content.write(piece)
            report(len(piece))
    if sha256 and digest.hexdigest() != sha256:
        raise _changed(f"{info.path} is not what was published", str(objects.location), fix)
    # As in a layout: the server may run as another user, and makes the stub executable itself where it is the owner.
    file.chmod(0o200 | (PROGRAM if file.name == STUB_NAME else FILE))


def _recorded(objects: Objects, record: PublicationRecord, present: Mapping[str, ObjectInfo]) -> dict[str, str]:
    """The digests of all files, by the record of a publication that has ended; all that is present has its sizes."""
    if record.pending:
        path = min(record.pending)
        raise _changed(
            f"a publication has not ended, which would write {path}",
            str(objects.location),
            "wait until it has ended; if it was interrupted, publish again, with --delete if the repository no longer "
            "has this file",
        )
    if not record.entries:
        raise _changed("nothing is published there", str(objects.location), "publish models there")
    for path, entry in record.entries.items():  # before a copy of what may be larger than the disk
        if path in present and present[path].size != entry.size:
            raise _changed(f"{path} is not what was published", str(objects.location), _PUBLISH_AGAIN)
    return {path: entry.sha256 for path, entry in record.entries.items()}


def _signed(objects: Objects, present: Iterable[str], trust: Trust) -> dict[str, str]:
    """The digests of all files of all models, by their signed statements."""
    models = sorted({path.split("/")[0] for path in present})
    if not models:
        raise signature_invalid(str(objects.location), "nothing is published there", trust.keys)
    expected: dict[str, str] = {}
    envelopes: dict[str, str] = {}
    wholes: set[str] = set()
    with Pool(_AT_ONCE) as pool:
        statements = [pool.submit(objects.read, f"{model}/{STATEMENT}", MOST_STATEMENT) for model in models]
        for model, coming in zip(models, statements, strict=True):
            found = coming.result()
            where, address = f"{objects.location}/{model}", objects.location.name
            statement = _statement(found[0] if found else None, model, trust, where, address)
            expected |= statement.subjects
            wholes.add(str(statement.parameters.get("digest", "")))
            envelopes[f"{model}/{STATEMENT}"] = hashlib.sha256(found[0]).hexdigest() if found else ""
    if wholes != {""} and wholes != {content_digest(expected)}:
        raise _changed("models of the publication are missing", str(objects.location), _PUBLISH_AGAIN)
    return expected | envelopes


def _statement(envelope: bytes | None, model: str, trust: Trust, where: str, address: str = "") -> Statement:
    statement = check_statement(envelope, trust, "publication", where=where, address=address, now=time.time())
    if statement.parameters.get("model") != model:
        raise signature_invalid(where, "it belongs to another model", trust.keys)
    return statement


def _inside(folder: Path, path: str, objects: Objects) -> Path:
    """A path below a folder for an object; its folder is made."""
    if any(part in ("", ".", "..") for part in path.split("/")):
        raise objects.corrupt(path, "its name leads to another folder")
    file = folder / path
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError) as error:
        raise objects.corrupt(path, "another object has the name of its folder") from error
    return file


def _changed(reason: str, where: str, hint: str) -> InputError:
    return InputError("published-changed", reason, hint, where)


FETCHED = ".envpack-fetched.json"  # in a folder that envpack fetched
_SCHEMA = 1
_OF_FILE_SYSTEM = "lost+found"


def place_publication(
    objects: Objects, directory: Path, progress: Progress, *, trust: Trust | None = None
) -> CopiedPublication:
    """Copy a published repository to a folder, which changes only once everything is compared.

    A new folder appears in one step. One that exists stays, because it may be a mount point; each model in it is
    replaced in one step. What a killed process left in it is removed.
    """
    directory = real_path(directory)
    if objects.location.folder is not None and directory.is_relative_to(real_path(objects.location.folder)):
        what = "the folder cannot be inside the publication that it is a copy of"
        raise UsageError("output-inside", what, f"give one outside of {objects.location}", str(directory))
    _refuse_foreign(directory)
    with locked_destination(directory), storage_errors(directory):
        if directory.is_dir():
            _remove_leftovers(directory)
            with partial_folder(directory) as partial:
                copied = _copy_models(objects, partial, progress, trust)
                _replace_models(directory, partial)
            return copied
        with replaced_folder(directory) as folder:
            return _copy_models(objects, folder, progress, trust)


def _remove_leftovers(directory: Path) -> None:
    """Remove what killed processes left: a server takes it for a model."""
    for name in (FETCHED, *_models(directory)):
        remove_leftovers(directory / name)


def _is_folder(path: Path) -> bool:
    return path.is_dir() and not path.is_symlink()


def _copy_models(objects: Objects, folder: Path, progress: Progress, trust: Trust | None) -> CopiedPublication:
    folder.chmod(FOLDER)
    copied = copy_publication(objects, folder, progress, trust=trust)
    if not (copied.compared or copied.files):
        raise no_published_models(objects.location)
    if not copied.compared:
        what = "nothing records what was published there, so that a changed file would not be noticed"
        fix = "publish it with `envpack publish`, and leave its record there"
        raise InputError("published-changed", what, fix, str(objects.location))
    models = sorted(entry.name for entry in folder.iterdir())
    document = {"schema": _SCHEMA, "address": objects.location.name, "models": models}
    write_text(folder / FETCHED, json.dumps(document, indent=1) + "\n")
    return copied


def _replace_models(directory: Path, partial: Path) -> None:
    """Exchange the models of a folder, one after the other; what a killed process leaves, the next one replaces."""
    before, now = _models(directory), _models(partial)
    for name in now:
        if os.path.lexists(directory / name) and not (name in before and _is_folder(directory / name)):
            raise _not_ours(directory / name, "move it out of this folder, or fetch into another one")
    document = {"schema": _SCHEMA, "address": "", "models": sorted({*before, *now})}
    write_text(directory / FETCHED, json.dumps(document, indent=1) + "\n")
    for name in now:
        with replaced_folder(directory / name) as place:
            (partial / name).rename(place)
    for name in before:
        if name not in now and _is_folder(directory / name):
            remove_folder(directory / name)
    (partial / FETCHED).replace(directory / FETCHED)


def _models(folder: Path) -> list[str]:
    try:
        found = read_json(folder / FETCHED)["models"]
        return [name for name in found if isinstance(name, str) and _is_model_name(name)]
    except (OSError, ValueError, KeyError, TypeError):
        return []


def _is_model_name(name: str) -> bool:
    """Whether a name can be that of a published model, so that it leads to no other folder."""
    return is_object_path(name) and "/" not in name and not name.startswith(".")


def _refuse_foreign(directory: Path) -> None:
    if directory.is_dir():
        ours = {*partial_folders(directory), *temporaries_of(directory / FETCHED), directory / _OF_FILE_SYSTEM}
        if (directory / FETCHED).is_file() or not {*directory.iterdir()} - ours:
            return
    elif not os.path.lexists(directory):
        return
    raise _not_ours(directory, "give a folder that does not exist or is empty, or remove this one")


def _not_ours(path: Path, fix: str) -> InputError:
    return InputError("output-not-ours", "this exists, and `envpack fetch` did not create it", fix, str(path))


_DOWNLOAD_AGAIN = "download the model again, and nothing else into it"


def check_signed(path: Path, trust: Trust) -> int:
    """Check that everything at a path is as it was published and signed.

    Args:
        path: a folder of published models, the folder of one, or a file or folder in that.
        trust: who must have signed.

    Returns:
        How many files were compared.

    Raises:
        InputError: kind ``signature-invalid``: a model has no statement, or one that was altered or signed by another
            key; kind ``published-changed``: a file is missing, differs, is a link, or was not published.
        OSError: a file cannot be read.
    """
    path = path.absolute()
    # The outermost one: a statement in a folder of a model is no more than one of its files.
    model = next((folder for folder in reversed((path, *path.parents)) if (folder / STATEMENT).is_file()), None)
    if model is not None:
        return _check(model, path, trust)
    folders = sorted(entry for entry in path.iterdir() if entry.is_dir()) if path.is_dir() else []
    if not folders:
        raise signature_invalid(str(path), "no folder above it has a statement", trust.keys)
    return sum(_check(folder, folder, trust) for folder in folders)


def _check(model: Path, path: Path, trust: Trust) -> int:
    """Compare the files at a path in a model's folder with its statement; of the whole folder, none may be missing.

    The folder's statement may also name the archive of another model, which this one uses.
    """
    for place in (model, model / STATEMENT, *(p for p in (path, *path.parents) if p.is_relative_to(model))):
        if place.is_symlink():
            raise _changed(f"{place} is a link, and none was published", str(model), _DOWNLOAD_AGAIN)
    envelope = model / STATEMENT
    content = read_bytes(envelope, most=MOST_STATEMENT) if envelope.is_file() else None
    subjects = _statement(content, model.name, trust, str(model)).subjects
    found = {f"{model.name}/{file.relative_to(model)}": file for file in _files(path)}
    if path == model:
        found |= {name: file for name in subjects if (file := _borrowed(model, name)) and file.exists()}
    found.pop(f"{model.name}/{STATEMENT}", None)
    for name, file in found.items():
        if file.is_symlink() or not file.is_file():
            raise _changed(f"{name} is a link, or no file, and none was published", str(model), _DOWNLOAD_AGAIN)
        if name not in subjects:
            raise _changed(f"{name} was not published", str(model), _DOWNLOAD_AGAIN)
        if sha256_of(file) != subjects[name]:
            raise _changed(f"{name} is not what was published", str(model), _DOWNLOAD_AGAIN)
    missing = sorted(subjects.keys() - found.keys()) if path == model else []
    if missing:
        raise _changed(f"{missing[0]} is missing", str(model), _DOWNLOAD_AGAIN)
    return len(found)


def _borrowed(model: Path, name: str) -> Path | None:
    """The file of another model that a statement names; None if it is this model's own."""
    return model.parent / name if not name.startswith(f"{model.name}/") and is_object_path(name) else None


def _files(path: Path) -> Iterator[Path]:
    """All that is in a folder but folders; links to folders are not followed."""
    if not path.is_dir() or path.is_symlink():
        yield path
        return
    for root, folders, names in os.walk(path):
        links = [name for name in folders if Path(root, name).is_symlink()]
        yield from (Path(root, name) for name in sorted([*names, *links]))
