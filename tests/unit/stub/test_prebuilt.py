"""When a stub of the package triton-envpack-stubs is taken, and when it is not."""

import hashlib
import json
import os
import sys
from pathlib import Path

import pytest

import envpack
from envpack.stub.prebuilt import COMPRESSED, MANIFEST, PACKAGE, find_prebuilt, manifest, prebuilt_pythons
from envpack.stub.recipe import Cell
from envpack.stub.target import StubTarget
from envpack.support import zstd
from envpack.support.folders import cache_root
from tests.damage import overwrite

CONTENT = b"as good as a stub"
NAME = "cp310-x86_64"


class Listener:
    """Remembers the details."""

    def __init__(self):
        self.details = []

    def begin(self, task):
        raise AssertionError(task)

    def detail(self, text):
        self.details.append(text)

    def advance(self, done, total, unit, *, size=0):
        raise AssertionError(unit)

    def end(self, outcome):
        raise AssertionError(outcome)


class Installed:
    """A package triton-envpack-stubs with one stub."""

    def __init__(self, folder):
        self.folder = folder
        self.stub = folder / f"{NAME}{COMPRESSED}"
        folder.mkdir()
        (folder / "__init__.py").write_text("")
        self.stub.write_bytes(zstd.compress(CONTENT))
        digest = hashlib.sha256(CONTENT).hexdigest()
        stub = {"python": "3.10", "machine": "x86_64", "glibc": "2.28", "sha256": digest}
        (folder / MANIFEST).write_text(manifest({NAME: stub}))

    def change(self, **changes):
        content = json.loads((self.folder / MANIFEST).read_text())
        (self.folder / MANIFEST).write_text(json.dumps(content | changes))


@pytest.fixture
def installed(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("ENVPACK_CACHE_DIR", str(tmp_path / "cache"))
    yield Installed(tmp_path / PACKAGE)
    sys.modules.pop(PACKAGE, None)


def find(minor="3.10", machine="x86_64", glibc=""):
    """What is found, and the reason if nothing is used though something is there."""
    target = StubTarget(minor, machine, Path("/nowhere"), Path("/nowhere/libpython.so"))
    listener = Listener()
    found = find_prebuilt(Cell(target, glibc=glibc), cache_root(), listener)
    assert not (found and listener.details)
    return found, " ".join(listener.details)


def is_taken(**wanted):
    found, reason = find(**wanted)
    return found.read_bytes() == CONTENT and os.access(found, os.X_OK) if found else reason


def test_nothing_is_installed(monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    assert find() == (None, "")


@pytest.mark.parametrize("glibc", ["", "2.28", "2.31", "2.100"])
def test_it_is_taken(installed, glibc):
    assert is_taken(glibc=glibc) is True


@pytest.mark.parametrize("other", [{"minor": "3.11"}, {"machine": "aarch64"}, {"glibc": "2.27"}])
def test_another_one_is_asked_for(installed, other):
    assert find(**other) == (None, "")


def test_it_was_made_by_another_envpack(installed):
    installed.change(envpack="0.0.9")
    assert find() == (
        None,
        f"triton-envpack-stubs is not used: it was built by envpack 0.0.9, this is {envpack.__version__}",
    )


def test_it_was_made_from_other_sources(installed):
    installed.change(sources="0" * 64)
    assert "from other sources" in find()[1]


def test_it_is_unpacked_once(installed):
    first, _ = find()
    installed.stub.unlink()
    assert find() == (first, "")


def test_a_damaged_copy_in_the_cache_is_unpacked_again(installed):
    overwrite(find()[0], b"damaged")
    assert is_taken() is True


@pytest.mark.parametrize("content", [CONTENT, zstd.compress(CONTENT[:-1]), b""])
def test_it_is_damaged(installed, content):
    installed.stub.write_bytes(content)
    assert find() == (None, f"triton-envpack-stubs is not used: {NAME} is damaged or missing")
    installed.stub.unlink()
    assert find() == (None, f"triton-envpack-stubs is not used: {NAME} is damaged or missing")


@pytest.mark.parametrize("text", [None, "", "{", "[]", "{}", "3", '{"envpack": 1}'])
def test_its_manifest_is_damaged(installed, text):
    (installed.folder / MANIFEST).unlink() if text is None else (installed.folder / MANIFEST).write_text(text)
    assert find() == (None, f"triton-envpack-stubs is not used: its {MANIFEST} is missing or damaged")


@pytest.mark.parametrize("stubs", [[], {NAME: {}}, {NAME: "x"}, {"../x": {"python": "3.10"}}])
def test_what_the_manifest_says_of_stubs_makes_no_sense(installed, stubs):
    installed.change(stubs=stubs)
    found, why = find()
    assert found is None
    assert f"its {MANIFEST} is missing or damaged" in why


def test_the_pythons_that_need_no_compiler_are_listed(installed):
    stub = {"machine": "x86_64", "glibc": "2.28", "sha256": ""}
    stubs = {f"cp{minor}": {"python": minor, **stub} for minor in ("3.10", "3.9")}
    installed.change(stubs=stubs | {"other": {"python": "3.8", **stub, "machine": "aarch64"}})
    assert prebuilt_pythons("x86_64") == ("3.9", "3.10")
    installed.change(sources="0" * 64)
    assert prebuilt_pythons("x86_64") == ()
