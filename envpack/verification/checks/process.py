"""Checks of the process behind a loaded model."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from envpack.repository.config_editor import START_PARAMETER
from envpack.repository.model import Model
from envpack.server.interface import Server
from envpack.server.launch import user_site_was_read
from envpack.settings.pythons import is_fetchable
from envpack.support.placed_files import STUB_NAME
from envpack.support.text import counted, major_number, printable
from envpack.verification.stub_processes import (
    Instance,
    foreign_files,
    identify,
    instances,
    mapped_python,
    reports,
    stub_processes,
)
from envpack.verification.verdict import CHECKS, Check, StubIdentity, check, failed, passed, skipped, warning

if TYPE_CHECKING:
    from envpack.settings.releases import Release

_EXTRACTED = re.compile(r"^/tmp/python_env_\w{6}/\d+")
_LIBPYTHON = re.compile(r"/libpython(3\.\d+)[^/]*\.so[^/]*$")
_STARTS_COLD = re.compile(r"envpack stub: '[^']*' starts cold: (?P<cause>[^\n]{1,500})")
_LIBRARY = re.compile(r"/(?P<name>[^/]+\.so(\.[\d.]+)?)$")
# Libraries of every system that no environment contains: the C library and its parts, and those that the stub uses.
_OF_THE_SYSTEM = re.compile(
    r"^(ld-linux|lib(c|m|dl|rt|pthread|util|gcc_s|stdc\+\+|resolv|nss_\w+|cuda|cudart|nvidia-\S+)[.\-])"
)


@dataclass(frozen=True, kw_only=True)
class Examined:
    """A snapshot of the first instance's process; all instances are started alike."""

    server: Server  # that serves the model
    model: Model
    instances: tuple[Instance, ...]  # its living instances
    stub: StubIdentity  # what the first one runs
    mapped: tuple[str, ...]  # mapped files, empty if they cannot be read
    variables: Mapping[str, str]  # environment variables at its start, empty if they cannot be read
    root: str  # unpacked folder of the model's environment on the server's file system; "" without an environment
    log: str  # of the server since the verification of the model began
    release: Release | None = None  # of the server; None if unknown
    preload: tuple[Path, ...] = ()  # libraries in the server's LD_PRELOAD

    @property
    def pid(self) -> int:
        """Of the process."""
        return self.instances[0].worker.pid


def examine(
    server: Server, model: Model, log: Callable[[], str], release: Release | None = None, preload: tuple[Path, ...] = ()
) -> Examined | None:
    """Read what the checks of a process need; None if no living process runs the model."""
    found = instances(server, model.name)
    if not found:
        return None
    pid = found[0].worker.pid
    mapped = server.mapped_files(pid)
    return Examined(
        server=server,
        model=model,
        instances=found,
        stub=identify(server, found[0]),
        mapped=mapped,
        variables=server.variables(pid),
        root=_environment_root(server, model, mapped),
        log=log(),
        release=release,
        preload=preload,
    )


def process_checks(running: Examined | None) -> Iterator[Check]:
    """The checks that need no request."""
    if running is None:
        yield failed("stub", "no living process runs the model", "read the server's log")
        return
    made = (known.run(running) for known in CHECKS.values() if known.of == "process" and known.step == "process")
    yield from (found for found in made if found)


@check("stub", of="process", kind="stub-died")
def check_stub(running: Examined) -> Check:
    """A living process runs the model, and it is the right stub: the one in the model's folder, if there is one"""
    server, model, stub = running.server, running.model, running.stub
    placed = model.folder / STUB_NAME
    if placed.exists() and stub.executable and stub.executable != server.server_path(placed):
        evidence = f"process {stub.pid} runs {stub.executable} although the model has its own stub"
        fix = "put Triton's utilities beside the stub in the backend directory"
        return failed("stub", evidence, fix)
    parts = [f"Python {stub.python}" if stub.python else "unknown Python"]
    parts += [f"NumPy {stub.numpy}"] if stub.numpy else []
    parts += [f"envpack's stub {stub.version}"] if stub.version else []
    count = len(running.instances)
    more = f" and {count - 1} more" if count > 1 else ""
    return passed("stub", f"process {stub.pid}{more}: {', '.join(parts)}, {stub.executable}")


@check("numpy", of="process", kind="numpy-unsupported")
def check_numpy(running: Examined) -> Check | None:
    """The stub supports the environment's NumPy

    The stub that comes with the Triton release runs the model, and its environment has NumPy 2. Up to release
    24.10, that stub then answers with empty tensors, and nothing reports an error. `envpack build MODEL` places
    envpack's stub beside the model in this case; `--stub never`, or an environment from another tool, leads to this
    error. See [NumPy 2](../guides/numpy-2.md).
    """
    stub, release = running.stub, running.release
    if stub.version or release is None or release.numpy2 or major_number(stub.numpy) < 2:
        return None
    what = f"the stub of Triton {release.name} itself runs NumPy {stub.numpy}; under NumPy 2 its outputs are empty"
    return failed("numpy", what, f"give the model envpack's stub: envpack build {running.model.name} --stub always")


@check("start", of="process")
def check_start(running: Examined) -> Check | None:
    """Only for a model that is to start [warm](../guides/warm-start.md): all instances did, of which template;
    otherwise a warning with the cause
    """
    model, found = running.model, running.instances
    if (model.start or running.variables.get(START_PARAMETER)) != "warm":
        return None
    build = f"envpack build {model.folder.name} --start"
    if not running.stub.version:
        return warning("start", "not warm: only envpack's stub starts models warm", f"{build} warm")
    started = zip(found, reports(running.server, found), strict=True)
    cold = sorted(instance.name for instance, report in started if report.start != "warm")
    if not cold:
        pids = ", ".join(str(pid) for pid in sorted({instance.template for instance in found}))
        return passed("start", f"warm: {counted(len(found), 'instance')} of the template, process {pids}")
    cause = _STARTS_COLD.search(running.log)
    why = printable(cause["cause"]) if cause else "see the server's log"
    fix = f"keep that out of the module level of model.py and what it imports, or use {build} cold"
    return warning("start", f"{', '.join(cold)} started cold: {why}", fix)


def _environment_root(server: Server, model: Model, mapped: tuple[str, ...]) -> str:
    """Unpacked folder of the model's environment on the server's file system; ``""`` without an environment."""
    place = model.environment
    if not place:
        return ""
    if place.is_dir():
        return server.server_path(place)
    return next((match[0] for match in map(_EXTRACTED.match, mapped) if match), server.server_path(place))


@check("environment", of="process", kind="wrong-environment")
def check_environment(running: Examined) -> Check | None:
    """It was started in the model's environment

    The process was started in another folder than the environment that the model names: `bin/activate` contains the
    path where the environment was made. Such an environment must not be moved. Build it with `envpack build`, whose
    environments can be.
    """
    # The server names the environment in CONDA_PREFIX, set by bin/activate, up to release 25.07, then in VIRTUAL_ENV.
    variables, root = running.variables, running.root
    if not root:
        return None
    started_in = variables.get("CONDA_PREFIX") or variables.get("VIRTUAL_ENV")
    if not variables:
        return skipped("environment", f"the variables of process {running.pid} cannot be read")
    if started_in is None:
        evidence = "the process has neither CONDA_PREFIX nor VIRTUAL_ENV: bin/activate does not set it"
        return warning("environment", evidence, "rebuild the environment with envpack build, or correct bin/activate")
    if PurePosixPath(started_in) != PurePosixPath(root):
        fix = "the environment's activate script names another folder: it is not relocatable; rebuild it"
        return failed("environment", f"the process was started in {started_in}, not in {root}", fix)
    return passed("environment", f"started in {root}")


@check("libpython", of="process", kind="wrong-libpython")
def check_libpython(running: Examined) -> Check | None:
    """One Python library is in its memory, the environment's

    The model's process has a Python library in memory that is not its environment's, or more than one. With one:
    the environment usually has none of the stub's version, so the system's was found; build stub and environment
    for the same Python. With two: a package is linked against its own libpython; `ldd` on the files of the
    environment finds it.
    """
    libraries = [path for path in running.mapped if _LIBPYTHON.search(path)]
    if not running.mapped:
        return skipped("libpython", f"the memory map of process {running.pid} cannot be read")
    if not libraries:
        return passed("libpython", "Python is linked into the stub")
    if len(libraries) > 1:
        fix = "a library in the environment is linked to another Python; find it with ldd and rebuild it"
        return failed("libpython", f"more than one Python in one process: {', '.join(libraries)}", fix)
    if running.root and not PurePosixPath(libraries[0]).is_relative_to(running.root):
        fix = "the environment has no libpython of the stub's version: build stub and environment for the same Python"
        return failed("libpython", f"{libraries[0]} is outside the environment", fix)
    return passed("libpython", libraries[0])


@check("user-site", of="process", kind="user-site-leaks")
def check_user_site(running: Examined) -> Check:
    """Packages in `~/.local` are not read: each server gets a home folder with a package that reports if it is imported

    The model's Python reads packages from `~/.local` of the user that runs the server, so the model depends on the
    machine. `envpack verify` puts a package there that reports if it is imported. Environments of `envpack build`
    exclude the user site; for others, set `PYTHONNOUSERSITE=1` for the server, or export it in `bin/activate`.
    """
    if user_site_was_read(running.log):
        fix = "start the server with PYTHONNOUSERSITE=1, or build the environment with envpack build, which sets it"
        return failed("user-site", "the model's Python reads packages from ~/.local of the server's user", fix)
    how = "PYTHONNOUSERSITE is set" if running.variables.get("PYTHONNOUSERSITE") else "without PYTHONNOUSERSITE"
    return passed("user-site", f"packages in ~/.local were not read ({how})")


@check("isolation", of="process", kind="not-isolated")
def check_isolation(running: Examined) -> Check | None:
    """Python and its packages come from the environment

    The model runs, but some of its packages come from outside of its environment; the first such file is named. The
    model would fail on another machine. The environment lacks the package, or was made by another tool.
    """
    if not running.root or not running.mapped:
        return None
    foreign = foreign_files(running.mapped, running.root)
    if foreign:
        fix = "the environment lacks the file, or its activate script does not isolate it from the machine's own Python"
        return failed("isolation", f"{len(foreign)} files loaded from outside the environment, first {foreign[0]}", fix)
    return passed("isolation", f"Python and its packages are from {running.root}")


@check("libraries", of="process")
def check_libraries(running: Examined) -> Check | None:
    """Which native libraries are the system's; a warning, because another image may not have them"""
    root = running.root
    if not root or not running.mapped:
        return None
    found = {match["name"]: path for path in running.mapped if (match := _LIBRARY.search(path))}
    own = [name for name, path in found.items() if PurePosixPath(path).is_relative_to(root)]
    own_folders = (root, running.server.server_path(running.model.folder))
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


@check("preload", of="process", kind="preload-missing")
def check_preload(running: Examined) -> Check | None:
    """The libraries of `preload` are in its memory

    A library of `preload` is not in the memory of the model's process. The loader only warns when it cannot find or
    load one. A container must have the library at that path, for the same processor: install it in the image, or
    name a file of this machine, which a container then sees at the same path.
    """
    if not running.preload:
        return None
    mapped = {PurePosixPath(path).name for path in running.mapped}
    names = [str(path) for path in running.preload]
    missing = [name for name in names if not _is_mapped(PurePosixPath(name).name, mapped)]
    if missing:
        fix = "check that the server has the library, for its processor; the loader's error is in the server's log"
        return failed("preload", f"{', '.join(missing)} is not in the memory of process {running.pid}", fix)
    return passed("preload", f"{', '.join(names)} is in the memory of process {running.pid}")


def _is_mapped(name: str, mapped: set[str]) -> bool:
    """A mapping names the target of a link, whose name can continue with more of the version."""
    return any(file == name or file.startswith(f"{name}.") for file in mapped)


@check("stability", of="process", step="inference", kind="stub-died")
def check_stability(server: Server, model: Model, before: dict[int, int]) -> Check:
    """The same processes exist afterwards; the change of their memory is reported"""
    now = {process.pid: server.memory_bytes(process.pid) for process in stub_processes(server, model.name)}
    if set(now) != set(before):
        fix = "the model's process ended during a request; see its last lines of output"
        return failed("stability", f"processes {sorted(before)} became {sorted(now)}", fix)
    grown = sum(now.values()) - sum(before.values())
    return passed("stability", f"same processes; {sum(now.values()) >> 20} MiB in memory, {grown >> 20:+d} MiB")
