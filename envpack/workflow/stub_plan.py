"""Which stubs a command line asks for, and one of them in its place."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from envpack.repository import STUB_NAME, looks_like_model
from envpack.settings import Settings, check_minor, release_for_stub
from envpack.store import SharedStore, open_store
from envpack.stub import Cell, Stub, find_pythons, plan_matrix, target_from_interpreter, target_from_prefix
from envpack.support.entry_locks import kept
from envpack.support.errors import EnvpackError
from envpack.support.progress import Progress
from envpack.workflow.project import NO_STORE
from envpack.workflow.shared import stub_for
from envpack.workflow.stub_matrix import place


@dataclass(frozen=True, kw_only=True)
class WantedStubs:
    """What stubs are wanted.

    Attributes:
        pythons: minor versions of interpreters.
        prefixes: folders of environments, against whose Pythons to compile.
        all_pythons: one for each supported interpreter of this machine.
        tritons: names of releases, a stub for each; empty for one stub for all.
        platforms: platforms of the Pythons.
        only: patterns of identifiers.
        skip: patterns of identifiers to leave out.
    """

    pythons: tuple[str, ...] = ()
    prefixes: tuple[Path, ...] = ()
    all_pythons: bool = False
    tritons: tuple[str, ...] = ()
    platforms: tuple[str, ...] = ()
    only: tuple[str, ...] = ()
    skip: tuple[str, ...] = ()

    @property
    def is_matrix(self) -> bool:
        """Whether stubs get folders of their own; what is asked for alone decides, whatever is on the machine."""
        several = len(self.pythons) + len(self.prefixes) > 1 or len(self.tritons) > 1
        return several or self.all_pythons or bool(self.only or self.skip)


@dataclass(frozen=True, kw_only=True)
class PlannedStubs:
    """The stubs to compile.

    Attributes:
        cells: their Pythons and releases.
        missing: why some Pythons are not among them.
        warnings: about the releases.
    """

    cells: tuple[Cell, ...]
    missing: Mapping[str, EnvpackError] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()


def stub_store(said: Settings) -> SharedStore | None:
    """The store that settings name, without a repository."""
    settled = said.settled()
    return open_store(settled.store, push=settled.push) if settled.store not in ("", NO_STORE) else None


def plan_stubs(wanted: WantedStubs, said: Settings, progress: Progress) -> PlannedStubs:
    """The stubs that are asked for."""
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
    cells = plan_matrix(targets, releases, platforms=wanted.platforms, only=wanted.only, skip=wanted.skip)
    warnings = tuple(release.warning for release in releases if release.warning)
    return PlannedStubs(cells=cells, missing=missing, warnings=warnings)


@dataclass(frozen=True, kw_only=True)
class PlacedStub:
    """A stub in a folder."""

    stub: Stub
    path: Path
    changed: bool
    model: Path | None  # the folder, if it is one of a model


def build_one_stub(
    cell: Cell, output: Path, said: Settings, progress: Progress, store: SharedStore | None, *, jobs: int = 0
) -> PlacedStub:
    """Compile a stub, unless it is there, and put it into a folder."""
    settled = said.settled()

    def built() -> Stub:
        return stub_for(
            cell.target,
            cell.releases,
            toolchain=settled.toolchain,
            glibc=settled.glibc,
            jobs=jobs,
            progress=progress,
            store=store,
        )

    with kept(built, lambda stub: stub.path.parent) as stub:
        progress.begin(f"place {output / STUB_NAME}")
        changed = place(cell, stub, output, force=settled.force)
    progress.end(f"needs {stub.facts.libpython}, glibc {stub.facts.glibc}" if changed else "up to date")
    folder = output.absolute()
    return PlacedStub(
        stub=stub, path=folder / STUB_NAME, changed=changed, model=folder if looks_like_model(folder) else None
    )
