"""The examination of this machine: all probes at the same time; those of system, Pythons, tools, GPUs and folders."""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import wait
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

from envpack.conda.choice import interpreter_here
from envpack.conda.fetched import FetchError, fetchable
from envpack.conda.interpreters import available_interpreters, unreadable_folders
from envpack.inspection.facts import this_host
from envpack.settings.project import Project
from envpack.settings.pythons import PYBIND11, SUPPORTED
from envpack.stub.prebuilt import prebuilt_pythons
from envpack.stub.toolchain import boost_folder, check_cmake, find_tool, find_toolchain, pybind11_folder
from envpack.support.errors import EnvpackError, StubError, system_error
from envpack.support.folders import cache_root
from envpack.support.installation import install_command
from envpack.support.platforms import is_supported, this_machine
from envpack.support.pool import in_background
from envpack.workflow.doctor.services import Observation, channels, containers, index, is_set, server, unreachable

_DEVICES = Path("/dev")
_DRIVER = Path("/proc/driver/nvidia")
_VERSION = re.compile(r"Module.*?\s(\d+\.\d+(?:\.\d+)?)\s")
_MIB, _GIB = 1 << 20, 1 << 30
_SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 - where the kernel keeps POSIX shared memory
_UNPACKED = Path("/tmp")  # noqa: S108 - where servers unpack archives; they ignore TMPDIR


def system(project: Project) -> Iterator[Observation]:  # noqa: ARG001 - all probes are called alike
    host = this_host()
    what = f"{platform.system()} {host.machine}, glibc {host.glibc or 'none'}, Python {platform.python_version()}"
    if is_supported(host.machine) and host.glibc:
        yield Observation("system", "ok", what)
    else:
        yield Observation("system", "missing", what, "use Linux on x86-64 or aarch64, with glibc")


def compiler(project: Project) -> Iterator[Observation]:  # noqa: ARG001
    try:
        yield Observation("compiler", "ok", find_toolchain().identity)
    except StubError as error:
        yield _needed_to_compile("compiler", error)


def zig(project: Project) -> Iterator[Observation]:  # noqa: ARG001
    """The compiler for stubs that run on older systems and other architectures."""
    try:
        yield Observation("zig", "ok", find_toolchain("zig").identity)
    except StubError as error:
        what = f"{error.message}; it compiles stubs that run on older systems than this one"
        yield Observation("zig", "warn", what, install_command("zig"))


def tools(project: Project) -> Iterator[Observation]:  # noqa: ARG001
    """CMake, Ninja, and the headers of libraries."""
    for name in ("cmake", "ninja"):
        try:
            program = find_tool(name)
            if name == "cmake":
                check_cmake(program)
            yield Observation(name, "ok", str(program))
        except StubError as error:
            yield _needed_to_compile(name, error)
    try:
        boost_folder()
        for pybind11 in PYBIND11:
            pybind11_folder(pybind11.pythons[0])
        yield Observation("headers", "ok", f"Boost, pybind11 {' and '.join(one.version for one in PYBIND11)}")
    except StubError as error:
        yield _needed_to_compile("headers", error)


def compiled_stubs(project: Project) -> Iterator[Observation]:  # noqa: ARG001
    minors = prebuilt_pythons(this_machine())
    what = f"for Python {', '.join(minors)}" if minors else "none installed: stubs are compiled on this machine"
    yield Observation("compiled stubs", "ok", what)


def _needed_to_compile(name: str, error: StubError) -> Observation:
    """A missing build tool; only a warning if prebuilt stubs are installed."""
    if prebuilt_pythons(this_machine()):
        return Observation(name, "warn", f"{error.message}; the compiled stubs do not need it", error.hint)
    return Observation(name, "missing", error.message, error.hint)


def gpu(project: Project, devices: Path = _DEVICES, driver: Path = _DRIVER) -> Iterator[Observation]:  # noqa: ARG001
    """NVIDIA's driver, its version and its devices, read from /dev and /proc/driver/nvidia."""
    if not (devices / "nvidiactl").exists():
        what = "no NVIDIA GPU; models run on the CPU"
        yield Observation("GPU", "warn", what, "for GPUs: install NVIDIA's driver")
        return
    names = sorted(_name(file) for file in driver.glob("gpus/*/information"))
    yield Observation("GPU", "ok", f"driver {_version(driver)}: {', '.join(names) or 'no device'}")


def _version(driver: Path) -> str:
    try:
        match = _VERSION.search((driver / "version").read_text(encoding="utf-8", errors="replace"))
    except OSError:
        match = None
    return match[1] if match else "unknown"


def _name(file: Path) -> str:
    for line in file.read_text(encoding="utf-8", errors="replace").splitlines():
        if line.startswith("Model:"):
            return line.partition(":")[2].strip()
    return "unknown"


def shared_memory(project: Project, place: Path = _SHARED_MEMORY) -> Iterator[Observation]:  # noqa: ARG001
    """Shared memory for the tensors between a server and its stubs."""
    if not os.access(place, os.W_OK | os.X_OK):
        what = f"{'not writable' if place.is_dir() else 'missing'}; a server and its stubs communicate through it"
        yield Observation(str(place), "missing", what, "mount a tmpfs there, whose mode is 1777")
        return
    room = os.statvfs(place)
    size, free = room.f_frsize * room.f_blocks, room.f_frsize * room.f_bavail
    what = f"{_amount(size)}, {_amount(free)} free"
    if free >= 64 * _MIB:
        yield Observation(str(place), "ok", what)
    else:
        what += "; each model instance needs 1 MiB plus its tensors"
        yield Observation(str(place), "warn", what, "mount -o remount,size=1g /dev/shm; for a container: --shm-size=1g")


def temporary_folder(project: Project, place: Path = _UNPACKED) -> Iterator[Observation]:  # noqa: ARG001
    """The folder in which servers unpack archives; it needs space and must not be mounted noexec."""
    if not place.is_dir():
        yield Observation(str(place), "missing", "missing; servers unpack archives there", "create it with mode 1777")
        return
    room = os.statvfs(place)
    free = room.f_frsize * room.f_bavail
    if room.f_flag & os.ST_NOEXEC:
        what = "mounted noexec: models with archives hang, since their libraries cannot be loaded"
        yield Observation(str(place), "warn", what, f"mount -o remount,exec {place}, or build with --format dir")
    elif not os.access(place, os.W_OK):
        yield Observation(str(place), "warn", "not writable", f"chmod 1777 {place}")
    elif free < 2 * _GIB:
        what = f"{_amount(free)} free; servers unpack archives there"
        yield Observation(str(place), "warn", what, "free space, or build with --format dir")
    else:
        yield Observation(str(place), "ok", f"{_amount(free)} free, exec allowed")


def cache(project: Project) -> Iterator[Observation]:
    """The cache of environments, packages and stubs."""
    place = cache_root()
    there = next(folder for folder in (place, *place.parents) if folder.exists())
    if not there.is_dir() or not os.access(there, os.W_OK | os.X_OK):
        what = f"{place} is not writable"
        yield Observation("cache", "missing", what, "set ENVPACK_CACHE_DIR to another folder")
        return
    room = os.statvfs(there)
    if room.f_flag & os.ST_NOEXEC:
        what = f"{place} is on a file system mounted noexec: no Python or compiler can run there"
        fix = "set ENVPACK_CACHE_DIR to a folder on another one, or mount it without noexec"
        yield Observation("cache", "missing", what, fix)
        return
    free = room.f_frsize * room.f_bavail
    what = f"{place}, {_amount(free)} free"
    if free < 5 * _GIB:
        yield Observation("cache", "warn", what, "run envpack cache prune, or set ENVPACK_CACHE_DIR to another folder")
    elif there.stat().st_dev != project.repository.stat().st_dev:
        what += f"; {project.repository} is on another file system, so environments are copied instead of linked"
        yield Observation("cache", "warn", what, "set ENVPACK_CACHE_DIR to a folder on that file system")
    else:
        yield Observation("cache", "ok", what)


def _amount(size: int) -> str:
    return f"{size / _GIB:.1f} GiB" if size >= _GIB else f"{size / _MIB:.0f} MiB"


_LIST_SECONDS = 3.0


def pythons(project: Project) -> Iterator[Observation]:
    """The interpreters from which environments and stubs can be built."""
    found = available_interpreters()
    usable = {one.minor: one.version for one in found if one.library}  # they are ordered by version
    static = sorted({one.minor for one in found} - usable.keys(), key=SUPPORTED.index)
    remarks = [f"without shared library: {', '.join(static)}"] if static else []
    compiled = {*prebuilt_pythons(this_machine()), *(one.minor for one in found if one.library and one.has_headers)}
    headless = [minor for minor in usable if minor not in compiled]
    fetched: list[str] = []
    if project.of().python_preference != "only-system":
        fetched, remark = _fetched([minor for minor in SUPPORTED if minor not in usable or minor in headless])
        remarks += [remark] if remark else []
    headless = [minor for minor in headless if minor not in fetched]
    remarks += [f"without the headers that a stub is compiled with: {', '.join(headless)}"] if headless else []
    absent = [minor for minor in SUPPORTED if minor not in {*usable, *static, *fetched}]
    remarks += [f"not installed: {', '.join(absent)}"] if absent else []
    closed = unreadable_folders()
    remarks += [f"{folder} cannot be read" for folder in closed]
    what = "; ".join([", ".join(usable.values()) or "none with a shared library", *remarks])
    if closed:
        yield Observation("Pythons", "warn", what, "let this user read the folder, or unset the variable")
    elif headless:
        yield Observation("Pythons", "warn", what, _fix(headless[0], headers=True))
    elif usable or fetched:
        yield Observation("Pythons", "ok", what)
    else:
        yield Observation("Pythons", "missing", what, _fix([*static, *absent][0]))


def _fetched(lacking: list[str]) -> tuple[list[str], str]:
    """Those of the lacking minor versions that uv can fetch, and a remark about them."""
    if is_set("UV_OFFLINE"):
        return [], "UV_OFFLINE forbids uv to fetch others"
    try:
        every = fetchable(_LIST_SECONDS)
    except FetchError as error:
        return [], f"uv cannot fetch others: {error.reason}"
    offered = [minor for minor in lacking if minor in every]
    if not offered:
        return [], ""
    url = every[offered[-1]]
    place = urlsplit(url).hostname or url
    if reason := unreachable(url):
        return [], f"uv cannot fetch others from {place}{reason}"
    return offered, f"fetched from {place} when needed: {', '.join(offered)}"


def _fix(minor: str, *, headers: bool = False) -> str:
    try:
        interpreter_here(minor, headers=headers)
    except EnvpackError as error:
        return error.hint
    return ""


Probe = Callable[[Project], Iterable[Observation]]

# In the order of the output.
PROBES: Mapping[str, Probe] = {
    "system": system,
    "compiled stubs": compiled_stubs,
    "compiler": compiler,
    "zig": zig,
    "tools": tools,
    "pythons": pythons,
    "channels": channels,
    "index": index,
    "server": server,
    "containers": containers,
    "gpu": gpu,
    "shared memory": shared_memory,
    "temporary folder": temporary_folder,
    "cache": cache,
}


def examine(project: Project, seconds: float = 6.0, probes: Mapping[str, Probe] = PROBES) -> tuple[Observation, ...]:
    """Examine this machine.

    Args:
        project: the project whose channels, release and repository are examined.
        seconds: time limit for each probe; a probe that exceeds it becomes a warning.
        probes: the probes to run, by name.

    Returns:
        The observations, in the order of the probes. A probe that raises an exception becomes an observation.
    """
    # A probe usually hangs in a name server or a socket, which cannot be interrupted.
    made = {
        name: in_background(partial(_observed, name, probe, project), f"probe {name}") for name, probe in probes.items()
    }
    wait(made.values(), seconds)
    what, fix = f"no response within {seconds:g} s", "find why it hangs, and run envpack doctor again"
    late = {name: (Observation(name, "warn", what, fix),) for name in probes}
    return tuple(seen for name, found in made.items() for seen in (found.result() if found.done() else late[name]))


def _observed(name: str, probe: Probe, project: Project) -> tuple[Observation, ...]:
    try:
        return tuple(probe(project))
    except EnvpackError as error:
        return (_missing(name, error),)
    except Exception as error:  # a fault of one probe must not hide the others
        explained = system_error(error)
        if explained is not None:
            return (_missing(name, explained),)
        what = f"the probe failed: {type(error).__name__}: {error}"
        return (Observation(name, "warn", what, "report it as a bug in envpack"),)


def _missing(name: str, error: EnvpackError) -> Observation:
    what = f"{error.where}: {error.message}" if error.where else error.message
    return Observation(name, "missing", what, error.hint)
