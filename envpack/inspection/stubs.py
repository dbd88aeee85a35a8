"""Inspects stubs and backend directories, and their compatibility with execution environment and release."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from envpack.archive.manifest import read_metadata
from envpack.inspection.facts import archived_numpy, image_host, read_environment_facts, read_stub_requirements
from envpack.inspection.files import environment_findings, environment_path_findings, find_unsupported_archive
from envpack.inspection.preflight import preflight_model
from envpack.repository.imports import used_too_early
from envpack.repository.model import Model
from envpack.repository.placement import (
    BRIDGE,
    PYTHON_BACKEND,
    UTILITIES,
    library_name,
    may_run,
    python_of_backend,
)
from envpack.settings.releases import Release
from envpack.support.errors import Finding, InputError, StubError, caution, fault, finding_of_error, refuse
from envpack.support.placed_files import STUB_NAME
from envpack.support.platforms import libpython_name
from envpack.support.text import major_number

_COMPILE = "compile one: `envpack stub --python VERSION --output {}`"
_REBUILD = "create the folder again: `envpack build --set layout=backend MODEL`"


def mode_fix(stub: Path) -> str:
    """What makes a stub executable; mounts of object stores ignore chmod."""
    otherwise = "where that does nothing, mount the file system with such modes: rclone's --file-perms 0755"
    return f"chmod 755 {stub}; {otherwise}"


def stub_findings(stub: Path) -> Iterator[Finding]:
    """Problems that prevent a server from starting a stub: its mode, and the libraries that it is linked against."""
    try:
        mode = stat.S_IMODE(stub.stat().st_mode)
    except OSError as error:
        yield fault("not-a-stub", stub, f"the stub cannot be read: {error.strerror}", _COMPILE.format(stub.parent))
        return
    if not may_run(mode):
        what = (
            f"its mode is {mode:04o}: a server cannot run it from a read-only mount, or as a user who does not own it"
        )
        yield fault("stub-not-executable", stub, what, mode_fix(stub))
    if not os.access(stub, os.R_OK):
        return
    try:
        needs = read_stub_requirements(stub)
    except StubError as error:
        yield finding_of_error(error, stub)
        return
    if not needs.epochs:
        what = (
            f"it is linked against {libpython_name(needs.python)}: if only the environment has that library, the"
            " server's trial run fails, and the server changes the file's mode or, if it cannot, rejects the model"
        )
        fix = f"use envpack's stub: `envpack stub --python {needs.python} --output {stub.parent}`"
        yield caution("stub-needs-libpython", stub, what, fix)


def fit_findings(model: Model, release: Release, backends: Path) -> Iterator[Finding]:
    """Why stub and execution environment of a model do not fit each other, a release, or its image."""
    for mismatch in preflight_model(model, release=release, host=image_host(release), backends=backends):
        if mismatch.kind != "not-a-stub":  # stub_findings reports it
            yield replace(mismatch, where=model.folder)
    yield from _release_stub_findings(model, release)
    yield from _lone_stub_findings(model, release)


def newer_than_image(model: Model, release: Release) -> Iterator[Finding]:
    """Cautions where a model needs newer C and C++ libraries than the image of a release has."""
    for mismatch in preflight_model(model, host=image_host(release)):
        if mismatch.kind in ("glibc-too-old", "libstdcxx-too-old"):
            yield caution(mismatch.kind, model.folder, mismatch.what, mismatch.fix)


def refuse_placed_environment(model: Model, environment: Path, release: Release, *, served_here: bool) -> None:
    """Refuse an environment with which a server cannot run the model that has it.

    What takes long, or depends on the host, is not checked: the content of archives, libraries, changes of files.
    """
    of_folder = environment_findings(model, release, served_here=served_here) if environment.is_dir() else ()
    unsupported = find_unsupported_archive(model)
    of_file = [unsupported] if unsupported else []
    found = (*environment_path_findings(model), *of_file, *of_folder, *_release_stub_findings(model, release))
    refuse(finding for finding in found if finding.severity == "error")


def _release_stub_findings(model: Model, release: Release) -> Iterator[Finding]:
    """Incompatibilities of the execution environment and the release's own stub, if that runs the model."""
    environment = model.environment
    if model.backend != PYTHON_BACKEND or (model.folder / STUB_NAME).is_file():
        return
    try:
        python = read_environment_facts(environment).python if environment else ""
    except InputError:
        return  # environment_findings reports it
    if python and python != release.python:
        what = (
            f"the environment has Python {python}, but the model has no stub, and the stub of Triton {release.name}"
            f" embeds Python {release.python}"
        )
        fix = f"compile a stub for it: `envpack stub --python {python} --output {model.folder}`"
        yield fault("python-mismatch", model.folder, what, fix)
    elif environment and major_number(numpy_of(environment)) >= 2 and not release.numpy2:
        what = f"the environment has NumPy 2, with which the stub of Triton {release.name} returns empty outputs"
        fix = f"add envpack's stub to the model: `envpack stub --python {release.python} --output {model.folder}`"
        yield fault("numpy-unsupported", model.folder, what, fix)
    elif early := used_too_early(model.folder, model.code_file):
        name, place = early
        what = f"its code uses pb_utils.{name} when it is imported, and the stub of Triton {release.name} adds it later"
        fix = f"add envpack's stub to the model: `envpack stub --python {release.python} --output {model.folder}`"
        yield fault("interface-broken", place, what, fix)


def _lone_stub_findings(model: Model, release: Release) -> Iterator[Finding]:
    stub = model.folder / STUB_NAME
    if model.environment is not None or not stub.is_file() or not os.access(stub, os.R_OK):
        return
    try:
        python = read_stub_requirements(stub).python
    except StubError:
        return  # stub_findings reports it
    if python != release.python:
        what = (
            f"it embeds Python {python}, and the model has no execution environment with it; the system of Triton"
            f" {release.name} has Python {release.python}"
        )
        yield caution("libpython-missing", stub, what, f"build one: `envpack build --python {python}`")


def numpy_of(environment: Path) -> str:
    """The version of the NumPy in a folder or an archive; ``""`` if none is found."""
    packages = read_metadata(environment).get("packages")
    for package in packages if isinstance(packages, list) else ():
        if isinstance(package, dict) and package.get("name") == "numpy":
            return str(package.get("version", ""))
    if environment.is_file():
        return archived_numpy(environment)
    found = environment.glob("lib/python3*/site-packages/numpy-*.dist-info")
    versions = (folder.name.removeprefix("numpy-").removesuffix(".dist-info") for folder in found)
    return max(versions, key=major_number, default="")


def backend_findings(name: str, backends: Path, named_in: Path, release: Release) -> Iterator[Finding]:
    folder = backends / name
    if not folder.is_dir():
        fix = "run `envpack build --set layout=backend` for it, or name its folder with --set backends=DIRECTORY"
        yield fault("backend-missing", named_in, f"it names the backend {name!r}, which is not in {backends}", fix)
        return
    if not (folder / STUB_NAME).exists():
        yield fault("stub-missing", folder, f"it has no {STUB_NAME}", _REBUILD)
    else:
        yield from stub_findings(folder / STUB_NAME)
    yield from _missing_files(folder, name, release)


def _missing_files(folder: Path, name: str, release: Release) -> Iterator[Finding]:
    if not _exists_on_server(folder / UTILITIES):
        what = f"it has no {UTILITIES}: without that file, a server silently uses its own stub"
        yield fault("backend-incomplete", folder, what, _REBUILD)
    # Since 23.10, a backend directory with a model.py and no library is a backend written in Python.
    needs_library = release.ninth_argument != "runtime-folder" or not (folder / BRIDGE).is_file()
    if needs_library and not _exists_on_server(folder / library_name(name)):
        yield fault("backend-incomplete", folder, f"it has no {library_name(name)}", _REBUILD)
    if python_of_backend(name) and release.ninth_argument == "runtime-folder" and not (folder / BRIDGE).is_file():
        what = f"it has no {BRIDGE}, which other stubs than envpack's import instead of the model's file since 23.10"
        yield fault("backend-incomplete", folder, what, _REBUILD)


def _exists_on_server(file: Path) -> bool:
    """Whether a file exists, or is a link into the server's own backend, which only exists on the server."""
    return file.exists() or (file.is_symlink() and str(file.readlink()).startswith(f"../{PYTHON_BACKEND}/"))
