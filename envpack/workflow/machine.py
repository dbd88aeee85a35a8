"""What a machine has that tasks need: its platform, interpreters, a compiler, a server, Docker, a GPU."""

from __future__ import annotations

import functools
import shutil
from pathlib import Path

from envpack.conda import available_interpreters
from envpack.requirements import host_platform
from envpack.server import find_server
from envpack.stub import find_toolchain, prebuilt_pythons, this_machine
from envpack.support.errors import EnvpackError


@functools.cache
def abilities() -> tuple[str, ...]:
    """What this machine has: ``"platform linux-64"``, ``"python 3.10"``, ``"compiler"`` (or compiled stubs),
    ``"docker"``, ``"server"`` (of Triton, as a process or in a container), ``"gpu"``.

    >>> any(ability.startswith("platform ") for ability in abilities())
    True
    """
    found = [f"platform {host_platform()}"]
    found += sorted({f"python {interpreter.minor}" for interpreter in available_interpreters() if interpreter.library})
    if _has_compiler():
        found.append("compiler")
    has_containers = Path("/var/run/docker.sock").exists() or shutil.which("podman")
    if has_containers:
        found.append("docker")
    if has_containers or _has_server():
        found.append("server")
    if Path("/dev/nvidiactl").exists():
        found.append("gpu")
    return tuple(found)


def _has_server() -> bool:
    try:
        find_server(None)
    except EnvpackError:
        return False
    return True


def _has_compiler() -> bool:
    if prebuilt_pythons(this_machine()):
        return True
    try:
        find_toolchain("auto", machine=this_machine(), glibc="")
    except EnvpackError:
        return False
    return True
