"""Changes of files that concern a model: what a server loads, or what its environment is built from."""

from __future__ import annotations

import functools
import os
import re
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from envpack.repository.folders import version_folders
from envpack.requirements.format import find_requirements, read_requirements
from envpack.settings.project import Project
from envpack.support.bounded_reading import read_text
from envpack.support.errors import EnvpackError, InputError
from envpack.support.interruption import is_raised_again
from envpack.support.placed_files import is_placed_file, is_placed_folder

_STEP = 30  # milliseconds without a change after which those so far are one; editors write files in several steps
_MOST = 400  # milliseconds
_REPEATED = 1.0  # seconds in which a signal whose exception was dropped comes again
_GENERATED = ("build", "dist")  # what building a project makes
_MOST_BYTES = 1 << 20  # of a file of requirements
_INCLUDE = re.compile(r"^\s*(?:-\s+)?(?:-r|-c|--requirement|--constraint)[ =]+(\S+)", re.MULTILINE)
_OF_EDITORS = re.compile("#.*#|4913")  # Emacs saves there by itself; Vim tries there whether it may write
_MARKS = ("conda-meta", "pyvenv.cfg")  # of an environment, which only a build changes

Stamp = tuple[int, int, int]  # time of change, size, inode
Files = Mapping[Path, Stamp]


@dataclass(frozen=True)
class Change:
    """What changed of a model."""

    model: str
    of_requirements: bool  # whether a file changed from which its environment is built


@dataclass(frozen=True)
class ModelFiles:
    """The files that concern a model."""

    sources: Files  # what a server loads: everything in its folder but what envpack places there
    requirements: Files  # what its environment is built from
    folders: frozenset[Path]  # where these are, for a watch

    def names(self) -> frozenset[Path]:
        """All files."""
        return frozenset((*self.sources, *self.requirements))

    @property
    def versions(self) -> frozenset[Path]:
        """The folders of versions, which a server looks for even if they are empty."""
        return frozenset(folder for folder in self.folders if folder.name.isdecimal())

    def with_sources(self, later: ModelFiles) -> ModelFiles:
        """The same requirements, with the sources of a later time."""
        return ModelFiles(later.sources, self.requirements, later.folders)


@dataclass
class Snapshot:
    """The files of all models at one time."""

    models: dict[str, ModelFiles] = field(default_factory=dict)  # by name
    settings: Stamp | None = None  # stamp of envpack.toml, None without one

    def changes_to(self, now: Snapshot) -> Iterator[Change]:
        """The models whose files differ in a later snapshot."""
        for name, files in now.models.items():
            before = self.models.get(name)
            if before is None or files.requirements != before.requirements:
                yield Change(name, of_requirements=True)
            elif (files.sources, files.versions) != (before.sources, before.versions):
                yield Change(name, of_requirements=False)

    def lost_in(self, now: Snapshot) -> bool:
        """Whether files of a model are gone in a later snapshot."""
        return any(
            self.models[name].names() - files.names() for name, files in now.models.items() if name in self.models
        )


class FileFinder:
    """Finds the files of models."""

    def __init__(self, project: Project) -> None:
        from watchfiles import Change as Kind, DefaultFilter

        self.project = project
        self._matters = functools.partial(DefaultFilter(), Kind.modified)
        self._read: dict[Path, tuple[Files, frozenset[Path], frozenset[Path]]] = {}

    def snapshot(self, models: Iterable[str]) -> Snapshot:
        """The files of these models now."""
        return Snapshot({name: self.files(name) for name in models}, _stamp(self.project.file))

    def files(self, model: str) -> ModelFiles:
        folder = self.project.repository / model
        sources, folders = self._below(folder)
        files, projects = self._required(folder)
        versions = version_folders(folder) if folder.is_dir() else []
        requirements = {file: stamp for file in files if (stamp := _stamp(file)) is not None}
        for project in projects:
            found, below = self._below(project, _GENERATED)
            folders |= below
            requirements |= {
                file: stamp
                for file, stamp in found.items()
                if not is_placed_file(file) and not any(file.is_relative_to(part) for part in versions)
            }
        folders |= {file.parent for file in files}
        sources = {file: stamp for file, stamp in sources.items() if file not in requirements}
        return ModelFiles(sources, requirements, frozenset(folder for folder in folders if folder.is_dir()))

    def _required(self, folder: Path) -> tuple[frozenset[Path], frozenset[Path]]:
        """The files that requirements are in, with those that they include; and the projects that they name."""
        try:
            file = self.project.of(folder.name).requirements or find_requirements(folder)
        except InputError:  # of several, none is named; the build reports it
            return frozenset(), frozenset()
        if file is None:
            return frozenset(), frozenset()
        known = self._read.get(file)
        if known is not None and known[0] == _stamps(known[1]):
            return known[1], known[2]
        files, projects = known[1:] if known is not None else (frozenset(), frozenset())
        try:
            read = read_requirements(file)
            files, projects = frozenset(map(Path.absolute, read.files)), frozenset(read.projects)
        except (EnvpackError, OSError):  # the build reports it; those known so far still matter
            files |= _included(file)
        files |= {file.absolute()}
        self._read[file] = _stamps(files), files, projects
        return files, projects

    def _below(self, top: Path, generated: tuple[str, ...] = ()) -> tuple[dict[Path, Stamp], set[Path]]:
        """The files and folders of a tree that matter, also behind links to folders."""
        files: dict[Path, Stamp] = {}
        folders = {top}
        seen = {os.path.realpath(top)}
        for place, names, entries in os.walk(top, followlinks=True):
            here = Path(place)
            names[:] = [name for name in names if name not in generated and self._is_source_folder(here / name, seen)]
            folders |= {here / name for name in names}
            for name in entries:
                file = here / name
                matters = not name.startswith(".") and not _OF_EDITORS.fullmatch(name) and self._matters(str(file))
                if matters and (stamp := _stamp(file)) is not None:
                    files[file] = stamp
        return files, folders

    def _is_source_folder(self, folder: Path, seen: set[str]) -> bool:
        real = os.path.realpath(folder)
        if real in seen or folder.name.startswith(".") or not self._matters(str(folder)):
            return False
        seen.add(real)
        return not any((folder / mark).exists() for mark in _MARKS) and not is_placed_folder(folder)


def wait_for_changes(folders: frozenset[Path], stop: threading.Event, pause: float) -> Iterator[None]:
    """Yield whenever something in these folders may have changed, and after each pause; end when `stop` is set."""
    import watchfiles

    found = watchfiles.watch(
        *sorted(folders),
        debounce=_MOST,
        step=_STEP,
        rust_timeout=int(pause * 1000),
        yield_on_timeout=True,
        stop_event=stop,
        recursive=False,
        raise_interrupt=True,
        ignore_permission_denied=True,
    )
    try:
        for _ in found:
            yield
    except FileNotFoundError:  # a folder went before it was watched
        yield
    except KeyboardInterrupt as error:
        if not is_raised_again(error):  # watchfiles raises one for every signal, and drops what the handler raised
            time.sleep(_REPEATED)
        raise


def _included(file: Path) -> frozenset[Path]:
    """The files that a file of requirements includes; a missing one may be what is wrong with it."""
    try:
        text = read_text(file, most=_MOST_BYTES)
    except (OSError, ValueError):
        return frozenset()
    return frozenset(Path(os.path.abspath(file.parent / name)) for name in _INCLUDE.findall(text))  # noqa: PTH100


def _stamps(files: frozenset[Path]) -> Files:
    return {file: stamp for file in files if (stamp := _stamp(file)) is not None}


def _stamp(file: Path) -> Stamp | None:
    try:
        status = file.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino
