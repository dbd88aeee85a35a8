"""Which files leave the store."""

import pytest
from pathspec import PathSpec

from envpack.archive.selection import DEFAULT_EXCLUDE, Selection
from envpack.environment.inventory import Entry
from envpack.support.errors import UsageError
from tests.tables import every_row

SITE = "lib/python3.10/site-packages"


def kept(*paths, exclude=(), include=()):
    entries = [path if isinstance(path, Entry) else Entry(path, "file", "x", 1, "0" * 64) for path in paths]
    return [entry.path for entry in Selection(tuple(exclude), tuple(include)).of(entries)]


TEST_FILES = (
    *("test_x.py", "deep/er/test_x.py", "x_test.py", "data/big.npz", "x.c", "x.f", "src/string/x.f90", "x.pyf"),
    *("__pycache__/test_x.cpython-310.pyc", "__pycache__/x_test.cpython-310.pyc"),
)
LEFT_OUT = (
    *("include/zlib.h", "lib/libz.a", f"{SITE}/pkg/core/lib/libnpymath.a", "lib/libz.la"),
    *("man/man1/x.1", "share/man/man1/x.1", "share/doc/x", "share/info/x", "share/gtk-doc/x"),
    *("lib/pkgconfig/z.pc", "share/pkgconfig/z.pc", "lib/cmake/z", "share/cmake/z", "share/aclocal/z.m4"),
    *("lib/python3.10/idlelib/editor.py", "lib/python3.10/turtledemo/x.py", "lib/python3.10/test/support/__init__.py"),
    "lib/python3.10/config-3.10-x86_64-linux-gnu/Makefile",
    *(f"{SITE}/pkg/{folder}/{name}" for folder in ("tests", "test") for name in TEST_FILES),
)


@every_row("path", [*LEFT_OUT, f"{SITE}/pkg/tests/conftest.py"])
def test_left_out(path):
    assert kept(path) == []
    assert kept(path, include=["**"]) == [path]


@every_row("pattern", DEFAULT_EXCLUDE)
def test_every_default_pattern_has_an_example(pattern):
    """So that a pattern that is added is tested too."""
    assert any(PathSpec.from_lines("gitignore", [pattern]).match_file(path) for path in LEFT_OUT)


@every_row(
    "path",
    [
        f"{SITE}/pkg/__pycache__/core.cpython-310.pyc",
        f"{SITE}/pkg/tests/__init__.py",
        f"{SITE}/pkg/tests/_natype.py",
        f"{SITE}/pkg/conftest.py",
        f"{SITE}/pkg/core/__init__.pyi",  # read by packages that import lazily
        f"{SITE}/pkg/test_of_significance.py",  # no folder for tests
        f"{SITE}/pkg/include/cuda.h",
        f"{SITE}/pkg/data/model.npz",
        "include/python3.10/Python.h",
        "include/python3.10/internal/x.h",
        "share/locale/de/x.mo",
        "bin/pytest",
    ],
)
def test_kept(path):
    assert kept(path) == [path]


def test_of_a_folder_with_tests_nothing_is_left_if_nothing_could_be_imported_from_it():
    frame = ["__init__.py", "conftest.py", "__pycache__/__init__.cpython-310.pyc", "deep/__init__.py"]
    empty = [Entry(f"{SITE}/pkg/tests/{name}", "file", "x") for name in frame]
    test = Entry(f"{SITE}/pkg/tests/deep/test_x.py", "file", "x", 1)
    assert kept(*empty, test) == []
    assert kept(*empty, test, include=["test_x.py"]) == [entry.path for entry in (*empty, test)]
    helper = Entry(f"{SITE}/pkg/tests/deep/common.py", "file", "x", 1)
    assert kept(*empty, test, helper) == [entry.path for entry in (*empty, helper)]
    assert kept(*empty, test, include=["conftest.py"]) == [entry.path for entry in empty[:3]]
    outer = Entry(f"{SITE}/pkg/tests/common.py", "file", "x", 1)
    assert kept(*empty, test, outer) == [entry.path for entry in (*empty[:3], outer)]


@pytest.mark.parametrize(
    "path", ["bin/activate", "pyvenv.cfg", "bin/python3.10", "lib/libpython3.10.so.1.0", "bin/python"]
)
def test_what_makes_an_environment_cannot_be_left_out(path):
    assert kept(path, exclude=["**", path, "bin/", "/lib/"]) == [path]


def test_patterns_of_the_user_and_what_they_bring_back():
    paths = [f"{SITE}/pkg/a.txt", f"{SITE}/pkg/examples/b.py", f"{SITE}/pkg/c.py", "include/x.h"]
    assert kept(*paths, exclude=["*.txt", "**/examples/"]) == [f"{SITE}/pkg/c.py"]
    assert kept("include/python3.10/Python.h", exclude=["/include/"]) == []
    assert kept(*paths, exclude=["**/pkg/"], include=["b.py", "/include/"]) == [paths[1], paths[3]]


def test_a_pattern_with_a_slash_at_its_end_selects_folders_only():
    folders = [Entry(f"share/{name}", "folder", "x") for name in ("examples", "man")]
    assert kept(*folders, exclude=["examples/"]) == []
    assert kept(*folders, exclude=["examples/"], include=["/share/man/"]) == ["share/man"]
    assert kept("share/examples", exclude=["examples/"]) == ["share/examples"]


def test_links_follow_what_they_point_to():
    def link(path, target):
        return Entry(path, "link", "x", target=target)

    entries = [
        Entry("lib/liba.a", "file", "x", 1, "0" * 64),
        link("lib/one", "liba.a"),
        link("lib/two", "one"),
        link("man/x", "../lib"),
        link("docs", "share/doc"),
        Entry("share/doc/x", "file", "x", 1, "0" * 64),
        link("lib/nowhere", "never-was"),
        link("lib/up", "../bin/python"),
        Entry("bin/python", "program", "x", 1, "0" * 64),
    ]
    assert kept(*entries) == ["lib/nowhere", "lib/up", "bin/python"]


@pytest.mark.parametrize("pattern", ["!keep", "", "# comment", "a/\\"])
@pytest.mark.parametrize("option", ["exclude", "include"])
def test_patterns_that_mean_nothing(option, pattern):
    with pytest.raises(UsageError) as caught:
        kept("a", **{option: [pattern]})
    assert (caught.value.kind, caught.value.message) == (
        "bad-pattern",
        f"{option} {pattern!r} is not a valid pattern",
    )
    assert caught.value.hint == "write it as in .gitignore, without ! and #: /share/locale/, *.txt, **/examples/"


def test_the_digest_names_the_choice():
    assert Selection(("a",)).digest == Selection(("a",)).digest
    assert len({selection.digest for selection in (Selection(), Selection(("a",)), Selection((), ("a",)))}) == 3
