"""Inspects the files of a repository: folder names, modes, git-lfs pointers and execution environments."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path

from envpack.archive import inspect_environment, is_archive
from envpack.inspection.finding import Finding, Severity, caution, fault, finding_of_error
from envpack.releases import Release
from envpack.repository import (
    CONFIG_NAME,
    SHELL_CHARACTER,
    Model,
    environment_of,
    get_string_parameter,
    looks_like_model,
    version_folders,
)
from envpack.support.errors import InputError

_VERSION = re.compile(r"[1-9][0-9]*")
_POINTER = b"version https://git-lfs.github.com/"
_LARGEST_POINTER = 1024
ACTIVATE = "bin/activate"
_KEYWORD = "$$TRITON_MODEL_DIRECTORY"
# How formats begin that look like an environment's archive to people, but not to servers.
_OTHER_FORMATS = {
    b"\x28\xb5\x2f\xfd": "zstd",
    b"\xfd7zXZ\0": "xz",
    b"BZh": "bzip2",
    b"\x04\x22\x4d\x18": "lz4",
    b"PK\x03\x04": "zip",
    b"hsqs": "squashfs",
    b"7z\xbc\xaf": "7z",
}
_BELOW_A_LINK = "it is below a link"


def folder_findings(repository: Path) -> Iterator[Finding]:
    """Folders that a server takes for models although they are none."""
    for entry in sorted(repository.iterdir()):
        if not entry.is_dir():
            continue
        if not entry.name.startswith(".") and (looks_like_model(entry) or (entry / CONFIG_NAME).is_symlink()):
            yield from _version_findings(entry)
        else:
            yield fault(
                "stray-folder",
                entry,
                "a server takes every folder here for a model, this one too, and ends since it cannot load it",
                "move it elsewhere, or serve a tree that `envpack layout --output` makes",
            )


def _version_findings(model: Path) -> Iterator[Finding]:
    for version in version_folders(model):
        if not _VERSION.fullmatch(version.name):
            number = re.match(r"[0-9]+", version.name)
            yield fault(
                "odd-version",
                version,
                f"a server takes this folder for version {number[0] if number else 0} of the model",
                "remove it, or give it a name that does not start with a digit",
            )


def pointer_findings(model: Path) -> Iterator[Finding]:
    """Files whose content has not been fetched yet: git-lfs keeps a few lines in their place."""
    pointers = [path for path in _entries(model) if path.is_file() and _is_pointer(path)]
    if pointers:
        more = f", and so are {len(pointers) - 1} more" if len(pointers) > 1 else ""
        yield fault(
            "lfs-pointer",
            pointers[0],
            f"it is a pointer of git-lfs, a few lines in place of the file{more}",
            "fetch what it stands for: `git lfs pull`",
        )


def _is_pointer(file: Path) -> bool:
    if file.stat().st_size > _LARGEST_POINTER or not os.access(file, os.R_OK):
        return False
    return file.read_bytes().startswith(_POINTER)


def mode_findings(model: Path) -> Iterator[Finding]:
    """Files of a model that only some users can read; which one the server runs as is not known here."""
    private = []
    for path in _entries(model):
        if not path.exists():
            yield fault("broken-link", path, f"this link leads nowhere: {path.readlink()}", "mend or remove it")
        elif not _for_everybody(path.stat().st_mode):
            private.append(path)
    if private:
        more = f", and {len(private) - 1} more" if len(private) > 1 else ""
        yield caution(
            "not-for-everybody",
            private[0],
            f"only its owner or group can read it{more}, and in a container the server often is somebody else",
            f"chmod -R a+rX {model}",
        )


def _entries(model: Path) -> Iterator[Path]:
    for folder, folders, files in os.walk(model):
        yield from (Path(folder, name) for name in sorted((*folders, *files)))
        # What is in an environment is as it was built, and there is much of it.
        folders[:] = [name for name in folders if not Path(folder, name, "bin").is_dir()]


def _for_everybody(mode: int) -> bool:
    wanted = 0o005 if stat.S_ISDIR(mode) else 0o004
    return mode & wanted == wanted


def environment_findings(model: Model, release: Release) -> Iterator[Finding]:
    """Whether a server finds a model's environment and can unpack it. Nothing of it is run or unpacked."""
    path = environment_of(model)
    if path is None:
        return
    config = model.folder / CONFIG_NAME
    written = get_string_parameter(model.config, "EXECUTION_ENV_PATH")
    if not _is_plain(written):
        yield fault(
            "bad-environment-path",
            config,
            f"a server garbles EXECUTION_ENV_PATH {written!r}, or looks for it from its own working directory",
            f"write {_KEYWORD}/NAME, or an absolute path",
        )
    elif unsafe := SHELL_CHARACTER.search(written.removeprefix(_KEYWORD)):
        yield fault(
            "bad-path",
            config,
            f"EXECUTION_ENV_PATH {written!r} contains {unsafe.group()!r}, and servers hand it to a shell"
            " without quotes",
            "give the environment a name of letters, digits, '_', '-' and '.'",
        )
    elif path.is_dir():
        yield from _of_folder(path, release)
    elif path.is_file():
        yield from _of_archive(path, release)
    else:
        yield fault(
            "environment-missing",
            config,
            f"EXECUTION_ENV_PATH names {written}, which is not there",
            f"run `envpack build {model.folder.name}`",
        )


def _is_plain(written: str) -> bool:
    rest = written.removeprefix(_KEYWORD)
    return rest.startswith("/") and "$$" not in rest and ".." not in rest.split("/")


def _of_folder(folder: Path, release: Release) -> Iterator[Finding]:
    if not release.takes_folders:
        yield fault(
            "folder-unsupported",
            folder,
            f"Triton {release.name} takes no folder as an environment",
            "build an archive: `envpack build --format tar.gz`",
        )
    if not (folder / ACTIVATE).is_file():
        yield fault(
            "environment-unusable",
            folder,
            f"it has no {ACTIVATE}, without which no server takes it",
            f"build it again: `envpack build {folder.parent.name}`",
        )
    elif not any((folder / "lib").glob("libpython3.*.so.1.0")):
        yield caution(
            "libpython-missing",
            folder,
            "it has no libpython, so its stub will take one of the server's system, if there is one",
            "build one with `envpack build`, or take a Python built with --enable-shared",
        )


def _of_archive(file: Path, release: Release) -> Iterator[Finding]:
    with file.open("rb") as opened:
        start = opened.read(8)
    other = next((name for begin, name in _OTHER_FORMATS.items() if start.startswith(begin)), "")
    if other or not is_archive(file):
        yield fault(
            "archive-unsupported",
            file,
            f"it is {f'compressed with {other}' if other else 'no archive'}, and servers read tar and gzipped tar only",
            "build one that they read: `envpack build --format tar.gz`",
        )
        return
    try:
        found = inspect_environment(file)
    except InputError as error:
        yield finding_of_error(error, file)
        return
    for finding in found.findings:
        if finding.kind == "refused":
            strict = finding.reason != _BELOW_A_LINK or release.strict_archives
            severity: Severity = "error" if strict else "warning"
            what = f"{_shown(finding.path)}: {finding.reason}" if finding.path else finding.reason
            yield Finding("archive-refused", severity, file, what, "build it with `envpack build`")
        elif finding.kind != "unproven":
            yield fault(
                "environment-changed",
                file,
                f"{_shown(finding.path)}: {finding.reason}" if finding.path else finding.reason,
                "build it again, or copy it again from where it was made",
            )


def _shown(name: str) -> str:
    """Names in an archive of somebody's may hold anything."""
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in name)
