"""Checks of the process behind a loaded model."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from envpack.conda import is_fetchable
from envpack.repository import START_PARAMETER, STUB_NAME, Model, configured_start, environment_of
from envpack.server import Process, Server, user_site_was_read
from envpack.support.text import counted, major_number, printable
from envpack.verification.stub_processes import (
    foreign_files,
    identify,
    instances,
    mapped_python,
    reports,
    stub_processes,
)
from envpack.verification.verdict import Check, StubIdentity, failed, passed, skipped, warning

if TYPE_CHECKING:
    from envpack.releases import Release

_EXTRACTED = re.compile(r"^/tmp/python_env_\w{6}/\d+")
_LIBPYTHON = re.compile(r"/libpython(3\.\d+)[^/]*\.so[^/]*$")
_STARTS_COLD = re.compile(r"envpack stub: '[^']*' starts cold: (?P<cause>[^\n]{1,500})")
_LIBRARY = re.compile(r"/(?P<name>[^/]+\.so(\.[\d.]+)?)$")
# Libraries of every system that no environment contains: the C library and its parts, and those that the stub uses.
_OF_THE_SYSTEM = re.compile(
    r"^(ld-linux|lib(c|m|dl|rt|pthread|util|gcc_s|stdc\+\+|resolv|nss_\w+|cuda|cudart|nvidia-\S+)[.\-])"
)


@dataclass(frozen=True)
class StubState:
    """A snapshot of a model's process.

    Attributes:
        process: the process.
        mapped: mapped files, empty if they cannot be read.
        variables: environment variables at its start, empty if they cannot be read.
        root: unpacked folder of the model's environment on the server's file system; ``""`` without an environment.
    """

    process: Process
    mapped: tuple[str, ...]
    variables: Mapping[str, str]
    root: str


def read_stub_state(server: Server, model: Model, process: Process) -> StubState:
    """Read the state that the checks of one process need."""
    mapped = server.mapped_files(process.pid)
    return StubState(process, mapped, server.variables(process.pid), _environment_root(server, model, mapped))


def check_stub(server: Server, model: Model) -> tuple[Check, StubIdentity | None]:
    """Check that a living process runs the model, and identify it.

    The expected stub is the one in the model's folder, if there is one.
    """
    found = instances(server, model.name)
    if not found:
        return failed("stub", "no living process runs the model", "read the server's log"), None
    stub = identify(server, found[0])
    placed = model.folder / STUB_NAME
    if placed.exists() and stub.executable and stub.executable != server.server_path(placed):
        evidence = f"process {stub.pid} runs {stub.executable} although the model has its own stub"
        fix = "put Triton's utilities beside the stub in the backend directory"
        return failed("stub", evidence, fix), stub
    parts = [f"Python {stub.python}" if stub.python else "unknown Python"]
    parts += [f"NumPy {stub.numpy}"] if stub.numpy else []
    parts += [f"envpack's stub {stub.version}"] if stub.version else []
    more = f" and {len(found) - 1} more" if len(found) > 1 else ""
    return passed("stub", f"process {stub.pid}{more}: {', '.join(parts)}, {stub.executable}"), stub


def check_start(server: Server, model: Model, running: StubState, stub: StubIdentity, log: str) -> Check | None:
    """Check that all instances started warm; None if that was not requested."""
    if (configured_start(model.config) or running.variables.get(START_PARAMETER)) != "warm":
        return None
    build = f"envpack build {model.folder.name} --start"
    if not stub.version:
        return warning("start", "not warm: only envpack's stub starts models warm", f"{build} warm")
    found = instances(server, model.name)
    started = zip(found, reports(server, found), strict=True)
    cold = sorted(instance.name for instance, report in started if report.start != "warm")
    if not cold:
        pids = ", ".join(str(pid) for pid in sorted({instance.template for instance in found}))
        return passed("start", f"warm: {counted(len(found), 'instance')} of the template, process {pids}")
    cause = _STARTS_COLD.search(log)
    why = printable(cause["cause"]) if cause else "see the server's log"
    fix = f"keep that out of the module level of model.py and what it imports, or use {build} cold"
    return warning("start", f"{', '.join(cold)} started cold: {why}", fix)


def check_numpy(model: Model, stub: StubIdentity, release: Release | None) -> Check | None:
    """Check that the stub supports the environment's NumPy; None if no problem is known.

    The stubs of releases up to 24.10 return empty tensors under NumPy 2, without an error.
    """
    if stub.version or release is None or release.numpy2 or major_number(stub.numpy) < 2:
        return None
    return failed(
        "numpy",
        f"the stub of Triton {release.name} itself runs NumPy {stub.numpy}; under NumPy 2 its outputs are empty",
        f"give the model envpack's stub: envpack build {model.name} --stub always",
    )


def _environment_root(server: Server, model: Model, mapped: tuple[str, ...]) -> str:
    """Unpacked folder of the model's environment on the server's file system; ``""`` without an environment."""
    place = environment_of(model)
    if not place:
        return ""
    if place.is_dir():
        return server.server_path(place)
    return next((match[0] for match in map(_EXTRACTED.match, mapped) if match), server.server_path(place))


def check_environment(running: StubState) -> Check | None:
    """Check that the process was started in the model's environment; None if the model has none.

    The server names the environment in a variable: ``CONDA_PREFIX``, set by the environment's activate script, up to
    release 25.07, and ``VIRTUAL_ENV`` from 25.08.
    """
    variables, root = running.variables, running.root
    if not root:
        return None
    started_in = variables.get("CONDA_PREFIX") or variables.get("VIRTUAL_ENV")
    if not variables:
        return skipped("environment", f"the variables of process {running.process.pid} cannot be read")
    if started_in is None:
        evidence = "the process has neither CONDA_PREFIX nor VIRTUAL_ENV: bin/activate does not set it"
        return warning("environment", evidence, "rebuild the environment with envpack build, or correct bin/activate")
    if PurePosixPath(started_in) != PurePosixPath(root):
        fix = "the environment's activate script names another folder: it is not relocatable; rebuild it"
        return failed("environment", f"the process was started in {started_in}, not in {root}", fix)
    return passed("environment", f"started in {root}")


def check_libpython(running: StubState) -> Check | None:
    """Check that the process has mapped exactly one Python library, from the model's environment."""
    libraries = [path for path in running.mapped if _LIBPYTHON.search(path)]
    if not running.mapped:
        return skipped("libpython", f"the memory map of process {running.process.pid} cannot be read")
    if not libraries:
        return passed("libpython", "Python is linked into the stub")
    if len(libraries) > 1:
        fix = "a library in the environment is linked to another Python; find it with ldd and rebuild it"
        return failed("libpython", f"more than one Python in one process: {', '.join(libraries)}", fix)
    if running.root and not PurePosixPath(libraries[0]).is_relative_to(running.root):
        fix = "the environment has no libpython of the stub's version: build stub and environment for the same Python"
        return failed("libpython", f"{libraries[0]} is outside the environment", fix)
    return passed("libpython", libraries[0])


def check_isolation(running: StubState) -> Check | None:
    """Check that Python and its packages come from the environment; None if the model has none."""
    if not running.root or not running.mapped:
        return None
    foreign = foreign_files(running.mapped, running.root)
    if foreign:
        return failed(
            "isolation",
            f"{len(foreign)} files loaded from outside the environment, first {foreign[0]}",
            "the environment lacks the file, or its activate script does not isolate it from the machine's own Python",
        )
    return passed("isolation", f"Python and its packages are from {running.root}")


def check_user_site(log: str, variables: Mapping[str, str]) -> Check:
    """Check that Python does not import packages from the home folder of the server's user.

    The home folder of every server contains a probe, see `write_user_site_probe`.
    """
    if user_site_was_read(log):
        return failed(
            "user-site",
            "the model's Python reads packages from ~/.local of the server's user",
            "start the server with PYTHONNOUSERSITE=1, or build the environment with envpack build, which sets it",
        )
    how = "PYTHONNOUSERSITE is set" if variables.get("PYTHONNOUSERSITE") else "without PYTHONNOUSERSITE"
    return passed("user-site", f"packages in ~/.local were not read ({how})")


def check_libraries(server: Server, model: Model, running: StubState) -> Check | None:
    """Warn about native libraries that come from the server's system; None if the model has no environment."""
    root = running.root
    if not root or not running.mapped:
        return None
    found = {match["name"]: path for path in running.mapped if (match := _LIBRARY.search(path))}
    own = [name for name, path in found.items() if PurePosixPath(path).is_relative_to(root)]
    own_folders = (root, server.server_path(model.folder))
    others = sorted(name for name, path in found.items() if _is_of_the_system(name, path, own_folders))
    if not others:
        return passed("libraries", f"{len(own)} native libraries, all from the environment")
    shown = ", ".join(others[:3]) + (f" and {len(others) - 3} more" if len(others) > 3 else "")
    managed = (
        ", or for those of Python --set python_preference=managed,"
        if is_fetchable(mapped_python(running.mapped))
        else ""
    )
    fix = f"works as long as every server's image has them; packages that contain them{managed} remove the dependency"
    return warning("libraries", f"native libraries from the system: {shown}", fix)


def _is_of_the_system(name: str, path: str, own_folders: tuple[str, ...]) -> bool:
    where = PurePosixPath(path)
    return not any(where.is_relative_to(folder) for folder in own_folders) and not _OF_THE_SYSTEM.match(name)


def check_preload(running: StubState, libraries: tuple[Path, ...]) -> Check | None:
    """Check that the libraries in the server's ``LD_PRELOAD`` are mapped in the model's process."""
    if not libraries:
        return None
    mapped = {PurePosixPath(path).name for path in running.mapped}
    names = [str(path) for path in libraries]
    missing = [name for name in names if not _is_mapped(PurePosixPath(name).name, mapped)]
    if missing:
        fix = "check that the server has the library, for its processor; the loader's error is in the server's log"
        return failed("preload", f"{', '.join(missing)} is not in the memory of process {running.process.pid}", fix)
    return passed("preload", f"{', '.join(names)} is in the memory of process {running.process.pid}")


def _is_mapped(name: str, mapped: set[str]) -> bool:
    """A mapping names the target of a link, whose name can continue with more of the version."""
    return any(file == name or file.startswith(f"{name}.") for file in mapped)


def check_stability(server: Server, model: Model, before: dict[int, int]) -> Check:
    """Check that the model's processes are the same as before the requests, and report the change of their memory."""
    now = {process.pid: server.memory_bytes(process.pid) for process in stub_processes(server, model.name)}
    if set(now) != set(before):
        fix = "the model's process ended during a request; see its last lines of output"
        return failed("stability", f"processes {sorted(before)} became {sorted(now)}", fix)
    grown = sum(now.values()) - sum(before.values())
    return passed("stability", f"same processes; {sum(now.values()) >> 20} MiB in memory, {grown >> 20:+d} MiB")
