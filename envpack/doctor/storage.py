"""Where things are kept: shared memory, the folder for temporary files, the cache."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from envpack.doctor.observation import Observation
from envpack.project import Project
from envpack.support.cache_locations import cache_root

_MIB, _GIB = 1 << 20, 1 << 30
_SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 - where the kernel keeps POSIX shared memory
_UNPACKED = Path("/tmp")  # noqa: S108 - where servers unpack archives, whatever TMPDIR says


def shared_memory(project: Project, place: Path = _SHARED_MEMORY) -> Iterator[Observation]:  # noqa: ARG001
    """Room for the tensors between a server and its stubs."""
    if not place.is_dir():
        yield Observation(str(place), "missing", "not there, and stubs cannot talk to a server", "mount a tmpfs there")
        return
    room = os.statvfs(place)
    size, free = room.f_frsize * room.f_blocks, room.f_frsize * room.f_bavail
    what = f"{_amount(size)}, {_amount(free)} free"
    if free >= 64 * _MIB:
        yield Observation(str(place), "ok", what)
    else:
        what += "; each model instance takes 1 MiB and what its tensors need"
        yield Observation(str(place), "warn", what, "mount -o remount,size=1g /dev/shm; of a container: --shm-size=1g")


def temporary_folder(project: Project, place: Path = _UNPACKED) -> Iterator[Observation]:  # noqa: ARG001
    """Room for what servers unpack; programs in it must be allowed to run."""
    if not place.is_dir():
        yield Observation(str(place), "missing", "not there, and servers unpack archives there", "make it, mode 1777")
        return
    room = os.statvfs(place)
    free = room.f_frsize * room.f_bavail
    if room.f_flag & os.ST_NOEXEC:
        what = "mounted noexec: models with archives hang, since libraries in them cannot be loaded"
        yield Observation(str(place), "warn", what, f"mount -o remount,exec {place}, or build with --format dir")
    elif not os.access(place, os.W_OK):
        yield Observation(str(place), "warn", "you may not write there", f"chmod 1777 {place}")
    elif free < 2 * _GIB:
        what = f"{_amount(free)} free; servers unpack archives there"
        yield Observation(str(place), "warn", what, "make room, or build with --format dir")
    else:
        yield Observation(str(place), "ok", f"{_amount(free)} free, programs may run")


def cache(project: Project) -> Iterator[Observation]:
    """Where environments, packages and stubs are kept."""
    place = cache_root().absolute()
    there = next(folder for folder in (place, *place.parents) if folder.exists())
    if not there.is_dir() or not os.access(there, os.W_OK | os.X_OK):
        what = f"{place} cannot be written to"
        yield Observation("cache", "missing", what, "name another folder: ENVPACK_CACHE_DIR")
        return
    room = os.statvfs(there)
    free = room.f_frsize * room.f_bavail
    what = f"{place}, {_amount(free)} free"
    if free < 5 * _GIB:
        yield Observation("cache", "warn", what, "`envpack cache prune`, or another folder: ENVPACK_CACHE_DIR")
    elif there.stat().st_dev != project.repository.stat().st_dev:
        what += f"; {project.repository} is on another file system, so environments are copied instead of linked"
        yield Observation("cache", "warn", what, "set ENVPACK_CACHE_DIR to a folder on that file system")
    else:
        yield Observation("cache", "ok", what)


def _amount(size: int) -> str:
    return f"{size / _GIB:.1f} GiB" if size >= _GIB else f"{size / _MIB:.0f} MiB"
