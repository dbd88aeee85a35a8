"""Lists the files of an existing environment that are copied, and their SHA-256.

Digests are cached by size, times and inode of each file, as in compiler caches, so that an unchanged environment is not
read twice.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import stat
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from envpack.environment.credential_files import holds_credentials
from envpack.environment.inventory import INVENTORY
from envpack.environment.prefix.detect import Prefix
from envpack.environment.store import MANIFEST
from envpack.support.bounded_reading import read_json
from envpack.support.errors import InputError
from envpack.support.pool import map_batches
from envpack.support.replacement import write_text

_SCHEMA = 1
_SETTLED = 2.0  # seconds after which a change is sure to alter the time stamp, on any file system
_NEVER = {"CACHEDIR.TAG", ".lock", ".gitignore", "pyvenv.cfg", "lib64", INVENTORY, MANIFEST}
_NEVER_OF_CONDA = {"pkgs", "envs", "conda-bld", "conda-meta/history", "conda-meta/state", ".condarc", ".conda_lock"}
_NEVER_OF_VIRTUAL = re.compile(r"bin/(python[\d.]*[td]?|activate(\..*|_this\.py)?|Activate\.ps1|deactivate(\..*)?)")
_PATCHES = {"_virtualenv.py", "_virtualenv.pth"}  # of virtualenv and uv, for the environment that they created


@dataclass(frozen=True, slots=True)
class PrefixFile:
    """A file or link.

    Attributes:
        path: relative to the root, with ``/``.
        stamp: size in bytes, mtime and ctime in nanoseconds, inode; 0 for links.
        program: whether it is executable.
        target: target of a link; ``""`` for a file.
    """

    path: str
    stamp: tuple[int, ...]
    program: bool = False
    target: str = ""


def list_files(prefix: Prefix) -> tuple[PrefixFile, ...]:
    """List the files of an environment by path, without byte code, caches and files that depend on its folder."""
    return tuple(sorted(_walk(prefix, ""), key=lambda file: file.path))


def _walk(prefix: Prefix, below: str) -> Iterator[PrefixFile]:
    with os.scandir(f"{prefix.root}/{below}") as entries:
        for entry in entries:
            path = f"{below}{entry.name}"
            if entry.name == "__pycache__" or _left_out(prefix, path):
                continue
            status = entry.stat(follow_symlinks=False)
            if stat.S_ISLNK(status.st_mode):
                yield PrefixFile(path, (0,), target=os.readlink(entry.path))  # noqa: PTH115 - text is faster
            elif stat.S_ISDIR(status.st_mode):
                yield from _walk(prefix, f"{path}/")
            elif stat.S_ISREG(status.st_mode):
                stamp = (status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino)
                yield PrefixFile(path, stamp, bool(status.st_mode & 0o100))
            else:
                raise InputError(
                    "this is neither a file nor a folder nor a link",
                    kind="prefix-unsupported",
                    where=entry.path,
                    hint="remove it, if the environment does not need it",
                )


def _left_out(prefix: Prefix, path: str) -> bool:
    if path in _NEVER or path.endswith(".conda_trash") or holds_credentials(path):
        return True
    if prefix.kind == "conda":
        return path in _NEVER_OF_CONDA
    return bool(_NEVER_OF_VIRTUAL.fullmatch(path)) or (
        path.rpartition("/")[2] in _PATCHES and path.rpartition("/")[0].endswith("/site-packages")
    )


def hash_files(prefix: Prefix, files: Sequence[PrefixFile], memory: Path) -> dict[str, str]:
    """The SHA-256 of each file, by path; files that did not change since the last call are not read."""
    known = _remembered(memory)
    regular = [file for file in files if not file.target]
    unknown = [file for file in regular if known.get(file.path, ())[:-1] != file.stamp]
    started = time.time()
    read = chain.from_iterable(map_batches(lambda file: _digest(f"{prefix.root}/{file.path}"), unknown))
    fresh = dict(zip((file.path for file in unknown), read, strict=True))
    digests = {file.path: fresh.get(file.path) or str(known[file.path][-1]) for file in regular}
    if fresh or len(known) > len(regular):
        newest = (started - _SETTLED) * 1e9
        settled = (file for file in regular if max(file.stamp[1:3]) < newest)
        _remember(memory, {file.path: (*file.stamp, digests[file.path]) for file in settled})
    return digests


def _digest(file: str) -> str:
    with open(file, "rb") as content:  # noqa: PTH123 - text is faster
        return hashlib.file_digest(content, "sha256").hexdigest()


def _remembered(memory: Path) -> dict[str, tuple[int | str, ...]]:
    try:
        cached = read_json(memory)
        return {path: tuple(known) for path, known in cached["files"].items()} if cached["schema"] == _SCHEMA else {}
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return {}


def _remember(memory: Path, known: Mapping[str, tuple[int | str, ...]]) -> None:
    with contextlib.suppress(OSError):  # without the cache the next call takes longer
        memory.parent.mkdir(parents=True, exist_ok=True)
        write_text(memory, json.dumps({"schema": _SCHEMA, "files": known}))


def content_digest(files: Sequence[PrefixFile], digests: Mapping[str, str]) -> str:
    """Digest of the content of an environment; the same for copies in other folders."""
    contents = [[file.path, file.program, file.target, digests.get(file.path, "")] for file in files]
    return hashlib.sha256(json.dumps(contents).encode()).hexdigest()
