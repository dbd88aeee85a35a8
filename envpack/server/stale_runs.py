"""Cleans up after runs of envpack that were killed: their servers, shared memory and folders."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

from envpack.server import procfs
from envpack.server.leftovers import remove_leftovers
from envpack.server.owner import is_gone, this_owner

HOME_PREFIX = "envpack-verify-"
LOG = "log"
_OWNER, _GROUP = "owner", "group"


def new_home() -> Path:
    """A folder for one server, marked as this process's."""
    home = Path(tempfile.mkdtemp(prefix=HOME_PREFIX))
    (home / _OWNER).write_text(this_owner(), encoding="utf-8")
    return home


@contextlib.contextmanager
def temporary_home() -> Iterator[Path]:
    """A folder as `new_home` makes it, for the time of the block."""
    home = new_home()
    try:
        yield home
    finally:
        shutil.rmtree(home, ignore_errors=True)


def region_prefix(home: Path) -> str:
    """Start of the names of the shared-memory regions of the server that has this folder."""
    return f"envpack_{home.name.removeprefix(HOME_PREFIX)}_"


def note_group(home: Path, group: int) -> None:
    """Note the process group of the server that has this folder."""
    (home / _GROUP).write_text(str(group), encoding="utf-8")


def disown(home: Path) -> None:
    """Let the server that has this folder live on: no later run will clean it up."""
    (home / _OWNER).unlink()


def remove_abandoned_homes() -> tuple[str, ...]:
    """Stop the servers whose envpack is gone, and remove what they have left; one phrase for each thing."""
    found: list[str] = []
    for home in sorted(Path(tempfile.gettempdir()).glob(f"{HOME_PREFIX}*")):
        with contextlib.suppress(OSError, ValueError):  # another run may be cleaning up the same
            if _is_ours(home) and is_gone((home / _OWNER).read_text(encoding="utf-8")):
                found += _remove(home)
    return tuple(found)


def _is_ours(home: Path) -> bool:
    """Whether this user made it: in a folder that everybody can write to, names prove nothing."""
    return home.is_dir() and not home.is_symlink() and home.stat().st_uid == os.getuid()


def _remove(home: Path) -> tuple[str, ...]:
    group = _group_of(home)
    if group is not None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(group, signal.SIGKILL)
    found = remove_leftovers(
        prefix=region_prefix(home), group=group, log=_text(home / LOG), before=frozenset(), crashed=False
    )
    shutil.rmtree(home, ignore_errors=True)
    return (*found, f"folder {home}")


def _group_of(home: Path) -> int | None:
    """The process group of the server that has this folder.

    None if none was noted, as in a container, and if the number is another's by now: only what was started with this
    folder is ours.
    """
    noted = _text(home / _GROUP)
    if not noted.isdigit() or int(noted) <= 1:  # 0 would be our own group, and 1 every process
        return None
    return int(noted) if any(str(home) in argument for argument in procfs.command_line(int(noted))) else None


def _text(file: Path) -> str:
    try:
        return file.read_bytes().decode("utf-8", "replace")
    except FileNotFoundError:
        return ""
