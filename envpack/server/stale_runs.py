"""Removes what servers leave behind, at the end of a run and after runs that were killed."""

from __future__ import annotations

import contextlib
import os
import re
import select
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from envpack.server import proc
from envpack.server.daemon import Daemon, daemon_errors
from envpack.server.made_objects import SHARED_MEMORY, read_made, remove_made
from envpack.server.supervisor_child import MADE
from envpack.support.bounded_reading import read_text
from envpack.support.links_and_modes import make_folder

_BOOT = "sys/kernel/random/boot_id"
HOME_PREFIX = "envpack-verify-"
LOG = "log"
VARIABLE = "ENVPACK_SERVER"  # its processes have it, with the server's folder as its value
_OWNER = "owner"
OWN_FILES = frozenset({_OWNER, LOG, MADE, "backends", "libraries"})  # in a server's folder, not written by models
LABEL, KEPT_LABEL = "envpack.verify", "envpack.keep"  # of containers
_KILL_SECONDS = 10.0
_ALREADY_REMOVED = (404, 409)  # the container is gone, or another process is removing it


def this_owner() -> str:
    """Identifier of this process: boot, namespace, process id and start time, since ids are used again."""
    pid = os.getpid()
    return f"{_boot_id()}/{_pid_namespace()}/{pid}/{proc.start_time(pid)}"


def owner_is_gone(owner: str) -> bool:
    """Whether the process with this identifier has ended; False if that cannot be determined."""
    parts = owner.split("/")
    if len(parts) != 4 or not re.fullmatch("[0-9]{1,9}", parts[2]):
        return False
    boot, namespace, pid, start_time = parts
    this_boot = _boot_id()
    if boot != this_boot:
        return proc.UNKNOWN not in (boot, this_boot)
    started = proc.start_time(int(pid))
    return namespace == _pid_namespace() and started != start_time and proc.UNKNOWN not in (started, start_time)


def _boot_id() -> str:
    return proc.text(_BOOT).strip() or proc.UNKNOWN


def _pid_namespace() -> str:
    return proc.link("self", "ns/pid") or proc.UNKNOWN


def shared_memory_named(prefix: str) -> tuple[str, ...]:
    return tuple(sorted(region.name for region in Path(SHARED_MEMORY).glob(f"{prefix}*")))


def remove_leftovers(home: Path) -> tuple[str, ...]:
    """End and remove what a server left whose supervisor was killed; returns one phrase for each leftover."""
    found: dict[int, str] = {}
    until = time.monotonic() + _KILL_SECONDS
    while (processes := _processes_of(home)) and time.monotonic() < until:
        for pid, handle in processes.items():
            found.setdefault(pid, proc.phrase(pid))
            with contextlib.suppress(OSError):
                signal.pidfd_send_signal(handle, signal.SIGKILL)
            _wait_for_end(handle)
            os.close(handle)
    return (*found.values(), *remove_made(read_made(str(home / MADE)), region_prefix(home)))


def _wait_for_end(handle: int) -> None:
    poll = select.poll()
    poll.register(handle, select.POLLIN)  # readable when it has ended
    poll.poll(1000)


def _processes_of(home: Path) -> dict[int, int]:
    """The living processes that have the variable of this server, each with a descriptor of it (pidfd)."""
    found = {}
    for pid in proc.all_pids():
        if proc.variables(pid).get(VARIABLE) != str(home):
            continue
        with contextlib.suppress(OSError):
            handle = os.pidfd_open(pid)
            if proc.variables(pid).get(VARIABLE) == str(home):  # still the same process
                found[pid] = handle
            else:
                os.close(handle)
    return found


def new_home() -> Path:
    """Create a temporary folder for one server and record this process as its owner."""
    home = Path(tempfile.mkdtemp(prefix=HOME_PREFIX))
    (home / _OWNER).write_text(this_owner(), encoding="utf-8")
    return home


@contextlib.contextmanager
def temporary_home() -> Iterator[Path]:
    home = new_home()
    try:
        yield home
    finally:
        remove_home(home)


@contextlib.contextmanager
def temporary_folder() -> Iterator[Path]:
    """A folder in one from `temporary_home`, which the server of a container can enter as another user."""
    with temporary_home() as home:
        make_folder(home / "models")
        yield home / "models"


def remove_home(home: Path) -> None:
    """Remove a server's folder, its owner last: if this is interrupted, `remove_stale_homes` completes it."""
    with contextlib.suppress(OSError):
        for entry in home.iterdir():
            if entry.is_dir() and not entry.is_symlink():
                shutil.rmtree(entry, ignore_errors=True)
            elif entry.name != _OWNER:
                entry.unlink(missing_ok=True)
    shutil.rmtree(home, ignore_errors=True)


def region_prefix(home: Path) -> str:
    return f"envpack_{home.name.removeprefix(HOME_PREFIX)}_"


def release_home(home: Path) -> None:
    """Remove the owner of a server's folder, so that no later run stops the server."""
    (home / _OWNER).unlink(missing_ok=True)  # a model may have removed it


def remove_stale_homes() -> tuple[str, ...]:
    """Stop servers whose envpack process has ended and remove their leftovers; one phrase for each leftover."""
    found: list[str] = []
    for home in sorted(Path(tempfile.gettempdir()).glob(f"{HOME_PREFIX}*")):
        with contextlib.suppress(OSError, ValueError):  # another run may be removing the same folder
            if _is_ours(home) and owner_is_gone(read_text(home / _OWNER)):
                left = remove_leftovers(home)
                remove_home(home)
                found += [*left, f"folder {home}"]
    return tuple(found)


def _is_ours(home: Path) -> bool:
    """Whether this user owns the folder; in a world-writable parent the name alone proves nothing."""
    return home.is_dir() and not home.is_symlink() and home.stat().st_uid == os.getuid()


def remove_stale_containers(daemon: Daemon) -> tuple[str, ...]:
    """Remove the containers of runs of envpack that were killed; returns their names."""
    import docker

    removed = []
    with daemon_errors():
        found = daemon.client.containers.list(all=True, filters={"label": LABEL}, ignore_removed=True)
        for container in found:
            if KEPT_LABEL not in container.labels and owner_is_gone(container.labels[LABEL]):
                try:
                    container.remove(force=True, v=True)
                except docker.errors.APIError as error:
                    if error.status_code not in _ALREADY_REMOVED:
                        raise
                removed.append(str(container.name))
    return tuple(removed)
