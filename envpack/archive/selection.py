"""Which files of an environment leave the store: those that a model can need when it runs."""

from __future__ import annotations

import hashlib
import json
import posixpath
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

from envpack.environment import Entry
from envpack.support.errors import UsageError

# Patterns as in .gitignore, relative to the environment's root. Byte code stays: without it every start compiles.
# Of folders with tests only the tests and their data go: what else is there is imported by some packages when they run.
DEFAULT_EXCLUDE = (
    *("/include/", "*.a", "*.la"),
    *("/man/", "/share/man/", "/share/doc/", "/share/info/", "/share/gtk-doc/"),
    *("/lib/pkgconfig/", "/share/pkgconfig/", "/lib/cmake/", "/share/cmake/", "/share/aclocal/"),
    *("/lib/python3.*/idlelib/", "/lib/python3.*/turtledemo/", "/lib/python3.*/test/"),
    "/lib/python3.*/config-3.*/",
    *(f"**/{tests}/**/{name}" for tests in ("tests", "test") for name in ("test_*.py", "*_test.py", "data/")),
    *(f"**/{tests}/**/{name}" for tests in ("tests", "test") for name in ("*.c", "*.f", "*.f90", "*.pyf")),
    *(f"**/{tests}/**/__pycache__/{name}" for tests in ("tests", "test") for name in ("test_*.pyc", "*_test.*.pyc")),
)
# Compilers that run within a model, such as torch.compile, need Python's own headers; so does `envpack stub --prefix`.
DEFAULT_INCLUDE = ("/include/python3.*/",)
# What is left of a folder with tests goes too if it is no more than this, `__init__` being empty: nothing to import.
_HOLLOW = re.compile(r"(?:^|.*/)(?:(__init__)|conftest)\.py|(?:^|.*/)__pycache__/(?:__init__|conftest)\.[^/]*\.pyc")
# What `**/NAME/**/` becomes as an expression: pathspec's own words, so other words are only slower.
_DEEP = re.compile(r"\^\(\?:\.\+/\)\?[\w-]+\(\?:/\.\+\)\?/(?![*+?{])")
_TESTS = re.compile(r"(?:^|.*?/)tests?/")
_ALWAYS = ("/bin/activate", "/pyvenv.cfg", "/bin/python*", "/lib/libpython*")


@dataclass(frozen=True)
class Selection:
    """What to leave out, by patterns as ``.gitignore`` has them.

    Attributes:
        exclude: patterns of the user; `DEFAULT_EXCLUDE` holds besides.
        include: patterns of what stays although one of the others fits it.

    """

    exclude: tuple[str, ...] = ()
    include: tuple[str, ...] = ()

    @cached_property
    def digest(self) -> str:
        """Names the choice: same digest, same files of the same environment."""
        told = [DEFAULT_EXCLUDE, DEFAULT_INCLUDE, _HOLLOW.pattern, _ALWAYS, self.exclude, self.include]
        return hashlib.sha256(json.dumps(told).encode()).hexdigest()

    def of(self, entries: Sequence[Entry]) -> tuple[Entry, ...]:
        """The entries that leave the store, in the same order.

        Links to what is left out are left out too. What makes a folder an environment always stays.

        Raises:
            UsageError: kind ``bad-pattern``: a pattern that means nothing.

        """
        useless, useful = _any_of("", DEFAULT_EXCLUDE), _any_of("", DEFAULT_INCLUDE)
        excluded = _any_of("--exclude", self.exclude) if self.exclude else None
        included = _any_of("--include", (*_ALWAYS, *self.include))
        kept = []
        for entry in entries:
            name = f"{entry.path}/" if entry.kind == "folder" else entry.path
            useless_here = useless.search(name) and not useful.search(name)
            unwanted = useless_here or (excluded and excluded.search(name))
            if not unwanted or included.search(name):
                kept.append(entry)
        return _without_dangling(entries, _without_hollow(kept, included))


def _any_of(option: str, patterns: Iterable[str]) -> re.Pattern[str]:
    """One expression for all patterns: there may be a hundred thousand names."""
    from pathspec import PathSpec

    expressions: dict[str, list[str]] = {}
    for pattern in patterns:
        try:
            (one,) = PathSpec.from_lines("gitignore", [pattern]).patterns
        except ValueError:
            one = None
        if (
            one is None or one.regex is None or not one.include
        ):  # a comment, nothing at all, or "!": which the other option is for
            raise UsageError(
                f"{option} {pattern!r} is no pattern that fits a file",
                kind="bad-pattern",
                hint="write it as in .gitignore, without ! and #: /share/locale/, *.txt, **/examples/",
            )
        folder = _DEEP.match(one.regex.pattern)
        place = folder[0] if folder else ""
        expressions.setdefault(place, []).append(one.regex.pattern.removeprefix(place))
    # What many patterns begin with is tried once for each name, not once for each pattern: several times as fast.
    return re.compile("|".join(f"{place}(?:{'|'.join(them)})" for place, them in expressions.items()))


def _without_hollow(kept: list[Entry], included: re.Pattern[str]) -> list[Entry]:
    """Leave out folders for tests, and folders in them, of which only the frame is left: a third of all folders."""
    solid: set[str] = set()
    frames = {}
    for entry in kept:
        if not _TESTS.match(entry.path):
            continue
        folder = entry.path.rpartition("/")[0].removesuffix("/__pycache__")
        if _is_hollow(entry) and not included.search(entry.path):
            frames[entry.path] = folder
            continue
        while folder and folder not in solid:
            solid.add(folder)
            folder = folder.rpartition("/")[0]
    return [entry for entry in kept if frames.get(entry.path) is None or frames[entry.path] in solid]


def _is_hollow(entry: Entry) -> bool:
    found = _HOLLOW.fullmatch(entry.path) if entry.kind == "file" else None
    return found is not None and not (found[1] and entry.size)


def _without_dangling(before: Sequence[Entry], kept: list[Entry]) -> tuple[Entry, ...]:
    """Leave out links whose target was left out; links that led nowhere before are not our business here."""
    if not any(entry.kind == "link" for entry in kept):
        return tuple(kept)
    existed = _places(before)
    while True:
        exists = _places(kept)
        remaining = [entry for entry in kept if entry.kind != "link" or _leads(entry, exists, existed)]
        if len(remaining) == len(kept):
            return tuple(kept)
        kept = remaining


def _leads(link: Entry, exists: set[str], existed: set[str]) -> bool:
    target = posixpath.normpath(posixpath.join(posixpath.dirname(link.path), link.target))
    return target in exists or target not in existed


def _places(entries: Iterable[Entry]) -> set[str]:
    """Every path that exists if exactly these entries do: the folders above them too."""
    found: set[str] = set()
    for entry in entries:
        path = entry.path
        while path and path not in found:
            found.add(path)
            path = path.rpartition("/")[0]
    return found
