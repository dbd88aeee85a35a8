"""What lies in a repository, by its names and modes."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path

from envpack.inspection.finding import Finding, caution, fault
from envpack.repository import CONFIG_NAME, looks_like_model, version_folders

_VERSION = re.compile(r"[1-9][0-9]*")
_POINTER = b"version https://git-lfs.github.com/"
_LARGEST_POINTER = 1024


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
