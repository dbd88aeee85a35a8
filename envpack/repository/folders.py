"""Folders of a model repository: which are models, and what in them are versions."""

from __future__ import annotations

from pathlib import Path

from envpack.repository.backends import KNOWN

CONFIG_NAME = "config.pbtxt"
LONGEST_NAME = 255  # bytes of a file's name


def find_folder(repository: Path, name: str) -> Path | None:
    """The folder of a repository that has a name from a configuration or from code; None if there is none.

    Names of folders are compared, so that no text leads elsewhere or is too long for a path.
    """
    return next((entry for entry in repository.iterdir() if entry.name == name and entry.is_dir()), None)


def is_too_long(path: str) -> bool:
    """Whether no file can have a path, because one of its parts has more bytes than a file system takes."""
    return any(len(part.encode("utf-8", "surrogateescape")) > LONGEST_NAME for part in path.split("/"))


def looks_like_model(folder: Path) -> bool:
    """Whether a folder contains a configuration, or a version with the file of a backend that a server knows.

    A folder that this user may not read may be a model too: to open it is then an error of this model alone.
    """
    files = {known.file for known in KNOWN}
    try:
        if (folder / CONFIG_NAME).is_file():
            return True
        return any((version / file).exists() for version in version_folders(folder) for file in files)
    except PermissionError:
        return True


def version_folders(folder: Path) -> list[Path]:
    """The folders that the server loads as versions: those whose names start with a digit other than zero."""
    return sorted(entry for entry in folder.iterdir() if entry.is_dir() and entry.name[0] in "123456789")
