"""Which processes run a model, with which Python, and whether one of them has died."""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path, PurePosixPath as PosixPath

from envpack.server import Process, Server, stub_reports
from envpack.stub import inspect_stub
from envpack.support.errors import StubError
from envpack.verification.verdict import StubIdentity

_MODEL_FILE, _INSTANCE, _ARGUMENTS = 1, 8, 9
_LIBPYTHON = re.compile(r"/libpython(3\.\d+)\S*\.so")
_NUMPY = re.compile(r"^(?P<packages>.*/(?:site|dist)-packages)/numpy/")
_NUMPY_INFO = re.compile(r"^numpy-(?P<version>[^-]+)\.dist-info$")
_EXTENSION = re.compile(r"-packages/.*\.(?:cpython-3\d+[^/]*|abi3)\.so$")
_REPORT_SECONDS = 3.0
_POLL_SECONDS = 0.05
_ABORT_SECONDS = 2.0
_DYING_NAMES = ("triton_python_b", "bash", "sh", "env")


def stub_processes(server: Server, model: str) -> tuple[Process, ...]:
    """The living stubs of a model's instances, by process id."""
    return tuple(child for child in _alive(server.children()) if _model_of(child) == model)


def living_stubs(server: Server) -> tuple[Process, ...]:
    """The living stubs of all models."""
    return tuple(child for child in _alive(server.children()) if _model_of(child))


def identify(server: Server, process: Process) -> StubIdentity:
    """Tell what a stub is: by its own report if it is one of ours, else by the files in its memory."""
    executable = server.executable(process.pid)
    ours = _version_of_ours(server.host_path(executable))
    report = _report(server, process.arguments[_INSTANCE], _REPORT_SECONDS if ours else 0)
    mapped = server.mapped_files(process.pid)
    return StubIdentity(
        process.pid,
        executable,
        str(report.get("python") or _mapped_python(mapped)),
        str(report.get("numpy") or _mapped_numpy(server, mapped)),
        str(report.get("stub") or ours),
    )


def _report(server: Server, instance: str, seconds: float) -> Mapping[str, object]:
    """What a stub says of itself; its line may reach the log some time after the model is ready."""
    until = time.monotonic() + seconds
    while True:
        report = stub_reports(server.log()).get(instance)
        if report is not None or time.monotonic() >= until:
            return report or {}
        time.sleep(_POLL_SECONDS)


def _version_of_ours(executable: Path | None) -> str:
    """Version of envpack that a stub's file came from, or nothing if it is not one of ours."""
    try:
        return inspect_stub(executable).version if executable else ""
    except (StubError, OSError):
        return ""


def dead_stubs(server: Server) -> tuple[int, ...]:
    """Process ids of stubs (or of the shells that should have become stubs) that ended without being waited for."""
    return tuple(c.pid for c in server.children() if c.dead and c.name in _DYING_NAMES)


def describe_exit(server: Server, ignore: frozenset[int]) -> str:
    """How the stub that ended last did so, in words; ``""`` if that cannot be seen, or it ended as it should.

    Args:
        server: where it ran.
        ignore: stubs that ended before.

    """
    children = server.children()
    ended = [c.status for c in children if c.dead and c.status and c.name in _DYING_NAMES and c.pid not in ignore]
    return _in_words(ended[-1]) if ended else ""


def _in_words(status: int) -> str:
    if not os.WIFSIGNALED(status):
        return f"it ended with exit status {os.WEXITSTATUS(status)}"
    number = os.WTERMSIG(status)
    known = number in set(signal.Signals)
    return f"it was ended by {signal.Signals(number).name if known else f'signal {number}'}"


def abort_stubs(server: Server, model: str) -> None:
    """End the stubs of a model that stands still so that envpack's say in the log where their Python is.

    What a stub has started goes first, and may end what it writes: the process that completes the configuration does
    not outlive its stub.
    """
    stubs = tuple(stub.pid for stub in stub_processes(server, model))
    _abort(server, lambda: _alive(child for stub in stubs for child in server.children(stub)))
    _abort(server, lambda: stub_processes(server, model))


def _abort(server: Server, find: Callable[[], tuple[Process, ...]]) -> None:
    """Abort the processes that ``find`` gives, and wait a while until it gives none any more."""
    for process in find():
        server.abort(process.pid)
    until = time.monotonic() + _ABORT_SECONDS
    while find() and time.monotonic() < until:
        time.sleep(_POLL_SECONDS)


def foreign_files(mapped: tuple[str, ...], environment: str) -> tuple[str, ...]:
    """Of the files that a stub has mapped, the Python library and extension modules from outside of ``environment``."""
    relevant = (path for path in mapped if _LIBPYTHON.search(path) or _EXTENSION.search(path))
    return tuple(path for path in relevant if not PosixPath(path).is_relative_to(environment))


def _alive(processes: Iterable[Process]) -> tuple[Process, ...]:
    return tuple(process for process in processes if not process.dead)


def _model_of(process: Process) -> str:
    """Name of the model's folder: the stub's first argument is ``<model>/<version>/<file>``."""
    if len(process.arguments) < _ARGUMENTS:
        return ""
    return PosixPath(process.arguments[_MODEL_FILE]).parent.parent.name


def _mapped_python(mapped: tuple[str, ...]) -> str:
    return next((match[1] for match in map(_LIBPYTHON.search, mapped) if match), "")


def _mapped_numpy(server: Server, mapped: tuple[str, ...]) -> str:
    packages = next((match["packages"] for match in map(_NUMPY.match, mapped) if match), None)
    if packages is None:
        return ""
    infos = map(_NUMPY_INFO.search, server.list_folder(packages))
    return next((match["version"] for match in infos if match), "")
