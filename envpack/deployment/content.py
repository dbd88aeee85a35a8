"""What a deployment has of a folder: no hidden files, nothing for authors, no passwords, links that lead somewhere."""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from envpack.deployment.plan import DeployedModel, Deployment
from envpack.repository.folders import is_for_authors
from envpack.repository.placement import PYTHON_BACKEND
from envpack.support.bounded_reading import opened, read_text
from envpack.support.errors import InputError
from envpack.support.folders import real_path
from envpack.support.placed_files import STUB_NAME
from envpack.support.redaction import gives_secret_away

_TEXTS = (".txt", ".in", ".toml", ".yml", ".yaml", ".lock", ".cfg", ".conf", ".ini", ".json", ".sh")
_MOST_TEXT = 64 << 20  # bytes of a file that is searched for credentials
_LONGEST_SCHEME, _LONGEST = 32, 1024  # characters before the :// of an address, and from there on
_BETWEEN = re.compile(r"[\s\"',]")


@dataclass(frozen=True)
class ContentEntry:
    """A file, link or folder of a deployment."""

    path: str  # from the folder on; "" is the folder itself
    kind: Literal["file", "link", "folder"]
    source: Path  # what it is copied from
    target: str = ""  # of a link
    is_program: bool = False
    in_environment: bool = False  # whether it is, or belongs to, the execution environment


def content_of_model(model: DeployedModel) -> Iterator[ContentEntry]:
    """The content of a model's folder, as `content_of`, without what is for its authors or has credentials."""
    return (entry for entry in _all_of(model) if not _is_left_out(entry))


def texts_with_credentials(deployment: Deployment) -> tuple[str, ...]:
    """A caution for each text file of the models that has a password in an address, and is left out."""
    return tuple(
        _caution(model, entry)
        for model in deployment.models
        for entry in _all_of(model, has_environment=False)
        if _is_left_out(entry)
    )


def files_of_model(model: DeployedModel, without: Collection[Path], cautions: list[str]) -> Iterator[ContentEntry]:
    """Files and empty folders of a model for a place that has no links: what these lead to is in their place."""
    empty: ContentEntry | None = None
    for entry in _Walk(model.folder, None, is_model=True, without=without, has_links=False).folder(model.folder):
        if _is_left_out(entry):
            cautions.append(_caution(model, entry))
            continue
        if empty and not entry.path.startswith(f"{empty.path}/"):
            yield empty
        empty = entry if entry.kind == "folder" and entry.path else None
        if entry.kind == "file":
            if entry.is_program and entry.path != STUB_NAME and _is_started(entry.source):
                what = f"{model.name}/{entry.path} loses its executable bit in a store"
                cautions.append(f"{what}; code that starts it has to set that first: os.chmod(path, 0o755)")
            yield entry
    if empty:
        yield empty


def _is_started(file: Path) -> bool:
    with opened(file) as content:
        start = content.read(4)
    return start.startswith((b"#!", b"\x7fELF")) and ".so" not in file.suffixes and file.suffix != ".py"


def _all_of(model: DeployedModel, *, has_environment: bool = True) -> Iterator[ContentEntry]:
    walk = _Walk(model.folder, model.environment, is_model=True, has_environment=has_environment)
    return walk.folder(model.folder)


def _is_left_out(entry: ContentEntry) -> bool:
    return entry.kind == "file" and not entry.in_environment and line_with_credentials(entry.source) > 0


def _caution(model: DeployedModel, entry: ContentEntry) -> str:
    where = f"line {line_with_credentials(entry.source)} has an address with a password or a token"
    return f"{model.name}/{entry.path} is left out: {where}; remove that if a server needs the file"


def content_of(folder: Path, environment: Path | None = None) -> Iterator[ContentEntry]:
    """The content of a folder without hidden files, sorted, each folder before what is in it.

    Links stay links if they lead to the same file in the deployment; others are followed. An environment is complete:
    its hidden files belong to packages, and its links stay.
    """
    return _Walk(folder, environment, is_model=False).folder(folder)


class _Walk:
    def __init__(
        self,
        root: Path,
        environment: Path | None,
        *,
        is_model: bool,
        without: Collection[Path] = (),
        has_links: bool = True,
        has_environment: bool = True,
    ) -> None:
        self._root, self._inside = root, real_path(root)
        self._is_model, self._without, self._has_links = is_model, without, has_links
        self._has_environment = has_environment
        self._environments: set[str] = set()  # the environment's path, and the one that it is a link to
        if environment is not None:
            found = (os.path.relpath(environment, root), os.path.relpath(real_path(environment), self._inside))
            self._environments = {path for path in found if not path.startswith(".." + os.sep)}
        self._open: list[Path] = []  # the real folders that are being walked, each in the one before it

    def folder(self, folder: Path, path: str = "", *, in_environment: bool = False) -> Iterator[ContentEntry]:
        real = real_path(folder)
        if any(outer.is_relative_to(real) for outer in self._open):
            what = "this is a link to a folder that contains it, so that a copy would never end"
            fix = "remove the link, or let it name only what the model needs"
            raise InputError("endless-link", what, fix, str(folder))
        yield ContentEntry(path, "folder", folder, in_environment=in_environment)
        if in_environment and self._has_links:
            yield from _inside_environment(str(folder), path)
            return
        self._open.append(real)
        for name in sorted(os.listdir(folder)):  # noqa: PTH208 - only names are needed
            below = f"{path}/{name}" if path else name
            if folder / name not in self._without and (in_environment or self._has(below)):
                inside = in_environment or below in self._environments
                if self._has_environment or not inside:
                    yield from self._entry(folder / name, below, in_environment=inside)
        self._open.pop()

    def _entry(self, original: Path, path: str, *, in_environment: bool) -> Iterator[ContentEntry]:
        source = original
        if source.is_symlink() and self._has_links:
            if not in_environment or path in self._environments:
                source = self._resolved(source, path)
            if source.is_symlink():
                yield ContentEntry(path, "link", source, str(source.readlink()), in_environment=in_environment)
                return
        if source.is_dir():
            yield from self.folder(source, path, in_environment=in_environment)
        elif source.is_file():
            program = bool(source.stat().st_mode & 0o100)
            yield ContentEntry(path, "file", source, is_program=program, in_environment=in_environment)
        else:
            raise _special(str(original))

    def _has(self, path: str) -> bool:
        """Whether the deployment has a path: it is not hidden or for authors, or it leads to the environment."""
        if any(f"{path}/".startswith(f"{place}/") or place.startswith(f"{path}/") for place in self._environments):
            return True
        hidden = path != "." and any(part.startswith(".") for part in path.split("/"))
        return not hidden and not (self._is_model and is_for_authors(path))

    def _resolved(self, link: Path, path: str) -> Path:
        """The target of a link that leads nowhere, or elsewhere, in the deployment; else the link itself."""
        text = str(link.readlink())
        if not self._is_model and text.startswith(f"../{PYTHON_BACKEND}/"):
            return link  # from a backend directory into the server's own
        real = real_path(link)
        return real if real.exists() and not self._leads_to(real, path, text) else link

    def _leads_to(self, real: Path, path: str, text: str) -> bool:
        """Whether a link at a path leads to the same file in the deployment; a path outside it begins with ``..``."""
        target = os.path.normpath(os.path.join(os.path.dirname(path), text))  # noqa: PTH118, PTH120
        if os.path.isabs(text) or not self._has(target):  # noqa: PTH117
            return False
        return self._has(os.path.relpath(real, self._inside)) and real_path(self._root / target) == real


def _inside_environment(folder: str, path: str) -> list[ContentEntry]:
    """The content of a folder of an execution environment, whose links stay; quickly, as it has thousands of files."""
    found: list[ContentEntry] = []
    with os.scandir(folder) as content:
        entries = sorted(content, key=lambda entry: entry.name)
    for entry in entries:
        below, source = f"{path}/{entry.name}", Path(entry.path)
        if entry.is_symlink():
            found.append(ContentEntry(below, "link", source, str(source.readlink()), in_environment=True))
        elif entry.is_dir():
            found.append(ContentEntry(below, "folder", source, in_environment=True))
            found += _inside_environment(entry.path, below)
        elif entry.is_file():
            is_program = bool(entry.stat().st_mode & 0o100)
            found.append(ContentEntry(below, "file", source, is_program=is_program, in_environment=True))
        else:
            raise _special(entry.path)
    return found


def _special(path: str) -> InputError:
    what = "this is neither a file nor a folder, and cannot be deployed"
    fix = "remove it: a pipe, a socket, a device or a broken link serves no model"
    return InputError("special-file", what, fix, path)


def line_with_credentials(file: Path) -> int:
    """The first line of a text that installers read, such as requirements, with a password in an address; 0 if none."""
    if not file.name.endswith(_TEXTS) or file.stat().st_size > _MOST_TEXT:
        return 0
    text = read_text(file, errors="replace", most=_MOST_TEXT)
    found = next((place for place, address in _addresses(text) if gives_secret_away(address)), None)
    return 0 if found is None else text.count("\n", 0, found) + 1


def _addresses(text: str) -> Iterator[tuple[int, str]]:
    """The place of each ``://`` and the address around it, up to a blank, a quote, a comma or another address; both are
    cut, so that the time for a text is bounded by its size.
    """
    marks = (found.start() for found in re.finditer("://", text))
    for at, following in itertools.pairwise(itertools.chain(marks, (len(text),))):
        scheme = _BETWEEN.split(text[max(at - _LONGEST_SCHEME, 0) : at])[-1]
        yield at, scheme + _BETWEEN.split(text[at : min(at + _LONGEST, following)], maxsplit=1)[0]
