"""Inspects stubs and backend directories, and whether they fit the execution environment and the release."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

from envpack.archive import read_metadata
from envpack.inspection.finding import Finding, caution, fault, finding_of_error, finding_of_mismatch
from envpack.preflight import image_host, preflight_model, read_environment_facts, read_stub_requirements
from envpack.releases import Release
from envpack.repository import (
    BRIDGE,
    PYTHON_BACKEND,
    STUB_NAME,
    UTILITIES,
    Model,
    environment_of,
    library_name,
    python_of_backend,
)
from envpack.support.errors import InputError, StubError

_COMPILE = "compile one: `envpack stub --python VERSION --output {}`"
_REBUILD = "make the folder again: `envpack build --layout backend MODEL`"


def stub_findings(stub: Path) -> Iterator[Finding]:
    """Whether a server will start it, by its mode and what it needs before anything of it runs."""
    try:
        mode = stat.S_IMODE(stub.stat().st_mode)
    except OSError as error:
        yield fault("not-a-stub", stub, f"the stub cannot be read: {error.strerror}", _COMPILE.format(stub.parent))
        return
    if mode & 0o111 != 0o111 or mode & 0o444 != 0o444:
        yield fault(
            "stub-not-executable",
            stub,
            f"its mode is {mode:04o}: a server that does not own it, or finds it on a read-only mount, cannot run it",
            f"chmod 755 {stub}",
        )
    if not os.access(stub, os.R_OK):
        return
    try:
        needs = read_stub_requirements(stub)
    except StubError as error:
        yield finding_of_error(error, stub)
        return
    if not needs.epochs:
        yield caution(
            "stub-needs-libpython",
            stub,
            f"it cannot start without libpython{needs.python}.so.1.0, and where only the environment has that, the"
            " trial run of a server fails: it changes the file's mode, or refuses the model if it may not",
            f"use envpack's: `envpack stub --python {needs.python} --output {stub.parent}`",
        )


def fit_findings(model: Model, release: Release, backends: Path) -> Iterator[Finding]:
    """Whether stub, environment and release go together."""
    for mismatch in preflight_model(model, release=release, host=image_host(release), backends=backends):
        if mismatch.kind != "not-a-stub":  # which is a finding of its own
            yield finding_of_mismatch(mismatch, model.folder)
    if model.backend == PYTHON_BACKEND and not (model.folder / STUB_NAME).is_file():
        yield from _fits_the_releases_own(model, release)


def _fits_the_releases_own(model: Model, release: Release) -> Iterator[Finding]:
    environment = environment_of(model)
    if environment is None:
        return
    try:
        python = read_environment_facts(environment).python
    except InputError:
        return  # a finding of its own
    if python and python != release.python:
        yield fault(
            "python-mismatch",
            model.folder,
            f"the environment has Python {python}, and the model has no stub: that of Triton {release.name} embeds"
            f" Python {release.python}",
            f"compile a stub for it: `envpack stub --python {python} --output {model.folder}`",
        )
    elif _numpy_of(environment) >= 2 and not release.numpy2:
        yield fault(
            "numpy-unsupported",
            model.folder,
            f"the environment has NumPy 2, with which the stub of Triton {release.name} gives empty answers",
            f"put envpack's beside the model: `envpack stub --python {release.python} --output {model.folder}`",
        )


def _numpy_of(environment: Path) -> int:
    """Major version of its NumPy, 0 if it does not say."""
    packages = read_metadata(environment).get("packages")
    for package in packages if isinstance(packages, list) else ():
        if isinstance(package, dict) and package.get("name") == "numpy":
            major = str(package.get("version", "")).partition(".")[0]
            return int(major) if major.isdecimal() else 0
    return 0


def backend_findings(name: str, backends: Path, named_in: Path, release: Release) -> Iterator[Finding]:
    """What is wrong with a backend that a model names.

    Args:
        name: the backend.
        backends: folder of the backends.
        named_in: the config.pbtxt that names it.
        release: the server that it is for.
    """
    folder = backends / name
    if not folder.is_dir():
        yield fault(
            "backend-missing",
            named_in,
            f"it names the backend {name!r}, which is not in {backends}",
            "run `envpack build --layout backend` for it, or say where it is: --backends",
        )
        return
    if not (folder / STUB_NAME).exists():
        yield fault("stub-missing", folder, f"it has no {STUB_NAME}", _REBUILD)
    else:
        yield from stub_findings(folder / STUB_NAME)
    yield from _parts(folder, name, release)


def _parts(folder: Path, name: str, release: Release) -> Iterator[Finding]:
    if not _is_there(folder / UTILITIES):
        yield fault(
            "backend-incomplete",
            folder,
            f"it has no {UTILITIES}, and without that file a server takes its own stub in silence",
            _REBUILD,
        )
    # From 23.10 on a backend without a library may be one written in Python, if it has a model.py.
    needs_library = release.ninth_argument != "runtime-folder" or not (folder / BRIDGE).is_file()
    if needs_library and not _is_there(folder / library_name(name)):
        yield fault("backend-incomplete", folder, f"it has no {library_name(name)}", _REBUILD)
    if python_of_backend(name) and release.ninth_argument == "runtime-folder" and not (folder / BRIDGE).is_file():
        yield fault(
            "backend-incomplete",
            folder,
            f"it has no {BRIDGE}, which stubs other than envpack's import in place of the model's from 23.10 on",
            _REBUILD,
        )


def _is_there(file: Path) -> bool:
    """Whether a file is there, or will be: a link into the server's own backend leads nowhere yet."""
    return file.exists() or (file.is_symlink() and str(file.readlink()).startswith(f"../{PYTHON_BACKEND}/"))
