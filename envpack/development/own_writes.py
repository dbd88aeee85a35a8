"""Tells what a model writes into its own folder, which loads nothing, from what a person saves there."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from envpack.development.changes import ModelFiles, Stamp

_SOURCES = (".py", ".pbtxt")  # what imports and the server read; a model writes it rarely
_CLOCK = 0.05  # seconds by which the clock of a file system can differ
_QUICK = 5.0  # seconds after a load in which a change of the same files may be the model's
_MOST_LOADS = 3  # that such changes cause, one after the other


@dataclass
class _Loads:
    """What is known of the loads of one model."""

    began: float = 0.0  # when the last one began, as files have it, in seconds
    ended: float = 0.0  # when it ended
    existing: frozenset[Path] = frozenset()  # the files that the model had then
    quick: frozenset[Path] = frozenset()  # files that changed within seconds after each of the last loads
    count: int = 0  # how many loads these are

    def spans(self, stamp: Stamp | None) -> bool:
        """Whether a file was written during the load; one that is gone counts if the load has not ended for long."""
        if stamp is None:
            return time.time() < self.ended + _QUICK
        return self.began - _CLOCK <= stamp[0] / 1e9 <= self.ended + _CLOCK


@dataclass
class OwnWrites:
    """The files that models write themselves."""

    # For each model the files that were found, relative to its folder.
    named: dict[str, set[str]] = field(default_factory=dict)
    _loads: dict[str, _Loads] = field(default_factory=dict)

    def load_begins(self, model: str, files: ModelFiles) -> None:
        """Note the files with which a model is loaded; any thread."""
        before = self._loads.get(model, _Loads())
        self._loads[model] = _Loads(time.time(), float("inf"), frozenset(files.sources), before.quick, before.count)

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
        changed = {
            file
            for file in before.sources.keys() | now.sources.keys()
            if before.sources.get(file) != now.sources.get(file)
        }
        if loads is None or not changed:
            return now
        own = set(_own(loads, changed, now, written))
        own |= _repeated(loads, frozenset(changed - own))
        self.named.setdefault(model, set()).update(
            str(file.relative_to(folder)) for file in own if file.is_relative_to(folder)
        )
        sources = {file: stamp for file, stamp in now.sources.items() if file not in own}
        return ModelFiles(
            sources | {file: before.sources[file] for file in own & before.sources.keys()},
            now.requirements,
            now.folders,
        )


def _own(loads: _Loads, changed: set[Path], now: ModelFiles, written: Collection[Path]) -> Iterator[Path]:
    """Files beside code and configuration that have come since the load, were written during it, or are open."""
    for file in changed:
        if file.suffix in _SOURCES:
            continue
        if file in written or file not in loads.existing or loads.spans(now.sources.get(file)):
            yield file


def _repeated(loads: _Loads, changed: frozenset[Path]) -> set[Path]:
    """Files that have caused several loads, each within seconds after the one before: the model writes them.

    Code is among them only if it is generated during each load; ``model.py`` and configurations never are.
    """
    is_quick = bool(changed) and time.time() < loads.ended + _QUICK
    same = is_quick and changed == loads.quick
    loads.quick, loads.count = (changed, loads.count + 1 if same else 1) if is_quick else (frozenset(), 0)
    if loads.count <= _MOST_LOADS:
        return set()
    return {
        file for file in changed if file.suffix not in _SOURCES or (file.suffix == ".py" and file.name != "model.py")
    }
