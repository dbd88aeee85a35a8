"""Which stubs a matrix of Pythons and releases is made of, and choosing among them by their identifiers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from envpack.pythons import SUPPORTED
from envpack.releases import Release
from envpack.stub.recipe import identifier
from envpack.stub.target import StubTarget, check_platforms, target_from_interpreter
from envpack.support.errors import EnvironmentBuildError, EnvpackError, StubError, UsageError


@dataclass(frozen=True)
class Cell:
    """One stub of a matrix.

    Attributes:
        target: the Python to embed.
        release: the Triton release to talk to, ``None`` for every one.
    """

    target: StubTarget
    release: Release | None = None

    @property
    def releases(self) -> tuple[Release, ...] | None:
        """The releases as `build_stub` takes them."""
        return (self.release,) if self.release else None

    @property
    def identifier(self) -> str:
        """``cp310-x86_64`` for all releases, ``cp310-24.10-x86_64`` for one."""
        return identifier(self.target, self.releases)


@dataclass(frozen=True)
class FoundPythons:
    """What stubs can be compiled against on this machine.

    Attributes:
        targets: one for each minor version, oldest first.
        missing: why there is none, by minor version.
    """

    targets: tuple[StubTarget, ...]
    missing: dict[str, EnvpackError]


def find_pythons() -> FoundPythons:
    """Every supported Python of this machine that a stub can embed.

    Raises:
        EnvironmentBuildError: there is none (``unknown-python``).
    """
    targets: list[StubTarget] = []
    missing: dict[str, EnvpackError] = {}
    for minor in SUPPORTED:
        try:
            targets.append(target_from_interpreter(minor))
        except (EnvironmentBuildError, StubError) as error:
            missing[minor] = error
    if not targets:
        raise EnvironmentBuildError(
            "no Python on this machine that a stub can embed: "
            + "; ".join(f"{minor}: {error.message}" for minor, error in missing.items()),
            kind="unknown-python",
            hint="install one: PYTHON_CONFIGURE_OPTS=--enable-shared pyenv install 3.10, or uv python install 3.10",
        )
    return FoundPythons(tuple(targets), missing)


def plan_matrix(
    targets: Sequence[StubTarget],
    releases: Sequence[Release] = (),
    *,
    platforms: Sequence[str] = (),
    only: Sequence[str] = (),
    skip: Sequence[str] = (),
) -> tuple[Cell, ...]:
    """One stub for each Python, or for each Python and release, less what is not selected.

    Args:
        targets: the Pythons; one that is given twice counts once.
        releases: a stub of its own for each; none for one stub that talks to all.
        platforms: ``"linux-aarch64"``, for example: what the targets must be for; none leaves it to them.
        only: patterns, as file names have them, of the identifiers to take; none for all.
        skip: patterns of those to leave out.

    Raises:
        UsageError: a target is for another platform, or a platform has none (``wrong-platform``); two Pythons have the
            same identifier (``same-identifier``); a pattern fits none, or nothing is left (``nothing-selected``).
    """
    if platforms:
        check_platforms(targets, platforms)
    chosen: Sequence[Release | None] = releases or (None,)
    cells = dict.fromkeys(Cell(target, release) for target in targets for release in chosen)
    named: dict[str, Cell] = {}
    for cell in cells:
        other = named.setdefault(cell.identifier, cell)
        if other is not cell:
            raise _same_identifier(cell, other)
    return tuple(named[name] for name in _selected(list(named), only, skip))


def _selected(identifiers: list[str], only: Sequence[str], skip: Sequence[str]) -> list[str]:
    for pattern in (*only, *skip):
        if not any(fnmatchcase(name, pattern) for name in identifiers):
            raise _nothing_selected(f"no stub is called {pattern!r}", identifiers)
    wanted = [name for name in identifiers if not only or any(fnmatchcase(name, pattern) for pattern in only)]
    left = [name for name in wanted if not any(fnmatchcase(name, pattern) for pattern in skip)]
    if not left:
        raise _nothing_selected(
            "every stub is skipped" if wanted == identifiers else "all that is left is skipped", identifiers
        )
    return left


def _nothing_selected(message: str, identifiers: list[str]) -> UsageError:
    return UsageError(message, kind="nothing-selected", hint=f"there are {', '.join(identifiers)}")


def _same_identifier(cell: Cell, other: Cell) -> UsageError:
    return UsageError(
        f"two Pythons for {cell.identifier}: {other.target.library} and {cell.target.library}",
        kind="same-identifier",
        hint="give one of them, or compile them one after the other with another --output",
    )
