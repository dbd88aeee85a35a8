"""What a machine has that tasks need: its platform, interpreters, a compiler, Docker, a GPU."""

from __future__ import annotations

import functools
import shutil
from pathlib import Path

from envpack.pythons import available_interpreters
from envpack.requirements import host_platform
from envpack.stub import find_toolchain, this_machine
from envpack.support.errors import EnvpackError


@functools.cache
def abilities() -> tuple[str, ...]:
    """What this machine has: ``"platform linux-64"``, ``"python 3.10"``, ``"compiler"``, ``"docker"``, ``"gpu"``.

    >>> any(ability.startswith("platform ") for ability in abilities())
    True
    """
    found = [f"platform {host_platform()}"]
    found += sorted({f"python {interpreter.minor}" for interpreter in available_interpreters() if interpreter.library})
    if _has_compiler():
        found.append("compiler")
    if Path("/var/run/docker.sock").exists() or shutil.which("podman"):
        found.append("docker")
    if Path("/dev/nvidiactl").exists():
        found.append("gpu")
    return tuple(found)


def _has_compiler() -> bool:
    try:
        find_toolchain("auto", machine=this_machine(), glibc="")
    except EnvpackError:
        return False
    return True
