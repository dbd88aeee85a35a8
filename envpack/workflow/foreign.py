"""What lies where envpack would write, and envpack did not make: it is refused, or moved aside; never deleted."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from envpack.archive import archive_metadata_file, is_made_by_envpack, read_metadata
from envpack.repository import BRIDGE, backend_for, is_bridge
from envpack.stub import STUB_NAME, inspect_stub
from envpack.support.errors import InputError, StubError
from envpack.workflow.recipe import TakenOver
from envpack.workflow.requests import Placement

_ENTRY = b"envpack_stub_run"  # a name that each stub of ours contains, even a damaged one
_MOST_READ = 64 << 20  # bytes; a stub has 4 MB


def refuse_foreign(paths: Iterable[Path], *, force: bool) -> None:
    """Refuse to replace what envpack did not make."""
    for path in paths:
        if not force:
            what = f"{_what(path)}, and envpack did not make it"
            raise InputError("not-ours", what, "move it away, or add --force, which renames it", str(path))
        path.rename(_free_name(path))


def foreign_paths(request: Placement, minor: str) -> Iterator[Path]:
    """What a build would replace and envpack did not make."""
    folder = request.model.folder / f"python{minor}"
    if request.archive_format == "dir":
        yield from _foreign(folder, is_ours=is_made_by_envpack(folder))
    else:
        archive = folder.with_name(f"{folder.name}.{request.archive_format}")
        yield from _foreign(archive, is_ours=is_made_by_envpack(archive))
        yield from _foreign(archive_metadata_file(archive), is_ours="key" in read_metadata(archive))
    if request.stub != "never":
        yield from foreign_stub(request.model.folder)
    if request.backends is not None:
        backend = backend_for(minor, request.backends)
        yield from _foreign(backend.folder, is_ours=_is_our_stub(backend.stub) or is_bridge(backend.folder / BRIDGE))


def foreign_stub(folder: Path) -> Iterator[Path]:
    """The stub in a folder, if envpack did not compile it."""
    stub = folder / STUB_NAME
    yield from _foreign(stub, is_ours=_is_our_stub(stub))


def refuse_own_source(taken: TakenOver, request: Placement, minor: str) -> None:
    """Refuse to take over an environment from the folder that the build replaces, or from inside of it."""
    source, folder = taken.prefix.resolve(), request.model.folder / f"python{minor}"
    if request.archive_format == "dir" and (source.is_relative_to(folder.resolve())):
        what = "the build would replace the environment that it takes over"
        fix = "move it out of the model's folder first, and name its new place with --from-prefix"
        raise InputError("source-replaced", what, fix, str(taken.prefix))


def _foreign(path: Path, *, is_ours: bool) -> Iterator[Path]:
    if os.path.lexists(path) and (path.is_symlink() or not (is_ours or _is_empty(path))):
        yield path


def _is_empty(path: Path) -> bool:
    """Whether there is nothing that could be lost."""
    return not any(path.iterdir()) if path.is_dir() else path.is_file() and path.stat().st_size == 0


def _is_our_stub(path: Path) -> bool:
    try:
        return bool(inspect_stub(path))
    except StubError:
        return path.is_file() and path.stat().st_size <= _MOST_READ and _ENTRY in path.read_bytes()


def _what(path: Path) -> str:
    if path.is_symlink():
        return "this is a symbolic link"
    return "this folder exists" if path.is_dir() else "this file exists"


def _free_name(path: Path) -> Path:
    """A name beside a path that nothing has yet, such as ``python3.10.saved-1``."""
    number = 1
    while os.path.lexists(free := path.with_name(f"{path.name}.saved-{number}")):
        number += 1
    return free
