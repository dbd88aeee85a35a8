"""What the folder of a model or a backend contributes to a deployment."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from envpack.repository import PYTHON_BACKEND
from envpack.support.bounded_reading import read_text
from envpack.support.errors import InputError
from envpack.support.redaction import has_secret

_TEXTS = (".txt", ".in", ".toml", ".yml", ".yaml", ".lock", ".cfg", ".json")
_MOST_TEXT = 1 << 20  # bytes of a file that is searched for credentials


@dataclass(frozen=True)
class ContentEntry:
    """A file, link or folder of a deployment.

    Attributes:
        path: relative to the folder; ``""`` is the folder itself.
        kind: what it is in the deployment.
        source: the file or folder that it is copied from.
        target: target of a link.
        is_program: whether a file is executable.
        in_environment: whether it is, or belongs to, the execution environment.
    """

    path: str
    kind: Literal["file", "link", "folder"]
    source: Path
    target: str = ""
    is_program: bool = False
    in_environment: bool = False


def content_of(folder: Path, environment: Path | None) -> Iterator[ContentEntry]:
    """The content of a folder without hidden files, sorted, each folder before what is in it.

    Links stay links if what they lead to is in the folder as well; others are followed. An environment is complete: its
    hidden files belong to packages, and its links stay.
    """
    return _Walk(folder, environment).folder(folder, "", in_environment=False)


class _Walk:
    def __init__(self, root: Path, environment: Path | None) -> None:
        self._inside = root.resolve()
        self._environment = environment
        self._open: list[Path] = []  # the real folders that are being walked, each in the one before it

    def folder(self, folder: Path, path: str, *, in_environment: bool) -> Iterator[ContentEntry]:
        real = folder.resolve()
        if any(outer.is_relative_to(real) for outer in self._open):
            raise InputError(
                "this is a link to a folder that contains it, so that a copy would never end",
                kind="endless-link",
                where=str(folder),
                hint="remove the link, or let it name only what the model needs",
            )
        yield ContentEntry(path, "folder", folder, in_environment=in_environment)
        self._open.append(real)
        for name in sorted(os.listdir(folder)):  # noqa: PTH208 - only names are needed
            if in_environment or not name.startswith("."):
                source = folder / name
                inside = in_environment or source == self._environment
                yield from self._entry(source, f"{path}/{name}" if path else name, in_environment=inside)
        self._open.pop()

    def _entry(self, original: Path, path: str, *, in_environment: bool) -> Iterator[ContentEntry]:
        source = original
        if source.is_symlink():
            if not in_environment or source == self._environment:
                source = self._resolved(source)
            if source.is_symlink():
                target = str(source.readlink())
                yield ContentEntry(path, "link", source, target, in_environment=in_environment)
                return
        if source.is_dir():
            yield from self.folder(source, path, in_environment=in_environment)
        elif source.is_file():
            program = bool(source.stat().st_mode & 0o100)
            yield ContentEntry(path, "file", source, is_program=program, in_environment=in_environment)
        else:
            raise InputError(
                "this is neither a file nor a folder, and cannot be deployed",
                kind="special-file",
                where=str(original),
                hint="remove it: a pipe, a socket or a device serves no model",
            )

    def _resolved(self, link: Path) -> Path:
        """The target of a link if that is outside the folder and so missing in the deployment, else the link itself."""
        if str(link.readlink()).startswith(f"../{PYTHON_BACKEND}/"):
            return link  # from a backend directory into the server's own
        real = link.resolve()
        return real if real.exists() and not real.is_relative_to(self._inside) else link


def has_credentials(file: Path) -> bool:
    """Whether a text that installers read, such as requirements, has a password in an address."""
    if not file.name.endswith(_TEXTS) or file.stat().st_size > _MOST_TEXT:
        return False
    text = read_text(file, errors="replace")
    return any(has_secret(word) for word in text.split() if "://" in word)
