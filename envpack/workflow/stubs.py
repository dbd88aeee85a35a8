"""The stubs that `envpack stub` compiles: one in its place, or a matrix of them, each in a folder of its own."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from envpack.repository.folders import looks_like_model
from envpack.repository.placement import is_stub_placed, place_stub
from envpack.settings.pythons import check_minor
from envpack.settings.releases import release_for_stub
from envpack.settings.table import Settings
from envpack.store.shared import SharedStore, open_store
from envpack.stub.build import Stub, build_from_recipe, cached_stub, find_stub
from envpack.stub.matrix import compile_stubs, find_pythons, plan_matrix
from envpack.stub.recipe import Cell, Recipe
from envpack.stub.target import target_from_interpreter, target_from_prefix
from envpack.support.entry_locks import kept
from envpack.support.errors import EnvpackError, InputError, storage_errors
from envpack.support.placed_files import STUB_NAME
from envpack.support.progress import SILENT, Progress
from envpack.support.text import counted
from envpack.workflow.placement import foreign_stub, refuse_foreign
from envpack.workflow.project import NO_STORE
from envpack.workflow.shared import fetch_stub, push_stub, stub_for


@dataclass(frozen=True, kw_only=True)
class WantedStubs:
    """What stubs are wanted."""

    pythons: tuple[str, ...] = ()  # minor versions of interpreters
    prefixes: tuple[Path, ...] = ()  # folders of environments, against whose Pythons to compile
    all_pythons: bool = False  # one for each supported interpreter of this machine
    tritons: tuple[str, ...] = ()  # names of releases, a stub for each; empty for one stub for all
    platforms: tuple[str, ...] = ()  # platforms of the Pythons
    only: tuple[str, ...] = ()  # patterns of identifiers
    skip: tuple[str, ...] = ()  # patterns of identifiers to leave out

    @property
    def is_matrix(self) -> bool:
        """Whether each stub gets its own folder; the request decides this, not what is on the machine."""
        several = len(self.pythons) + len(self.prefixes) > 1 or len(self.tritons) > 1
        return several or self.all_pythons or bool(self.only or self.skip)


@dataclass(frozen=True, kw_only=True)
class PlannedStubs:
    """The stubs to compile."""

    cells: tuple[Cell, ...]  # their Pythons and releases
    missing: Mapping[str, EnvpackError] = field(default_factory=dict)  # why some Pythons are not among them
    warnings: tuple[str, ...] = ()  # about the releases


def stub_store(said: Settings) -> SharedStore | None:
    settled = said.settled()
    return open_store(settled.store, push=settled.push) if settled.store not in ("", NO_STORE) else None


def plan_stubs(wanted: WantedStubs, said: Settings, progress: Progress) -> PlannedStubs:
    settled = said.settled()
    releases = [release_for_stub(name, abi=settled.abi or "") for name in wanted.tritons]
    for minor in wanted.pythons:
        check_minor(minor)  # all of them, before any is fetched
    missing: Mapping[str, EnvpackError] = {}
    preference = settled.python_preference
    targets = [target_from_interpreter(minor, preference=preference, progress=progress) for minor in wanted.pythons]
    if wanted.all_pythons:
        found = find_pythons(preference)
        targets, missing = list(found.targets), found.missing
    targets += [target_from_prefix(prefix.absolute()) for prefix in wanted.prefixes]
    cells = plan_matrix(
        targets,
        releases,
        platforms=wanted.platforms,
        only=wanted.only,
        skip=wanted.skip,
        toolchain=settled.toolchain,
        glibc=settled.glibc,
    )
    warnings = tuple(release.warning for release in releases if release.warning)
    return PlannedStubs(cells=cells, missing=missing, warnings=warnings)


@dataclass(frozen=True, kw_only=True)
class PlacedStub:
    """A stub in a folder."""

    stub: Stub
    path: Path
    changed: bool
    model: Path | None  # the folder, if it is one of a model


def build_one_stub(cell: Cell, output: Path, said: Settings, progress: Progress, *, jobs: int = 0) -> PlacedStub:
    store = stub_store(said)
    with kept(lambda: stub_for(cell, jobs=jobs, progress=progress, store=store), lambda stub: stub.path.parent) as stub:
        progress.begin(f"place {output / STUB_NAME}")
        changed = _place(cell, stub, output, force=said.settled().force)
    progress.end(f"needs {stub.facts.libpython}, glibc {stub.facts.glibc}" if changed else "up to date")
    folder = output.absolute()
    return PlacedStub(
        stub=stub, path=folder / STUB_NAME, changed=changed, model=folder if looks_like_model(folder) else None
    )


@dataclass(frozen=True)
class CellResult:
    """The result of one stub of a matrix."""

    cell: Cell  # its Python and release
    path: Path  # where it is, or would be
    stub: Stub | None = None  # compiled, or found in the cache; None if that failed
    changed: bool = False  # whether `path` did not hold it before
    error: EnvpackError | None = None  # why it is not at `path`


@dataclass(frozen=True)
class CellPlan:
    """What `build_matrix` would do for one stub."""

    cell: Cell  # its Python and release
    path: Path  # where it would be placed
    cached: bool  # whether the cache has it, so that nothing is compiled
    placed: bool  # whether `path` holds it already


def build_matrix(
    cells: Sequence[Cell],
    output: Path,
    *,
    jobs: int = 0,
    force: bool = False,
    progress: Progress = SILENT,
    store: SharedStore | None = None,
) -> tuple[CellResult, ...]:
    """Compile stubs, as many at once as there are cores, and place each in ``output/<identifier>``.

    Args:
        cells: what to compile, see `envpack.stub.matrix.plan_matrix`.
        output: made if it is not there, but its parent must be.
        jobs: how many compilers run at once, 0 for one per core.
        force: rename stubs that envpack did not compile, instead of refusing to replace them.
        progress: receives each stub.
        store: a store that machines share; what it has is not compiled.

    Returns:
        One result for each cell, in the same order. A stub that fails does not keep the others from being built.

    Raises:
        UsageError: the compiler does not support these options.
        StubError: there is no compiler.
        InputError: there is no folder for the output (``output-missing``).
        StorageError: the output cannot be written to, or the store cannot be used.
    """
    results: dict[Cell, CellResult] = {}
    if store is not None:
        _make_output(output)
        results = _fetched(cells, output, store, progress, force=force)
    recipes = [cell.recipe() for cell in cells if cell not in results]
    _make_output(output)

    def ended(recipe: Recipe, outcome: Stub | EnvpackError) -> None:
        compiled_again = partial(build_from_recipe, recipe, jobs=jobs)
        result = _placed(recipe.cell, output, outcome, compiled_again, force=force)
        if store is not None and store.push and result.stub is not None:
            push_stub(store, result.stub, result.cell.key)
        results[result.cell] = result
        progress.begin(result.cell.identifier)
        progress.end(_outcome(result))
        if len(results) < len(cells):
            progress.begin(f"{len(cells) - len(results)} of {counted(len(cells), 'stub')} left")

    progress.begin(counted(len(cells), "stub"))
    compile_stubs(recipes, ended, jobs=jobs, progress=progress)
    return tuple(results[cell] for cell in cells)


def _fetched(
    cells: Sequence[Cell], output: Path, store: SharedStore, progress: Progress, *, force: bool
) -> dict[Cell, CellResult]:
    results = {}
    for cell in cells:
        fetch = partial(fetch_stub, store, cell, progress)
        if find_stub(cell) is None and (stub := fetch()):
            results[cell] = _placed(cell, output, stub, fetch, force=force)
    return results


def plan_build(cells: Sequence[Cell], folders: Sequence[Path]) -> tuple[CellPlan, ...]:
    plans = []
    for cell, folder in zip(cells, folders, strict=True):
        stub = cached_stub(cell.recipe())
        placed = stub is not None and is_stub_placed(stub, folder, cell.release)
        plans.append(CellPlan(cell, folder / STUB_NAME, stub is not None, placed))
    return tuple(plans)


def _place(cell: Cell, stub: Stub, folder: Path, *, force: bool = False) -> bool:
    """Put a stub into a folder, with a release file if it is for one release; whether that changed anything."""
    with storage_errors(folder):
        refuse_foreign(foreign_stub(folder), force=force)
        return place_stub(stub.path, folder, cell.release)


def _make_output(output: Path) -> None:
    with storage_errors(output):
        try:
            output.mkdir(exist_ok=True)
        except (FileNotFoundError, NotADirectoryError, FileExistsError):
            raise output_missing(output) from None


def output_missing(output: Path) -> InputError:
    if os.path.lexists(output):
        return InputError("output-missing", "this is not a folder", "remove it, or name another one", str(output))
    return InputError("output-missing", "this folder does not exist", "create it", str(output))


def _placed(
    cell: Cell, output: Path, outcome: Stub | EnvpackError, again: Callable[[], Stub | None], *, force: bool
) -> CellResult:
    folder = output / cell.identifier
    path = folder / STUB_NAME
    if isinstance(outcome, EnvpackError):
        return CellResult(cell, path, error=outcome)

    def present() -> Stub:  # it may have been removed from the cache since
        return outcome if outcome.path.exists() else again() or outcome

    try:
        with kept(present, lambda stub: stub.path.parent) as stub, storage_errors(folder), _folder(folder):
            return CellResult(cell, path, stub, _place(cell, stub, folder, force=force))
    except EnvpackError as error:
        return CellResult(cell, path, outcome, error=error)


@contextlib.contextmanager
def _folder(folder: Path) -> Iterator[None]:
    """Make a folder, and remove it again if it stays empty."""
    try:
        folder.mkdir(exist_ok=True)
    except FileExistsError:
        what = "a file has the name of the folder to make"
        raise InputError("output-missing", what, "remove it", str(folder)) from None
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            folder.rmdir()


def _outcome(result: CellResult) -> str:
    if result.error or result.stub is None:
        return "failed"
    made = f"compiled in {result.stub.seconds:.1f} s" if result.stub.fresh else "cached"
    return made if result.changed else f"{made}, up to date"
