"""A sandbox for code with faults, which could delete any file and kill any process of the user.

It has process ids, ``/proc`` and ``/dev/shm`` of its own (namespaces), and can write below one folder only (Landlock).
"""

from __future__ import annotations

import ctypes
import os
import shutil
import sys
from pathlib import Path

_PR_SET_NO_NEW_PRIVS = 38
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446  # the same numbers on every architecture
_PATH_BENEATH = 1
# Every right of Landlock's ABI 3 but to execute and to read: write, remove, make, rename or link, truncate.
_WRITE_FILE, _READS, _ALL = 1 << 1, 0b1101, (1 << 15) - 1
_WRITES = _ALL & ~_READS
_WRITES_OF_FILES = _WRITE_FILE | 1 << 14
_OUTSIDE = "ENVPACK_MUTANTS_OUTSIDE"  # the namespace of process ids that the sandbox was started from
_WRITABLE_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/tty", "/dev/ptmx", "/dev/pts")


class _Ruleset(ctypes.Structure):
    _fields_ = [("handled_access_fs", ctypes.c_uint64)]


class _PathBeneath(ctypes.Structure):
    _pack_ = 1
    _layout_ = "ms"  # the layout that _pack_ has; Python 3.14 wants it said
    _fields_ = [("allowed_access", ctypes.c_uint64), ("parent_fd", ctypes.c_int32)]


def command(script: Path, *arguments: Path) -> list[str]:
    """The command that runs a Python script in new namespaces; the script calls `confine` first."""
    if shutil.which("unshare") is None:
        raise SystemExit("unshare (util-linux) is required")
    # The shell is process 1: for process 1, signals would have another meaning.
    shell = ["sh", "-c", '"$@"; exit $?', "sh", "env", f"{_OUTSIDE}={_namespace()}"]
    shell += [sys.executable, str(script), *map(str, arguments)]
    return [
        "unshare",
        "--user",
        "--map-root-user",
        "--mount",
        "--pid",
        "--mount-proc",
        "--fork",
        "--kill-child",
        *shell,
    ]


def confine(scratch: Path) -> None:
    """Deny this process, and those that it starts, to write anywhere but below ``scratch`` and in ``/dev/shm``."""
    if os.environ.get(_OUTSIDE, _namespace()) == _namespace():
        raise SystemExit("not in a namespace of process ids of its own")
    libc = ctypes.CDLL(None, use_errno=True)
    _check(libc.mount(b"tmpfs", b"/dev/shm", b"tmpfs", 0, None), "mount /dev/shm")
    ruleset = _Ruleset(_WRITES)
    handle = libc.syscall(_CREATE_RULESET, ctypes.byref(ruleset), ctypes.sizeof(ruleset), 0)
    _check(handle, "Landlock (Linux 6.2 or newer)")
    for folder in (scratch, Path("/dev/shm"), Path("/proc")):
        _allow(libc, handle, folder, _WRITES)
    for device in map(Path, _WRITABLE_DEVICES):
        if device.exists():
            _allow(libc, handle, device, _WRITES if device.is_dir() else _WRITES_OF_FILES)
    _check(libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "prctl")
    _check(libc.syscall(_RESTRICT_SELF, handle, 0), "Landlock")
    os.close(handle)


def _namespace() -> str:
    return os.readlink("/proc/self/ns/pid")  # noqa: PTH115 - no file


def _allow(libc: ctypes.CDLL, ruleset: int, path: Path, access: int) -> None:
    folder = os.open(path, os.O_PATH)
    rule = _PathBeneath(access, folder)
    _check(libc.syscall(_ADD_RULE, ruleset, _PATH_BENEATH, ctypes.byref(rule), 0), f"Landlock: {path}")
    os.close(folder)


def _check(result: int, what: str) -> None:
    if result < 0:
        raise OSError(ctypes.get_errno(), f"{what}: {os.strerror(ctypes.get_errno())}")
