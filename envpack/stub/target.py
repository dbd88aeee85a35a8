"""The Python that a stub is compiled for."""

from __future__ import annotations

import platform
from dataclasses import dataclass
from pathlib import Path

from envpack.environment import interpreter_for
from envpack.errors import StubError


@dataclass(frozen=True)
class StubTarget:
    """A Python with everything that compiling against it takes.

    Attributes:
        minor: for example ``"3.8"``.
        machine: for example ``"x86_64"``.
        include: folder of ``Python.h``.
        library: ``libpython3.8.so.1.0``.
    """

    minor: str
    machine: str
    include: Path
    library: Path


def target_from_interpreter(minor: str) -> StubTarget:
    """The interpreter of that minor version on this machine.

    Raises:
        UsageError: ``minor`` is no supported version.
        EnvironmentBuildError: there is none with a shared library (the message lists what is there).
        StubError: its headers are missing.
    """
    found = interpreter_for(minor)
    if found.library is None:  # interpreter_for() refuses static ones; this is for the type
        raise StubError(
            "no shared libpython",
            kind="libpython-missing",
            where=str(found.executable),
            hint="use a Python built with --enable-shared",
        )
    return _checked(StubTarget(minor, platform.machine(), found.include, found.library))


def target_from_prefix(prefix: Path) -> StubTarget:
    """The Python inside of an execution environment.

    Raises:
        StubError: the prefix holds no Python, or not its headers or shared library.
    """
    libraries = sorted((prefix / "lib").glob("libpython3.*.so.1.0"))
    if not libraries:
        raise StubError(
            "no shared libpython in this environment",
            kind="libpython-missing",
            where=str(prefix / "lib"),
            hint="build the environment with `envpack build`",
        )
    library = libraries[0]
    minor = library.name.removeprefix("libpython").removesuffix(".so.1.0")
    return _checked(StubTarget(minor, platform.machine(), prefix / "include" / f"python{minor}", library))


def _checked(target: StubTarget) -> StubTarget:
    if not (target.include / "Python.h").is_file():
        raise StubError(
            f"the headers of Python {target.minor} are missing",
            kind="headers-missing",
            where=str(target.include),
            hint=f"install them, for example the package python{target.minor}-dev",
        )
    return target
