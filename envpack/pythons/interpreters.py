"""Finding the Python interpreters of this machine, without importing or starting more than necessary."""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from envpack.support.cache_locations import cache_root
from envpack.support.errors import EnvironmentBuildError, UsageError
from envpack.support.isolation import bare_environment
from envpack.support.processes import run
from envpack.support.replacement import write_text

SUPPORTED = tuple(f"3.{minor}" for minor in range(8, 14))
_PROBE_VERSION = 1
_PROBE = """
import json, os, sys, sysconfig
get = sysconfig.get_config_var
name = get("INSTSONAME") or ""
libdir = get("LIBDIR") or ""
folders = [libdir, os.path.join(sys.base_prefix, "lib"), os.path.join(libdir, get("MULTIARCH") or "")]
found = [os.path.join(f, name) for f in folders if f and ".so" in name and os.path.isfile(os.path.join(f, name))]
print(json.dumps({
    "version": "%d.%d.%d" % sys.version_info[:3], "prefix": sys.base_prefix, "library": found[0] if found else None,
    "include": sysconfig.get_path("include"), "stdlib": sysconfig.get_path("stdlib"),
    "release": sys.version_info[3] == "final", "implementation": sys.implementation.name,
    "patched": "dist-packages" in sysconfig.get_path("purelib"),
}))
"""


@dataclass(frozen=True)
class Interpreter:
    """A CPython on this machine.

    Attributes:
        version: full version, for example ``"3.8.18"``.
        minor: for example ``"3.8"``.
        executable: the real file, no link.
        prefix: the folder it was installed to.
        library: its shared library (``libpython3.8.so.1.0``), ``None`` for a static build.
        include: the folder of ``Python.h``; need not exist.
        stdlib: the folder of the standard library.
        distribution: whether it is one of Debian's or Ubuntu's own, which install packages to other folders.

    """

    version: str
    minor: str
    executable: Path
    prefix: Path
    library: Path | None
    include: Path
    stdlib: Path
    distribution: bool = False


def interpreter_for(minor: str, search: Sequence[Path] | None = None) -> Interpreter:
    """The best interpreter of a minor version: with a shared library, not a distribution's, newest.

    Args:
        minor: for example ``"3.8"``.
        search: ``bin`` folders to look into, instead of the usual places.

    Raises:
        UsageError: ``minor`` is no version, or not one that envpack supports.
        EnvironmentBuildError: there is none (``unknown-python``), or only static ones (``static-interpreter``).

    """
    check_minor(minor)
    found = list(_probed(_candidates(search), minor))
    shared = [interpreter for interpreter in found if interpreter.library]
    if shared:
        return max(shared, key=lambda found: (not found.distribution, _patch_release(found)))
    if found:
        raise EnvironmentBuildError(
            f"Python {minor} on this machine has no shared library (libpython{minor}.so), which Triton's stub needs",
            kind="static-interpreter",
            where=str(found[0].executable),
            hint=f"build it with --enable-shared: PYTHON_CONFIGURE_OPTS=--enable-shared pyenv install {minor}",
        )
    available = ", ".join(sorted({i.minor for i in available_interpreters(search)}, key=_as_numbers)) or "none"
    raise EnvironmentBuildError(
        f"no Python {minor} on this machine; available: {available}",
        kind="unknown-python",
        hint=f"install one: PYTHON_CONFIGURE_OPTS=--enable-shared pyenv install {minor}, or uv python install {minor}",
    )


def interpreter_at(place: Path, minor: str) -> Interpreter:
    """The interpreter at a place that the user named.

    Args:
        place: an interpreter, or the folder that it was installed to; that of a virtual environment stands for the one
            that the environment was made from.
        minor: for example ``"3.8"``.

    Raises:
        UsageError: ``minor`` is no version, or not one that envpack supports.
        EnvironmentBuildError: there is none of this version (``unknown-python``), it is static
            (``static-interpreter``), or one of conda's (``conda-python``).

    """
    check_minor(minor)
    below = [place / "bin" / name for name in (f"python{minor}", "python3", "python")] if place.is_dir() else [place]
    known = _ProbeCache()
    found = [(one.resolve(), known.ask(one.resolve())) for one in below if one.is_file()]
    known.save()
    for executable, facts in found:
        if facts and _is_usable(facts, minor):
            interpreter = _interpreter(executable, facts)
            _refuse_unfit(interpreter, place)
            return interpreter
    said = next((f"is {facts['implementation']} {facts['version']}" for _, facts in found if facts), "is no Python")
    raise EnvironmentBuildError(
        f"this {said}, not CPython {minor}",
        kind="unknown-python",
        where=str(place),
        hint=f"give the program python{minor}, or the folder that its bin is in; without a place, one is looked for",
    )


def _refuse_unfit(interpreter: Interpreter, place: Path) -> None:
    if not interpreter.library:
        raise EnvironmentBuildError(
            f"this Python {interpreter.minor} has no shared library, which Triton's stub needs",
            kind="static-interpreter",
            where=str(place),
            hint="build it with --enable-shared, or give another one",
        )
    if (interpreter.prefix / "conda-meta").is_dir():
        raise EnvironmentBuildError(
            "this Python was installed by conda and needs libraries of other conda packages",
            kind="conda-python",
            where=str(place),
            hint="take Python from the channel that it came from, with --channel",
        )


def check_minor(minor: str, *, where: str = "") -> None:
    """Refuse what is not a supported minor version; ``where`` is the file that names it, for the error.

    Raises:
        UsageError: kind ``bad-python-version``.

    """
    if minor not in SUPPORTED:
        shape = "is not a minor version like 3.10" if not re.fullmatch(r"\d+\.\d+", minor) else "is not supported"
        raise UsageError(
            f"Python version {minor!r} {shape}",
            kind="bad-python-version",
            where=where,
            hint=f"supported: {', '.join(SUPPORTED)}",
        )


def available_interpreters(search: Sequence[Path] | None = None) -> tuple[Interpreter, ...]:
    """Every supported interpreter on this machine, sorted by version; static ones have no ``library``."""
    everything = (found for minor in SUPPORTED for found in _probed(_candidates(search), minor))
    unique = {found.executable: found for found in everything}
    return tuple(sorted(unique.values(), key=_patch_release))


def _as_numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))


def _patch_release(interpreter: Interpreter) -> tuple[int, ...]:
    return _as_numbers(interpreter.version)


def _candidates(search: Sequence[Path] | None) -> list[Path]:
    """The ``bin`` folders in which interpreters may lie, in order of preference."""
    return list(dict.fromkeys(search if search is not None else _usual_places()))


def _usual_places() -> Iterator[Path]:
    home = Path(os.environ.get("HOME", "/nonexistent"))
    pyenv = Path(os.environ.get("PYENV_ROOT") or home / ".pyenv")
    data = Path(os.environ.get("XDG_DATA_HOME") or home / ".local/share")
    uv = Path(os.environ.get("UV_PYTHON_INSTALL_DIR") or data / "uv/python")
    for parent in (pyenv / "versions", uv, Path("/opt/python")):
        yield from sorted(parent.glob("*/bin"))
    for name in ("miniconda3", "miniforge3", "mambaforge", "anaconda3", "micromamba"):
        for base in (home / name, Path("/opt") / name):
            yield base / "bin"
            yield from sorted(base.glob("envs/*/bin"))
    for folder in os.environ.get("PATH", "").split(os.pathsep):
        if folder and Path(folder).name != "shims":  # pyenv's shims only start what is listed above
            yield Path(folder)
    yield from (Path("/usr/local/bin"), Path("/usr/bin"))


def _probed(folders: Iterable[Path], minor: str) -> Iterator[Interpreter]:
    known = _ProbeCache()
    seen: set[Path] = set()
    for folder in folders:
        candidate = folder / f"python{minor}"
        executable = candidate.resolve()
        if candidate.is_file() and executable not in seen:
            seen.add(executable)
            facts = known.ask(executable)
            if facts and _is_usable(facts, minor):
                yield _interpreter(executable, facts)
    known.save()


def _is_usable(facts: dict[str, object], minor: str) -> bool:
    wanted = str(facts["version"]).startswith(f"{minor}.")
    return wanted and bool(facts["release"]) and facts["implementation"] == "cpython"


def _interpreter(executable: Path, facts: dict[str, object]) -> Interpreter:
    version, library = str(facts["version"]), facts["library"]
    return Interpreter(
        version=version,
        minor=version.rpartition(".")[0],
        executable=executable,
        prefix=Path(str(facts["prefix"])),
        library=Path(str(library)).resolve() if library else None,
        include=Path(str(facts["include"])),
        stdlib=Path(str(facts["stdlib"])),
        distribution=bool(facts["patched"]),
    )


class _ProbeCache:
    """What interpreters said of themselves, kept by real path and time stamp, so that none is started twice."""

    def __init__(self) -> None:
        self._file = cache_root() / "interpreters.json"
        self._changed = False
        self._facts: dict[str, dict[str, object]] = {}
        with contextlib.suppress(OSError, ValueError):
            self._facts = json.loads(self._file.read_text(encoding="utf-8"))

    def ask(self, executable: Path) -> dict[str, object] | None:
        status = executable.stat()
        key = f"{_PROBE_VERSION}:{executable}:{status.st_mtime_ns}:{status.st_size}"
        if key not in self._facts:
            answer = _ask(executable)
            if answer is None:
                return None
            self._facts[key] = answer
            self._changed = True
        facts = self._facts[key]
        library = facts.get("library")
        return None if library and not Path(str(library)).exists() else facts

    def save(self) -> None:
        if self._changed:
            self._changed = False
            with contextlib.suppress(OSError):  # a cache that cannot be written costs time, nothing else
                self._file.parent.mkdir(parents=True, exist_ok=True)
                write_text(self._file, json.dumps(self._facts, indent=1, sort_keys=True))


def _ask(executable: Path) -> dict[str, object] | None:
    try:
        answer = run([executable, "-I", "-S", "-c", _PROBE], env=bare_environment(), timeout=30)
        facts = json.loads(answer.stdout) if answer.returncode == 0 else None
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return None
    return facts if isinstance(facts, dict) else None
