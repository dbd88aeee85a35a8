"""Errors of the command line for missing and unusable Pythons."""

import re
import shutil
from pathlib import Path

import pytest

from envpack.conda.interpreters import available_interpreters
from envpack.support.platforms import libpython_name
from tests.faults.bad_input import MODEL, BadInput
from tests.faults.command_line import assert_refused, envpack, listing

SYSTEM = "/usr/bin:/bin"


@pytest.fixture
def repository(tmp_path):
    return BadInput("", "", 0, "", (), MODEL).write(tmp_path)


@pytest.fixture
def alone(tmp_path):
    """Variables that restrict the search to the system's interpreters and ``tmp_path/pyenv``."""
    nowhere = {name: str(tmp_path / "home") for name in ("HOME", "XDG_DATA_HOME", "UV_PYTHON_INSTALL_DIR")}
    return {**nowhere, "PYENV_ROOT": str(tmp_path / "pyenv"), "PATH": SYSTEM, "ENVPACK_CACHE_DIR": str(tmp_path / "c")}


@pytest.fixture
def missing(alone, monkeypatch):
    """An interpreter of this machine whose version the restricted search does not find."""
    everywhere = {found.minor: found for found in available_interpreters() if found.library and not found.distribution}
    for name, value in alone.items():
        monkeypatch.setenv(name, value)
    own = {found.minor for found in available_interpreters()}
    others = [interpreter for minor, interpreter in everywhere.items() if minor not in own]
    if not others:
        pytest.skip("no Python with a shared library outside of /usr and /opt on this machine")
    return others[0]


@pytest.mark.parametrize("name", ["build", "stub"])
def test_a_missing_python_is_named_with_those_available_and_how_to_install_it(repository, missing, alone, name):
    before = listing(repository)
    there = sorted({found.minor for found in available_interpreters()}, key=lambda minor: int(minor.partition(".")[2]))
    specific = ("--repository", repository, "m") if name == "build" else ("--output", repository)
    completed = envpack(name, "--json", "--python", missing.minor, *specific, changes=alone)
    available = f"available: {', '.join(there) or 'none'}"
    assert_refused(
        completed, 4, "unknown-python", f"no Python {missing.minor}", available, f"pyenv install {missing.minor}"
    )
    assert listing(repository) == before


@pytest.mark.parametrize("name", ["build", "stub"])
def test_a_python_without_a_shared_library_is_refused_with_a_hint(repository, missing, alone, tmp_path, name):
    prefix = tmp_path / "pyenv/versions" / missing.version
    program = without_shared_library(missing, prefix)
    before = listing(repository)
    specific = ("--repository", repository, "m") if name == "build" else ("--output", repository)
    completed = envpack(name, "--json", "--python", missing.minor, *specific, changes=alone)
    library = libpython_name(missing.minor).removesuffix(".1.0")
    assert_refused(completed, 4, "static-interpreter", str(program), library, "--enable-shared")
    assert listing(repository) == before


def without_shared_library(interpreter, prefix: Path) -> Path:
    """A copy of an interpreter's installation whose build configuration is that of a static build."""
    program = prefix / "bin" / f"python{interpreter.minor}"
    program.parent.mkdir(parents=True)
    shutil.copy2(interpreter.executable, program)
    library = prefix / "lib" / f"python{interpreter.minor}"
    library.mkdir(parents=True)
    for entry in interpreter.stdlib.iterdir():
        if not entry.name.startswith("_sysconfigdata"):
            (library / entry.name).symlink_to(entry)
    for data in interpreter.stdlib.glob("_sysconfigdata*.py"):
        text = re.sub(
            r"'(INSTSONAME|LDLIBRARY)': '[^']*'", rf"'\1': 'libpython{interpreter.minor}.a'", data.read_text()
        )
        (library / data.name).write_text(text.replace("'Py_ENABLE_SHARED': 1", "'Py_ENABLE_SHARED': 0"))
    return program
