"""The environment of the GPU models: an interpreter's files as links, a library for GPUs, and a stub."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from envpack.conda.choice import interpreter_for
from envpack.conda.interpreters import Interpreter, available_interpreters
from envpack.environment.relocation import write_activation
from envpack.settings.pythons import SUPPORTED
from envpack.stub.build import build_stub
from envpack.stub.recipe import Cell
from envpack.stub.target import target_from_interpreter
from envpack.support.errors import EnvpackError

_FIRST = ("3.10", "3.11", "3.12")
PREFERRED = (*_FIRST, *(minor for minor in SUPPORTED if minor not in _FIRST))
# Built for CUDA 12, as the server is, so that they need no newer driver.
REQUIREMENTS = {
    "torch": ("torch<2.9", "numpy"),
    "cupy": ("cupy-cuda12x", "nvidia-cuda-nvrtc-cu12", "nvidia-cuda-runtime-cu12", "numpy"),
}
_INSTALL_SECONDS = 1800
_PROBE = """
import json, sys
from importlib.util import find_spec
folders = [p for p in sys.path if p.rstrip("/").endswith("-packages")]
found = [name for name in ("torch", "cupy") if find_spec(name) and find_spec("numpy")]
print(json.dumps({"minor": "%d.%d" % sys.version_info[:2], "folders": folders, "libraries": found}))
"""


class UnpreparedError(Exception):
    """A part of the environment is missing and cannot be created; the text says what to do."""


@dataclass(frozen=True)
class SetupOptions:
    """The user's options; an empty string or tuple selects a default."""

    python: str = ""
    library: str = ""
    packages: tuple[Path, ...] = ()
    requirements: tuple[str, ...] = ()
    stub: Path | None = None


@dataclass(frozen=True)
class ModelSetup:
    """The parts that all models share.

    Attributes:
        environment: folder for EXECUTION_ENV_PATH.
        stub: our stub for its Python.
        library: ``torch`` or ``cupy``; empty if the environment has none, for models that need none.
        libraries: folders with shared libraries that the library looks for, for LD_LIBRARY_PATH.

    """

    environment: Path
    stub: Path
    library: str = ""
    libraries: tuple[Path, ...] = ()


@dataclass(frozen=True)
class _Packages:
    """Folders that already contain a library, for one Python."""

    minor: str
    folders: tuple[Path, ...]
    library: str


def prepare_setup(options: SetupOptions, folder: Path) -> ModelSetup:
    """Create the parts of the models in ``folder``, or use those that exist.

    Raises:
        UnpreparedError: something cannot be found, installed or compiled.

    """
    try:
        packages = _find_packages(options)
        if packages is None:
            environment, library = _prepared(options, folder)
            minor = environment.name.split("-")[1]
        else:
            minor, library = packages.minor, packages.library
            environment = _around(packages, folder)
        stub = options.stub or build_stub(Cell(target_from_interpreter(minor))).path
    except EnvpackError as error:
        raise UnpreparedError(str(error)) from error
    places = packages.folders if packages else tuple(environment.glob("lib/python3*/site-packages"))
    return ModelSetup(environment, stub, library, _libraries(library, places))


def _libraries(library: str, places: tuple[Path, ...]) -> tuple[Path, ...]:
    """PyTorch finds the libraries of NVIDIA's wheels by itself, CuPy uses the loader."""
    if library != "cupy":
        return ()
    return tuple(folder for place in places for folder in sorted(place.glob("nvidia/*/lib")))


def _find_packages(options: SetupOptions) -> _Packages | None:
    """Folders that contain a library: the given ones, else those of a Python on this machine."""
    if options.packages:
        library = options.library or _library_in(options.packages)
        return _Packages(options.python or _default_python(), options.packages, library)
    if options.requirements:
        return None
    for found in _pythons_with_library():
        fits = options.python in ("", found.minor) and options.library in ("", found.library)
        if fits and _has_shared_library(found.minor):
            return found
    return None


def _library_in(folders: tuple[Path, ...]) -> str:
    for library in REQUIREMENTS:
        if any((folder / library).is_dir() for folder in folders):
            return library
    raise UnpreparedError(f"neither torch nor cupy is in {', '.join(map(str, folders))}")


def _pythons_with_library() -> Iterator[_Packages]:
    names = ("python3", *(f"python{minor}" for minor in PREFERRED))
    executables = dict.fromkeys(filter(None, (shutil.which(name) for name in names)))
    for executable in executables:
        facts = _read_packages(executable)
        for library in facts.get("libraries", ()):
            yield _Packages(facts["minor"], tuple(map(Path, facts["folders"])), library)


def _read_packages(executable: str) -> dict[str, Any]:
    variables = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    try:
        done = subprocess.run(
            [executable, "-c", _PROBE], env=variables, capture_output=True, text=True, timeout=60, check=True
        )
        facts: dict[str, Any] = json.loads(done.stdout)
    except (OSError, subprocess.SubprocessError, ValueError):
        return {}
    return facts


def _has_shared_library(minor: str) -> bool:
    try:
        interpreter_for(minor)
    except EnvpackError:
        return False
    return True


def _default_python() -> str:
    usable = {found.minor for found in available_interpreters() if found.library}
    for minor in PREFERRED:
        if minor in usable:
            return minor
    raise UnpreparedError(f"no Python {SUPPORTED[0]} to {SUPPORTED[-1]} with a shared library is on this machine")


def _around(packages: _Packages, folder: Path) -> Path:
    """An environment that uses packages in their existing folders."""
    interpreter = interpreter_for(packages.minor)
    environment = folder / f"around-{packages.minor}-{packages.library}"
    shutil.rmtree(environment, ignore_errors=True)
    _link_interpreter(interpreter, environment)
    lines = "".join(f"import site; site.addsitedir({str(place.absolute())!r})\n" for place in packages.folders)
    for name in ("site-packages", "dist-packages"):  # a distribution's own Python looks only into the second
        place = environment / f"lib/python{packages.minor}" / name
        place.mkdir(exist_ok=True)
        (place / "packages.pth").write_text(lines, encoding="utf-8")
    write_activation(environment)
    return environment


def _prepared(options: SetupOptions, folder: Path) -> tuple[Path, str]:
    """An environment with the library installed in it; an existing one is reused if it matches."""
    if not options.python:
        made = [place.parent.parent for place in sorted(folder.glob("environment-*/bin/activate"))]
        minor = next((place.name.split("-")[1] for place in made), "") or _default_python()
    else:
        minor = options.python
    library = options.library or "torch"
    requirements = options.requirements or REQUIREMENTS[library]
    environment = folder / f"environment-{minor}-{library}"
    record = environment / "requirements.txt"
    if not record.is_file() or (options.requirements and record.read_text().split("\n") != list(requirements)):
        shutil.rmtree(environment, ignore_errors=True)
        interpreter = interpreter_for(minor)
        _link_interpreter(interpreter, environment)
        _install(interpreter, requirements, environment)
        write_activation(environment)
        record.write_text("\n".join(requirements), encoding="utf-8")  # last: it marks the environment as complete
    return environment, library


def _link_interpreter(interpreter: Interpreter, folder: Path) -> None:
    standard = folder / f"lib/python{interpreter.minor}"
    (standard / "site-packages").mkdir(parents=True)
    (folder / "bin").mkdir()
    shutil.copy(interpreter.executable, folder / "bin/python3")
    if interpreter.library is not None:
        (folder / "lib" / interpreter.library.name).symlink_to(interpreter.library)
    for entry in interpreter.stdlib.iterdir():
        if entry.name not in ("site-packages", "dist-packages"):
            (standard / entry.name).symlink_to(entry)


def _install(interpreter: Interpreter, requirements: tuple[str, ...], environment: Path) -> None:
    place = environment / f"lib/python{interpreter.minor}/site-packages"
    print(f"installing {' '.join(requirements)} for Python {interpreter.minor}; this takes minutes", flush=True)
    uv = Path(sys.executable).with_name("uv")
    command: list[str | Path] = [uv, "pip", "install", "--quiet", "--only-binary", ":all:"]
    try:
        done = subprocess.run(
            [*command, "--python", interpreter.executable, "--target", place, *requirements],
            capture_output=True, text=True, timeout=_INSTALL_SECONDS, check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UnpreparedError(f"{' '.join(requirements)} could not be installed: {error}") from error
    if done.returncode:
        raise UnpreparedError(f"{' '.join(requirements)} could not be installed: {done.stderr.strip()[-600:]}")
