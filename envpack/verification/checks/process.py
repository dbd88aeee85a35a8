"""What the process behind a loaded model must show."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from envpack.repository import STUB_NAME, Model, environment_of
from envpack.server import Process, Server, user_site_was_read
from envpack.verification.stub_processes import foreign_files, identify, stub_processes
from envpack.verification.verdict import Check, StubIdentity, failed, passed, skipped, warning

if TYPE_CHECKING:
    from envpack.releases import Release

_EXTRACTED = re.compile(r"^/tmp/python_env_\w{6}/\d+")
_LIBPYTHON = re.compile(r"/libpython(3\.\d+)[^/]*\.so[^/]*$")
_LIBRARY = re.compile(r"/(?P<name>[^/]+\.so(\.[\d.]+)?)$")
# What every system has and no environment brings: the C library and its parts, and what the stub itself may use.
_OF_THE_SYSTEM = re.compile(
    r"^(ld-linux|lib(c|m|dl|rt|pthread|util|gcc_s|stdc\+\+|resolv|nss_\w+|cuda|cudart|nvidia-\S+)[.\-])"
)


@dataclass(frozen=True)
class StubState:
    """A model's process, looked at once.

    Attributes:
        process: the process.
        mapped: files in its memory, none if they cannot be read.
        variables: what it was started with, none if they cannot be read.
        root: the folder of the model's environment as the process sees it, unpacked; ``""`` if the model names none.

    """

    process: Process
    mapped: tuple[str, ...]
    variables: Mapping[str, str]
    root: str


def read_stub_state(server: Server, model: Model, process: Process) -> StubState:
    """Gather what the checks of one process need."""
    mapped = server.mapped_files(process.pid)
    return StubState(process, mapped, server.variables(process.pid), _environment_root(server, model, mapped))


def check_stub(server: Server, model: Model) -> tuple[Check, StubIdentity | None]:
    """Whether a living process runs the model, and which; which stub it should be is settled by the model's folder."""
    processes = stub_processes(server, model.name)
    if not processes:
        return failed("stub", "no living process runs the model", "look at the server's log"), None
    stub = identify(server, processes[0])
    placed = model.folder / STUB_NAME
    if placed.exists() and stub.executable and stub.executable != server.server_path(placed):
        evidence = f"process {stub.pid} runs {stub.executable} although the model has its own stub"
        fix = "put Triton's utilities beside the stub of the backend's folder"
        return failed("stub", evidence, fix), stub
    parts = [f"Python {stub.python}" if stub.python else "unknown Python"]
    parts += [f"NumPy {stub.numpy}"] if stub.numpy else []
    parts += [f"envpack's stub {stub.version}"] if stub.version else []
    more = f" and {len(processes) - 1} more" if len(processes) > 1 else ""
    return passed("stub", f"process {stub.pid}{more}: {', '.join(parts)}, {stub.executable}"), stub


def check_numpy(model: Model, stub: StubIdentity, release: Release | None) -> Check | None:
    """Whether the stub can do the environment's NumPy; None if there is nothing to doubt.

    The stubs of releases up to 24.10 answer with empty tensors under NumPy 2, without any error.
    """
    is_numpy2 = stub.numpy.partition(".")[0].isdigit() and int(stub.numpy.partition(".")[0]) >= 2
    if stub.version or release is None or release.numpy2 or not is_numpy2:
        return None
    return failed(
        "numpy",
        f"the stub of Triton {release.name} itself runs NumPy {stub.numpy}; under NumPy 2 its answers are empty",
        f"give the model envpack's stub: envpack build {model.name} --stub always",
    )


def _environment_root(server: Server, model: Model, mapped: tuple[str, ...]) -> str:
    """The folder of the model's environment as its process sees it, unpacked; ``""`` if the model names none."""
    place = environment_of(model)
    if not place:
        return ""
    if place.is_dir():
        return server.server_path(place)
    return next((match[0] for match in map(_EXTRACTED.match, mapped) if match), server.server_path(place))


def check_environment(running: StubState) -> Check | None:
    """Whether the process was started in the model's environment; None if the model names none.

    The server says so in a variable: ``CONDA_PREFIX``, set by the environment's activate, up to 25.07, and
    ``VIRTUAL_ENV`` since.
    """
    variables, root = running.variables, running.root
    if not root:
        return None
    told = variables.get("CONDA_PREFIX") or variables.get("VIRTUAL_ENV")
    if not variables:
        return skipped("environment", f"the variables of process {running.process.pid} cannot be read")
    if told is None:
        evidence = "the process has neither CONDA_PREFIX nor VIRTUAL_ENV: bin/activate does not set it"
        return warning("environment", evidence, "rebuild the environment with envpack build, or mend bin/activate")
    if PurePosixPath(told) != PurePosixPath(root):
        fix = "the environment's activate script names another folder: it is not relocatable; rebuild it"
        return failed("environment", f"the process was started in {told}, not in {root}", fix)
    return passed("environment", f"started in {root}")


def check_libpython(running: StubState) -> Check | None:
    """Whether the process has one Python library in its memory, that of the environment."""
    libraries = [path for path in running.mapped if _LIBPYTHON.search(path)]
    if not running.mapped:
        return skipped("libpython", f"the memory map of process {running.process.pid} cannot be read")
    if not libraries:
        return passed("libpython", "Python is part of the stub's own file")
    if len(libraries) > 1:
        fix = "something in the environment links another Python; find it with ldd and rebuild it"
        return failed("libpython", f"more than one Python in one process: {', '.join(libraries)}", fix)
    if running.root and not PurePosixPath(libraries[0]).is_relative_to(running.root):
        fix = "the environment has no libpython of the stub's version: build stub and environment for the same Python"
        return failed("libpython", f"{libraries[0]} is not the environment's", fix)
    return passed("libpython", libraries[0])


def check_isolation(running: StubState) -> Check | None:
    """Whether Python and its packages are the environment's; None if the model names no environment."""
    if not running.root or not running.mapped:
        return None
    foreign = foreign_files(running.mapped, running.root)
    if foreign:
        return failed(
            "isolation",
            f"{len(foreign)} files loaded from outside of the environment, first {foreign[0]}",
            "the environment lacks it, or its activate script does not keep the machine's own Python out",
        )
    return passed("isolation", f"Python and its packages are from {running.root}")


def check_user_site(log: str, variables: Mapping[str, str]) -> Check:
    """Whether Python keeps away from the packages in the home folder of the server's user.

    Every server is given a home folder whose packages betray that they were read; see `write_user_site_probe`.
    """
    if user_site_was_read(log):
        return failed(
            "user-site",
            "the model's Python reads packages from ~/.local of the server's user",
            "start the server with PYTHONNOUSERSITE=1, or build the environment with envpack build, which sees to it",
        )
    how = "PYTHONNOUSERSITE is set" if variables.get("PYTHONNOUSERSITE") else "without PYTHONNOUSERSITE"
    return passed("user-site", f"packages in ~/.local were not read ({how})")


def check_libraries(server: Server, model: Model, running: StubState) -> Check | None:
    """Which native libraries come from the server's system and not from the environment."""
    root = running.root
    if not root or not running.mapped:
        return None
    found = {match["name"]: path for path in running.mapped if (match := _LIBRARY.search(path))}
    own = [name for name, path in found.items() if PurePosixPath(path).is_relative_to(root)]
    own_folders = (root, server.server_path(model.folder))
    others = sorted(name for name, path in found.items() if _is_of_the_system(name, path, own_folders))
    if not others:
        return passed("libraries", f"{len(own)} native libraries, all the environment's")
    shown = ", ".join(others[:3]) + (f" and {len(others) - 3} more" if len(others) > 3 else "")
    fix = "fine as long as every server's image has them; add packages that hold them to be independent of it"
    return warning("libraries", f"native libraries from the system: {shown}", fix)


def _is_of_the_system(name: str, path: str, own_folders: tuple[str, ...]) -> bool:
    where = PurePosixPath(path)
    return not any(where.is_relative_to(folder) for folder in own_folders) and not _OF_THE_SYSTEM.match(name)


def check_preload(running: StubState, objects: tuple[Path, ...]) -> Check | None:
    """Whether the libraries that the server was started with in ``LD_PRELOAD`` are in the model's process."""
    if not objects:
        return None
    mapped = {PurePosixPath(path).name for path in running.mapped}
    names = [str(one) for one in objects]
    missing = [name for name in names if not _is_mapped(PurePosixPath(name).name, mapped)]
    if missing:
        fix = "is it there for the server, for the same processor? The loader's complaint is in the server's log"
        return failed("preload", f"{', '.join(missing)} is not in the memory of process {running.process.pid}", fix)
    return passed("preload", f"{', '.join(names)} is in the memory of process {running.process.pid}")


def _is_mapped(name: str, mapped: set[str]) -> bool:
    """A mapping tells the file that a link leads to, whose name goes on with more of the version."""
    return any(one == name or one.startswith(f"{name}.") for one in mapped)


def check_stability(server: Server, model: Model, before: dict[int, int]) -> Check:
    """Whether the model's processes are still those of before it was asked, and how their memory has changed.

    Args:
        server: where they run.
        model: the model.
        before: resident bytes by process id, before it was asked.

    """
    now = {process.pid: server.resident_bytes(process.pid) for process in stub_processes(server, model.name)}
    if set(now) != set(before):
        fix = "the model's process ended while it answered; its last lines tell more"
        return failed("stability", f"processes {sorted(before)} became {sorted(now)}", fix)
    grown = sum(now.values()) - sum(before.values())
    return passed("stability", f"same processes; {sum(now.values()) >> 20} MiB in memory, {grown >> 20:+d} MiB")
