"""The Python interpreters of this machine: in the folders of pyenv, uv and conda, on PATH, and behind PATH shims."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from envpack.conda.fetched import fetched_folders, fetched_root
from envpack.conda.probe import Facts, ProbeMemory
from envpack.settings.pythons import FREE_THREADED, SUPPORTED, check_minor
from envpack.support.elf import version_key
from envpack.support.errors import EnvironmentBuildError
from envpack.support.folders import real_path
from envpack.support.processes import clean_environment, run

_SHIMS = "shims"  # name of the folder of shims of pyenv, asdf and mise
_SHIM_TIMEOUT = 10.0  # seconds
_SHIM_VARIABLES = ("PYENV_", "ASDF_", "MISE_")  # which interpreter a shim starts
_SHIM_QUERY = "import os, sys; print(os.path.realpath(sys.executable))"


@dataclass(frozen=True, kw_only=True)
class Interpreter:
    """A CPython on this machine."""

    version: str  # full version, for example ``"3.8.18"``
    minor: str  # for example ``"3.8"``
    executable: Path  # the program itself, not a link or a shim
    prefix: Path  # the folder that it was installed to
    library: Path | None  # its shared library (``libpython3.8.so.1.0``), ``None`` for a static build
    include: Path  # the folder of ``Python.h``; may be missing
    stdlib: Path  # the folder of the standard library
    # Whether it belongs to Debian or Ubuntu, whose interpreters install packages to other folders.
    distribution: bool = False
    free_threaded: bool = False  # whether it was built without the GIL, which no stub supports
    managed: bool = False  # whether uv has installed it, for envpack or for the user
    glibc: str = ""  # newest version of a symbol that its program and its library need of glibc, for example ``"2.34"``

    @property
    def for_debugging(self) -> bool:
        """Whether it was built to debug Python itself (``libpython3.8d.so.1.0``), which makes everything slow."""
        return self.library is not None and f"{self.minor}d." in self.library.name

    @property
    def fetched(self) -> bool:
        return self.executable.is_relative_to(real_path(fetched_root()))

    @property
    def machine_headers(self) -> tuple[Path, ...]:
        """The folders with what Debian's ``pyconfig.h`` includes, one for each architecture; none for other Pythons."""
        return tuple(sorted(self.include.parent.glob(f"*-linux-gnu*/{self.include.name}")))

    @property
    def has_headers(self) -> bool:
        return (self.include / "Python.h").is_file()


def find_interpreters(minor: str, search: Sequence[Path] | None = None) -> tuple[Interpreter, ...]:
    """Every CPython of a minor version on this machine, also those that no stub can embed; fetched ones come last."""
    return tuple(_find(_bin_folders(search), minor))


def interpreter_at(path: Path, minor: str) -> Interpreter:
    check_minor(minor)
    names = (f"python{minor}", "python3", "python")
    programs = [path / "bin" / name for name in names] if path.is_dir() else [path]
    executables = [executable for program in programs if (executable := _executable(program))]
    probes = ProbeMemory()
    found = [(executable, probes.facts(executable)) for executable in executables]
    probes.save()
    for executable, facts in found:
        if facts and _is_usable(facts, minor):
            interpreter = _interpreter(executable, facts)
            _check_suitable(interpreter, path)
            return interpreter
    others = [f"this is {facts['implementation']} {facts['version']}" for _, facts in found if facts]
    what = (*others, "this is not a Python" if found else "there is no Python")[0]
    fix = f"name the program python{minor} or its installation folder, or no path for a search of this machine"
    raise EnvironmentBuildError("unknown-python", f"{what}; CPython {minor} is required", fix, str(path))


def _check_suitable(interpreter: Interpreter, path: Path) -> None:
    if interpreter.free_threaded:
        what = f"this Python {interpreter.minor} is free-threaded: {FREE_THREADED}"
        fix = f"install Python {interpreter.minor} with the GIL, which is its default"
        raise EnvironmentBuildError("free-threaded", what, fix, str(path))
    if not interpreter.library:
        what = f"this Python {interpreter.minor} has no shared library, which the stub needs"
        fix = "build it with --enable-shared, or name another one"
        raise EnvironmentBuildError("static-interpreter", what, fix, str(path))
    if (interpreter.prefix / "conda-meta").is_dir():
        what = "this Python belongs to conda and needs libraries of other conda packages"
        fix = "use Python from the conda channel instead, with --channel"
        raise EnvironmentBuildError("conda-python", what, fix, str(path))


def available_interpreters(search: Sequence[Path] | None = None) -> tuple[Interpreter, ...]:
    """Every supported interpreter here, by version, fetched ones first; static ones have no ``library``."""
    folders = _bin_folders(search)
    every = (interpreter for minor in SUPPORTED for interpreter in _find(folders, minor))
    found = {interpreter.executable: interpreter for interpreter in every if not interpreter.free_threaded}
    return tuple(sorted(found.values(), key=_rank))


def _rank(interpreter: Interpreter) -> tuple[object, ...]:
    return version_key(interpreter.minor), not interpreter.fetched, version_key(interpreter.version)


def _bin_folders(search: Sequence[Path] | None) -> list[Path]:
    return list(dict.fromkeys(search if search is not None else (*_usual_folders(), *fetched_folders())))


def _usual_folders() -> Iterator[Path]:
    home = _home()
    pyenv = Path(os.environ.get("PYENV_ROOT") or home / ".pyenv")
    for parent in (pyenv / "versions", _uv_folder(), Path("/opt/python")):
        yield from _below(parent, "*/bin")
    for name in ("miniconda3", "miniforge3", "mambaforge", "anaconda3", "micromamba"):
        for base in (home / name, Path("/opt") / name):
            yield base / "bin"
            yield from _below(base, "envs/*/bin")
    for folder in os.environ.get("PATH", "").split(os.pathsep):
        versions = Path(folder).parent / "versions"
        if Path(folder).name == _SHIMS and _below(versions.parent, "versions"):  # pyenv; its shims start slowly
            yield from _below(versions, "*/bin")
        elif folder:
            yield Path(folder)
    yield from (Path("/usr/local/bin"), Path("/usr/bin"))


def unreadable_folders() -> list[str]:
    """Variables that name folders of interpreters that this user may not read, with their values; they are skipped."""
    named = {"PYENV_ROOT": "versions", "UV_PYTHON_INSTALL_DIR": ""}
    values = [(name, os.environ.get(name, ""), part) for name, part in named.items()]
    return [f"{name}={value}" for name, value, part in values if value and _is_closed(Path(value, part))]


def _is_closed(folder: Path) -> bool:
    try:
        os.scandir(folder).close()
    except PermissionError:
        return True
    except (OSError, ValueError):
        return False
    return False


def _home() -> Path:
    return Path(os.environ.get("HOME", "/nonexistent"))


def _uv_folder() -> Path:
    data = Path(os.environ.get("XDG_DATA_HOME") or _home() / ".local/share")
    return Path(os.environ.get("UV_PYTHON_INSTALL_DIR") or data / "uv/python")


def _below(folder: Path, pattern: str) -> list[Path]:
    """The paths below a folder that match; none if this user may not read it, as with another user's PYENV_ROOT."""
    try:
        return sorted(folder.glob(pattern))
    except OSError:
        return []


def _find(folders: Iterable[Path], minor: str) -> Iterator[Interpreter]:
    probes = ProbeMemory()
    seen: set[Path] = set()
    for folder in folders:
        executable = _executable(folder / f"python{minor}")
        if executable and executable not in seen:
            seen.add(executable)
            facts = probes.facts(executable)
            if facts and _is_usable(facts, minor):
                yield _interpreter(executable, facts)
    probes.save()


def _executable(program: Path) -> Path | None:
    """The file of an interpreter, with links and shims resolved; ``None`` if there is none."""
    try:
        if not program.is_file():
            return None
    except OSError:  # PATH may have folders that this user cannot enter, and names that no folder can have
        return None
    return _shim_target(program) if program.parent.name == _SHIMS else real_path(program)


def _shim_target(shim: Path) -> Path | None:
    """The interpreter that a shim names, which is probed like any other; ``None`` if it starts none."""
    chosen = {name: value for name, value in os.environ.items() if name.startswith(_SHIM_VARIABLES)}
    try:
        completed = run([shim, "-I", "-S", "-c", _SHIM_QUERY], env=clean_environment() | chosen, timeout=_SHIM_TIMEOUT)
    except (OSError, subprocess.TimeoutExpired):
        return None
    lines = completed.stdout.splitlines()
    if completed.returncode != 0 or len(lines) != 1 or "\0" in lines[0]:
        return None
    target = Path(lines[0])
    is_program = target.is_absolute() and target.is_file() and target.parent.name != _SHIMS
    return real_path(target) if is_program else None


def _is_usable(facts: Facts, minor: str) -> bool:
    return facts["version"].startswith(f"{minor}.") and facts["release"] and facts["implementation"] == "cpython"


def _interpreter(executable: Path, facts: Facts) -> Interpreter:
    of_uv = (real_path(_uv_folder()), real_path(fetched_root()))
    return Interpreter(
        version=facts["version"],
        minor=facts["version"].rpartition(".")[0],
        executable=executable,
        prefix=Path(facts["prefix"]),
        library=real_path(Path(facts["library"])) if facts["library"] else None,
        include=Path(facts["include"]),
        stdlib=Path(facts["stdlib"]),
        distribution=facts["patched"],
        free_threaded=facts["free_threaded"],
        managed=any(executable.is_relative_to(folder) for folder in of_uv),
        glibc=facts["glibc"],
    )
