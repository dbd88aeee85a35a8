"""What builds: system, compilers, CMake and Ninja, Pythons."""

from __future__ import annotations

import platform
import sys
from collections.abc import Iterator

from envpack.doctor.observation import Observation
from envpack.preflight import this_host
from envpack.project import Project
from envpack.pythons import SUPPORTED, Interpreter, available_interpreters
from envpack.stub import find_tool, find_toolchain, is_supported
from envpack.support.errors import StubError

_PIP = f"{sys.executable} -m pip install"


def system(project: Project) -> Iterator[Observation]:  # noqa: ARG001 - all probes are called alike
    """Machine and C library."""
    host = this_host()
    what = f"{platform.system()} {host.machine}, glibc {host.glibc or 'none'}, Python {platform.python_version()}"
    if is_supported(host.machine) and host.glibc:
        yield Observation("system", "ok", what)
    else:
        yield Observation("system", "missing", what, "take Linux on x86-64 or aarch64, with glibc")


def compiler(project: Project) -> Iterator[Observation]:  # noqa: ARG001
    """What compiles stubs."""
    found = find_toolchain()
    yield Observation("compiler", "ok", found.identity)


def zig(project: Project) -> Iterator[Observation]:  # noqa: ARG001
    """What compiles stubs for older systems and other machines."""
    try:
        yield Observation("zig", "ok", find_toolchain("zig").identity)
    except StubError as error:
        what = f"{error.message}; it compiles stubs that run on older systems than this one"
        yield Observation("zig", "warn", what, f"{_PIP} ziglang")


def tools(project: Project) -> Iterator[Observation]:  # noqa: ARG001
    """CMake and Ninja."""
    for name in ("cmake", "ninja"):
        try:
            yield Observation(name, "ok", str(find_tool(name)))
        except StubError as error:
            yield Observation(name, "missing", error.message, error.hint)


def pythons(project: Project) -> Iterator[Observation]:  # noqa: ARG001
    """Interpreters that environments and stubs can be made of."""
    found = available_interpreters()
    usable = _newest(one for one in found if one.library)
    static = sorted({one.minor for one in found} - usable.keys(), key=SUPPORTED.index)
    absent = [minor for minor in SUPPORTED if minor not in usable and minor not in static]
    remarks = [f"without shared library: {', '.join(static)}"] if static else []
    remarks += [f"not there: {', '.join(absent)}"] if absent else []
    what = "; ".join([", ".join(one.version for one in usable.values()) or "none with a shared library", *remarks])
    wanted = (static or absent or [""])[-1]
    fix = f"PYTHON_CONFIGURE_OPTS=--enable-shared pyenv install {wanted}, or uv python install {wanted}"
    yield Observation("Pythons", "ok" if usable else "missing", what, fix if wanted and not usable else "")


def _newest(interpreters: Iterator[Interpreter]) -> dict[str, Interpreter]:
    return {one.minor: one for one in interpreters}  # they come by version
