"""Selects the files of an execution environment that leave the store: those that a model may need at run time."""

from __future__ import annotations

import hashlib
import json
import posixpath
import re
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

from envpack.environment.inventory import Entry
from envpack.support.errors import UsageError

# Patterns as in .gitignore, relative to the environment's root. Byte code stays: without it every start compiles.
# Of test folders only the tests and their data are excluded: some packages import the rest at run time.
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
# Compilers that run in a model, such as torch.compile, need Python's own headers; so does `envpack stub --prefix`.
DEFAULT_INCLUDE = ("/include/python3.*/",)
# A test folder that contains only these files and an empty `__init__` is excluded too: it has nothing to import.
_HOLLOW = re.compile(r"(?:^|.*/)(?:(__init__)|conftest)\.py|(?:^|.*/)__pycache__/(?:__init__|conftest)\.[^/]*\.pyc")
# The expression that pathspec generates for `**/NAME/**/`. If a version of pathspec differs, matching is slower.
_DEEP = re.compile(r"\^\(\?:\.\+/\)\?[\w-]+\(\?:/\.\+\)\?/(?![*+?{])")
_TESTS = re.compile(r"(?:^|.*?/)tests?/")
_ALWAYS = ("/bin/activate", "/pyvenv.cfg", "/bin/python*", "/lib/libpython*")


@dataclass(frozen=True)
class Selection:
    """Which files to exclude, by patterns as in ``.gitignore``."""

    exclude: tuple[str, ...] = ()  # patterns of the user, in addition to `DEFAULT_EXCLUDE`
    include: tuple[str, ...] = ()  # patterns of files to keep although an exclude pattern matches

    @cached_property
    def digest(self) -> str:
        """Digest of the selection: the same digest selects the same files of the same environment."""
        key_parts = [DEFAULT_EXCLUDE, DEFAULT_INCLUDE, _HOLLOW.pattern, _ALWAYS, self.exclude, self.include]
        return hashlib.sha256(json.dumps(key_parts).encode()).hexdigest()

    def of(self, entries: Sequence[Entry]) -> tuple[Entry, ...]:
        """The entries that leave the store, in order, with what each environment needs; no links to excluded files."""
        useless, useful = _matcher("", DEFAULT_EXCLUDE), _matcher("", DEFAULT_INCLUDE)
        excluded = _matcher("exclude", self.exclude) if self.exclude else None
        included = _matcher("include", (*_ALWAYS, *self.include))
        kept = []
        for entry in entries:
            name = f"{entry.path}/" if entry.kind == "folder" else entry.path
            useless_here = useless.search(name) and not useful.search(name)
            unwanted = useless_here or (excluded and excluded.search(name))
            if not unwanted or included.search(name):
                kept.append(entry)
        return _without_dangling(entries, _without_hollow(kept, included))


def _matcher(option: str, patterns: Iterable[str]) -> re.Pattern[str]:
    """One regular expression for all patterns, because there may be a hundred thousand names."""
    from pathspec import PathSpec

    expressions: dict[str, list[str]] = {}
    for pattern in patterns:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", FutureWarning)  # of brackets in brackets, which mean themselves
                (compiled,) = PathSpec.from_lines("gitignore", [pattern]).patterns
        except (ValueError, re.error):
            compiled = None
        if (
            compiled is None or compiled.regex is None or not compiled.include
        ):  # a comment, an empty line, or "!", for which the other option exists
            fix = "write it as in .gitignore, without ! and #: /share/locale/, *.txt, **/examples/"
            raise UsageError("bad-pattern", f"{option} {pattern!r} is not a valid pattern", fix)
        folder = _DEEP.match(compiled.regex.pattern)
        start = folder[0] if folder else ""
        expressions.setdefault(start, []).append(compiled.regex.pattern.removeprefix(start))
    # A common start is matched once per name, not once per pattern, which is several times as fast.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        return re.compile("|".join(f"{start}(?:{'|'.join(endings)})" for start, endings in expressions.items()))


def _without_hollow(kept: list[Entry], included: re.Pattern[str]) -> list[Entry]:
    """Drop test folders that contain only `_HOLLOW` files after the selection: a third of all folders."""
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
    """Drop links whose target was excluded; links that were broken before stay."""
    if not any(entry.kind == "link" for entry in kept):
        return tuple(kept)
    existed = _existing_paths(before)
    while True:
        exists = _existing_paths(kept)
        remaining = [entry for entry in kept if entry.kind != "link" or _leads(entry, exists, existed)]
        if len(remaining) == len(kept):
            return tuple(kept)
        kept = remaining


def _leads(link: Entry, exists: set[str], existed: set[str]) -> bool:
    target = posixpath.normpath(posixpath.join(posixpath.dirname(link.path), link.target))
    return target in exists or target not in existed


def _existing_paths(entries: Iterable[Entry]) -> set[str]:
    """Every path that exists with exactly these entries, including the folders above them."""
    found: set[str] = set()
    for entry in entries:
        path = entry.path
        while path and path not in found:
            found.add(path)
            path = path.rpartition("/")[0]
    return found
