"""Changes of files that concern a model: what a server loads, or what its environment is built from.

What a model writes into its own folder loads nothing.
"""

from __future__ import annotations

import functools
import os
import re
import threading
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import KW_ONLY, dataclass, field, replace
from pathlib import Path

from watchfiles import Change as Kind, DefaultFilter, watch

from envpack.repository.folders import requirements_file, version_folders
from envpack.requirements.format import read_requirements
from envpack.settings.project import Project
from envpack.support.bounded_reading import read_text, sha256_of
from envpack.support.errors import EnvpackError, InputError
from envpack.support.interruption import is_raised_again
from envpack.support.placed_files import is_built_folder, is_placed_file, is_placed_folder

_STEP = 30  # milliseconds without a change after which those so far are one; editors write files in several steps
_MOST = 400  # milliseconds
_REPEATED = 1.0  # seconds in which a signal whose exception was dropped comes again
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
        return frozenset((*self.sources, *self.requirements))

    @property
    def versions(self) -> frozenset[Path]:
        """The folders of versions, which a server looks for even if they are empty."""
        return frozenset(folder for folder in self.folders if folder.name.isdecimal())

    def with_sources(self, later: ModelFiles) -> ModelFiles:
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
        return any(
            self.models[name].names() - files.names() for name, files in now.models.items() if name in self.models
        )


class FileFinder:
    """Finds the files of models."""

    def __init__(self, project: Project) -> None:
        self.project = project
        self._matters = functools.partial(DefaultFilter(), Kind.modified)
        self._read: dict[Path, tuple[Files, frozenset[Path], frozenset[Path]]] = {}

    def snapshot(self, models: Iterable[str]) -> Snapshot:
        return Snapshot({name: self.files(name) for name in models}, _stamp(self.project.file))

    def files(self, model: str) -> ModelFiles:
        folder = self.project.repository / model
        sources, folders = self._below(folder)
        files, projects = self._required(folder)
        versions = version_folders(folder) if folder.is_dir() else []
        requirements = {file: stamp for file in files if (stamp := _stamp(file)) is not None}
        for project in projects:
            found, below = self._below(project, is_project=True)
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
            file = requirements_file(self.project, folder)
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

    def _below(self, top: Path, *, is_project: bool = False) -> tuple[dict[Path, Stamp], set[Path]]:
        """The files and folders of a tree that matter, also behind links to folders."""
        files: dict[Path, Stamp] = {}
        folders = {top}
        seen = {os.path.realpath(top)}
        for place, names, entries in os.walk(top, followlinks=True):
            here = Path(place)
            own = (name for name in names if not (is_project and is_built_folder(here / name, top)))
            names[:] = [name for name in own if self._is_source_folder(here / name, seen)]
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
    found = watch(
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


_SOURCES = (".py", ".pbtxt")  # what imports and the server read; a model writes it rarely
_CLOCK = 0.05  # seconds by which the clock of a file system can differ
_QUICK = 5.0  # seconds after a load in which a change of the same files may be the model's
_MOST_LOADS = 3  # that such changes cause, one after the other


@dataclass
class _Loads:
    began: float = 0.0  # when the last one began, as files have it, in seconds
    ended: float = 0.0  # when it ended
    _: KW_ONLY
    existing: frozenset[Path] = frozenset()  # the files that the model had then
    contents: Mapping[Path, str] = field(default_factory=dict)  # digests of its code, configuration and requirements
    quick: frozenset[Path] = frozenset()  # files that changed within seconds after each of the last loads
    count: int = 0  # how many loads these are
    # The files that have caused too many of them, as they were last, and when that was.
    repeated: dict[Path, tuple[Stamp | None, float]] = field(default_factory=dict)

    def spans(self, stamp: Stamp | None) -> bool:
        """Whether a file was written during the load; one that is gone counts if the load has not ended for long."""
        if stamp is None:
            return time.time() < self.ended + _QUICK
        return self.began - _CLOCK <= stamp[0] / 1e9 <= self.ended + _CLOCK

    def are_edited(self, code: Iterable[Path], now: Files) -> set[Path]:
        """The files of code, configuration and requirements that are not what the model was loaded with."""
        found = {file: _digest(file, now.get(file)) for file in code}
        return {file for file, content in found.items() if not content or content != self.contents.get(file)}


@dataclass
class OwnWrites:
    """The files that models write themselves."""

    # For each model the files that were found, relative to its folder.
    named: dict[str, set[str]] = field(default_factory=dict)
    _loads: dict[str, _Loads] = field(default_factory=dict)

    def load_begins(self, model: str, files: ModelFiles) -> None:
        """Note the files with which a model is loaded; any thread."""
        before = self._loads.get(model, _Loads())
        code = {file: stamp for file, stamp in files.sources.items() if file.suffix in _SOURCES}
        self._loads[model] = replace(
            before,
            began=time.time(),
            ended=float("inf"),
            existing=files.names(),
            contents={file: _digest(file, stamp) for file, stamp in (code | dict(files.requirements)).items()},
        )

    def load_ends(self, model: str) -> None:
        """Note that a load has ended, well or not; any thread."""
        if loads := self._loads.get(model):
            loads.ended = time.time()

    def forget(self, model: str) -> None:
        """Forget a model that is gone: another one of its name has written nothing yet."""
        self.named.pop(model, None)
        self._loads.pop(model, None)

    def without(
        self, model: str, folder: Path, before: ModelFiles, now: ModelFiles, written: Collection[Path]
    ) -> ModelFiles:
        """The files of a model now, as they were before where the model itself has changed them."""
        loads = self._loads.get(model)
        known, found = ({**files.sources, **files.requirements} for files in (before, now))
        changed = {file for file in known.keys() | found.keys() if known.get(file) != found.get(file)}
        if loads is None or not changed:
            return now
        requirements = before.requirements.keys() | now.requirements.keys()
        edited = loads.are_edited((file for file in changed if file.suffix in _SOURCES or file in requirements), found)
        own = set(_own(loads, changed - edited, found, written))
        own |= _known(loads, changed, edited, found)
        own |= _repeated(loads, frozenset(changed - own), edited, found)
        self.named.setdefault(model, set()).update(
            str(file.relative_to(folder)) for file in own if file.is_relative_to(folder)
        )

        def as_before(files: Files, earlier: Files) -> Files:
            kept = {file: stamp for file, stamp in files.items() if file not in own}
            return kept | {file: earlier[file] for file in own & earlier.keys()}

        return ModelFiles(
            as_before(now.sources, before.sources), as_before(now.requirements, before.requirements), now.folders
        )


@functools.lru_cache(maxsize=4096)
def _digest(file: Path, stamp: Stamp | None) -> str:
    """The digest of a file, which a stamp determines; ``""`` for one that is too large or cannot be read."""
    try:
        return sha256_of(file) if stamp is not None and stamp[1] <= _MOST_BYTES else ""
    except OSError:
        return ""


def _own(loads: _Loads, changed: set[Path], now: Files, written: Collection[Path]) -> Iterator[Path]:
    """Files that have come since the load, were written during it, or are open."""
    for file in changed:
        if file in written or file not in loads.existing or loads.spans(now.get(file)):
            yield file


def _known(loads: _Loads, changed: set[Path], edited: set[Path], now: Files) -> set[Path]:
    """Files that have caused several loads, and are as they were then, or have changed again and again since."""
    for file in changed & loads.repeated.keys():
        stamp, since = loads.repeated[file]
        if stamp == now.get(file):
            continue
        if time.time() < max(loads.ended, since) + _QUICK and _may_repeat(file, edited):
            loads.repeated[file] = now.get(file), time.time()
        else:
            del loads.repeated[file]
    return changed & loads.repeated.keys()


def _may_repeat(file: Path, edited: set[Path]) -> bool:
    """Whether a model may write a file again and again: ``model.py``, configurations and requirements unchanged."""
    return file not in edited or (file.suffix == ".py" and file.name != "model.py")


def _repeated(loads: _Loads, changed: frozenset[Path], edited: set[Path], now: Files) -> set[Path]:
    """Files that have caused several loads, each within seconds after the one before: the model writes them."""
    if not changed:
        return set()
    is_quick = time.time() < loads.ended + _QUICK
    same = is_quick and (changed == loads.quick or all(loads.spans(now.get(file)) for file in changed))
    loads.quick, loads.count = (changed, loads.count + 1 if same else 1) if is_quick else (frozenset(), 0)
    if loads.count <= _MOST_LOADS:
        return set()
    own = {file for file in changed if _may_repeat(file, edited)}
    loads.repeated |= {file: (now.get(file), time.time()) for file in own}
    return own
