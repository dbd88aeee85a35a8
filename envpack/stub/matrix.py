"""Plans a matrix of stubs for Pythons and releases, and compiles it on all cores."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import TypeVar

from envpack.settings.pythons import SUPPORTED
from envpack.settings.releases import Release
from envpack.settings.table import PythonPreference, ToolchainName
from envpack.stub.build import Stub, build_from_recipe, cached_stub, compile_shared
from envpack.stub.recipe import Cell, Recipe
from envpack.stub.target import StubTarget, check_platforms, target_from_interpreter
from envpack.support.errors import EnvironmentBuildError, EnvpackError, StubError, UsageError
from envpack.support.pool import Pool, usable_cores
from envpack.support.progress import SILENT, NoProgress, Progress

_Key = TypeVar("_Key", bound=Hashable)
_Made = TypeVar("_Made")
# A task: receives ``jobs``, a number of cores, and ``progress``, and returns the result.
_Work = Callable[..., _Made]
_Ended = Callable[[_Key, _Made | EnvpackError], None]


@dataclass(frozen=True)
class FoundPythons:
    """The Pythons of this machine that stubs can be compiled against."""

    targets: tuple[StubTarget, ...]  # one for each minor version, oldest first
    missing: dict[str, EnvpackError]  # the reason why there is none, by minor version


def find_pythons(preference: PythonPreference = "system") -> FoundPythons:
    """Find every supported Python of this machine that a stub can embed. None is fetched.

    Args:
        preference: which ones are taken, see `envpack.conda.choice.interpreter_for`.

    Raises:
        EnvironmentBuildError: no Python was found (``unknown-python``).
    """
    targets: list[StubTarget] = []
    missing: dict[str, EnvpackError] = {}
    for minor in SUPPORTED:
        try:
            targets.append(target_from_interpreter(minor, preference=preference, fetch=False))
        except (EnvironmentBuildError, StubError) as error:
            missing[minor] = error
    if not targets:
        what = "this machine has no Python that a stub can embed: " + "; ".join(
            f"{minor}: {error.message}" for minor, error in missing.items()
        )
        raise EnvironmentBuildError("unknown-python", what, "name one that envpack then fetches: --python 3.10")
    return FoundPythons(tuple(targets), missing)


def plan_matrix(
    targets: Sequence[StubTarget],
    releases: Sequence[Release] = (),
    *,
    platforms: Sequence[str] = (),
    only: Sequence[str] = (),
    skip: Sequence[str] = (),
    toolchain: ToolchainName = "auto",
    glibc: str = "",
) -> tuple[Cell, ...]:
    """One stub per Python, or per Python and release, filtered by identifier.

    Args:
        targets: the Pythons; duplicates are ignored.
        releases: one stub per release; none for one stub that supports all.
        platforms: platforms of the targets, such as ``"linux-aarch64"``; none for any.
        only: glob patterns of the identifiers to keep; none for all.
        skip: glob patterns of the identifiers to leave out.
        toolchain: which compiler, see `Cell`.
        glibc: the oldest glibc that the stubs must run with.

    Raises:
        UsageError: a target is for another platform, or a platform has none (``wrong-platform``); two Pythons have the
            same identifier (``same-identifier``); a pattern matches none, or no stub is left (``nothing-selected``).
    """
    if platforms:
        check_platforms(targets, platforms)
    chosen: list[tuple[Release, ...]] = [(release,) for release in releases] or [()]
    cells = dict.fromkeys(Cell(target, one, toolchain, glibc) for target in targets for one in chosen)
    named: dict[str, Cell] = {}
    for cell in cells:
        other = named.setdefault(cell.identifier, cell)
        if other is not cell:
            what = f"two Pythons for {cell.identifier}: {other.target.library} and {cell.target.library}"
            fix = "give one of them, or compile them one after the other with another --output"
            raise UsageError("same-identifier", what, fix)
    return tuple(named[name] for name in _selected(list(named), only, skip))


def _selected(identifiers: list[str], only: Sequence[str], skip: Sequence[str]) -> list[str]:
    for pattern in (*only, *skip):
        if not any(fnmatchcase(name, pattern) for name in identifiers):
            raise _nothing_selected(f"no stub matches {pattern!r}", identifiers)
    selected = [name for name in identifiers if not only or any(fnmatchcase(name, pattern) for pattern in only)]
    left = [name for name in selected if not any(fnmatchcase(name, pattern) for pattern in skip)]
    if not left:
        raise _nothing_selected(
            "every stub is skipped" if selected == identifiers else "every selected stub is skipped", identifiers
        )
    return left


def _nothing_selected(message: str, identifiers: list[str]) -> UsageError:
    return UsageError("nothing-selected", message, f"there are {', '.join(identifiers)}")


def compile_stubs(
    recipes: Sequence[Recipe],
    ended: Callable[[Recipe, Stub | EnvpackError], None],
    *,
    jobs: int = 0,
    progress: Progress = SILENT,
) -> None:
    """Compile stubs that the cache does not have; parts that several stubs share are compiled once, and first."""
    jobs = jobs or usable_cores()
    failed: dict[str, EnvpackError] = {}
    uncached = [recipe for recipe in recipes if cached_stub(recipe) is None]
    shared = {recipe.common_entry: recipe for recipe in uncached}

    def shared_ended(entry: str, outcome: Path | EnvpackError) -> None:
        if isinstance(outcome, EnvpackError):
            failed[entry] = outcome

    common = {entry: partial(compile_shared, recipe) for entry, recipe in shared.items()}
    _run_in_threads(common, shared_ended, jobs, progress)
    blocked = [recipe for recipe in uncached if recipe.common_entry in failed]
    for recipe in blocked:
        ended(recipe, failed[recipe.common_entry])
    work = {recipe: partial(build_from_recipe, recipe) for recipe in recipes if recipe not in blocked}
    _run_in_threads(work, ended, jobs, progress)


@dataclass(frozen=True)
class _ThreadProgress(NoProgress):
    """A `Progress` that passes details on in the thread of the caller."""

    pool: Pool
    listener: Progress
    label: str

    def detail(self, text: str) -> None:
        self.pool.call(partial(self.listener.detail, f"{self.label}: {text}" if self.label else text))


def _run_in_threads(
    work: Mapping[_Key, _Work[_Made]], ended: _Ended[_Key, _Made], jobs: int, progress: Progress
) -> None:
    """Run all work in threads, at most one per core, and divide the cores among them."""
    if not work:
        return
    keys, threads = list(work), min(len(work), jobs)

    def report(number: int, future: Future[_Made]) -> None:
        try:
            outcome: _Made | EnvpackError = future.result()
        except EnvpackError as error:
            outcome = error
        ended(keys[number], outcome)

    with Pool(threads) as pool:
        shares = (_ThreadProgress(pool, progress, getattr(key, "identifier", "")) for key in keys)
        cores = max(1, jobs // threads)
        tasks = [partial(work[key], jobs=cores, progress=share) for key, share in zip(keys, shares, strict=True)]
        pool.run(tasks, report)
