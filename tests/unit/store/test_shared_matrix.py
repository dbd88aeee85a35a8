"""A matrix of stubs with a store: what it has is fetched, and what this machine compiles is put there."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from envpack.settings.releases import find_release
from envpack.store.shared import open_store
from envpack.stub.build import Stub
from envpack.stub.inspection import inspect_stub
from envpack.stub.recipe import Cell
from envpack.stub.target import StubTarget
from envpack.stub.toolchain import Toolchain
from envpack.support.errors import InputError, StorageError, StubError
from envpack.support.placed_files import STUB_NAME
from envpack.workflow import stubs as module
from envpack.workflow.shared import fetch_stub, push_stub
from envpack.workflow.stubs import build_matrix
from tests.steps import Steps
from tests.unit.stub.elf_files import write_stub

from .conftest import paths


def cell(folder, minor, release=None):
    library = folder / f"libpython{minor}.so.1.0"
    (folder / "include").mkdir(exist_ok=True)
    for file in (library, folder / "include/Python.h", folder / "include/pyconfig.h"):
        file.touch()
    return Cell(StubTarget(minor, "x86_64", folder / "include", library), (find_release(release),) if release else ())


@pytest.fixture
def compiled(tmp_path, monkeypatch):
    """Replaces the compiler: records the stubs to compile, and returns one for each."""
    minors = []

    def compile_stubs(recipes, ended, **_):
        for recipe in recipes:
            minors.append(recipe.cell.target.minor)
            path = write_stub(tmp_path / "compiled" / recipe.cell.target.minor / STUB_NAME, recipe.cell.target.minor)
            ended(recipe, Stub(path, inspect_stub(path), fresh=True, seconds=1.0))

    monkeypatch.setenv("ENVPACK_CACHE_DIR", str(tmp_path / "cache"))
    tools = Toolchain("system", ("c++",), "c++ 1", "x86_64")
    monkeypatch.setattr("envpack.stub.recipe.find_toolchain", lambda *_, **__: tools)
    monkeypatch.setattr(module, "compile_stubs", compile_stubs)
    monkeypatch.setattr("envpack.stub.build.find_prebuilt", lambda *_, **__: None)
    return minors


@pytest.fixture
def shared(url, tmp_path, compiled):
    """A store with the stub for Python 3.9, from another machine."""
    store, one = open_store(url, push=True), cell(tmp_path, "3.9")
    path = write_stub(tmp_path / "elsewhere" / STUB_NAME, "3.9")
    push_stub(store, Stub(path, inspect_stub(path), fresh=True, seconds=1.0), one.key)
    return one


def test_what_the_store_has_is_fetched_and_the_rest_is_compiled(url, shared, compiled, tmp_path):
    other, steps = cell(tmp_path, "3.10"), Steps()
    fetched, made = build_matrix([shared, other], tmp_path / "out", store=open_store(url), progress=steps)
    assert (compiled, fetched.cell, made.cell) == (["3.10"], shared, other)
    assert (fetched.changed, made.changed) == (True, True)
    assert fetched.path.read_bytes() == (tmp_path / "elsewhere" / STUB_NAME).read_bytes()
    assert steps.seen[0].startswith("fetch the stub for Python 3.9 from the store: ")
    assert not any("left" in step for step in steps.seen)
    assert len(paths(open_store(url), "records")) == 1, "this machine may not push"


def test_what_is_compiled_is_put_there(url, shared, compiled, tmp_path):
    store = open_store(url, push=True)
    how = {"toolchain": "system", "glibc": "2.28"}
    one, two = replace(cell(tmp_path, "3.10"), **how), replace(cell(tmp_path, "3.11", "24.10"), **how)
    build_matrix([one, two], tmp_path / "out", store=store)
    for made in (one, two):
        assert store.find("stub", made.key).facts["python"] == made.target.minor
    assert len(paths(store, "records")) == 3


def test_options_of_the_compiler_make_another_stub(url, shared, compiled, tmp_path):
    for how in ({"toolchain": "zig"}, {"toolchain": "zig", "glibc": "2.28"}):
        build_matrix([replace(shared, **how)], tmp_path / "out", store=open_store(url))
    assert compiled == ["3.9", "3.9"]


def test_a_stub_that_this_machine_has_is_not_fetched(url, shared, compiled, tmp_path):
    build_matrix([shared], tmp_path / "out", store=open_store(url))
    steps = Steps()
    (again,) = build_matrix([shared], tmp_path / "out", store=open_store(url), progress=steps)
    assert not [step for step in steps.seen if step.startswith("fetch")]
    assert again.error is None


def test_a_stub_that_was_removed_from_the_cache_is_fetched_again(url, shared, compiled, tmp_path):
    store, steps = open_store(url), Steps()

    def fetch():
        return fetch_stub(store, shared, steps)

    stub, output = fetch(), tmp_path / "out"
    output.mkdir()
    assert module._placed(shared, output, stub, fetch, force=False).changed
    assert len(steps.seen) == 1
    shutil.rmtree(stub.path.parent)
    assert module._placed(shared, output, stub, fetch, force=False).error is None
    assert len(steps.seen) == 2


def test_a_damaged_stub_in_the_store_is_an_error(url, shared, compiled, tmp_path):
    for blob in Path(url.removeprefix("file://"), "blobs").rglob("*"):
        if blob.is_file():
            blob.write_bytes(bytes(blob.stat().st_size))
    with pytest.raises(StorageError) as raised:
        build_matrix([shared], tmp_path / "out", store=open_store(url))
    assert raised.value.kind == "store-corrupt"


def test_a_foreign_stub_in_the_folder_stays_unless_force_renames_it(url, shared, compiled, tmp_path):
    place = tmp_path / "out/cp39-x86_64"
    place.mkdir(parents=True)
    (place / STUB_NAME).write_text("mine")
    (refused,) = build_matrix([shared], tmp_path / "out", store=open_store(url))
    assert (refused.error.kind, (place / STUB_NAME).read_text()) == ("not-ours", "mine")
    shutil.rmtree(tmp_path / "cache")
    (placed,) = build_matrix([shared], tmp_path / "out", store=open_store(url), force=True)
    assert (placed.error, placed.changed) == (None, True)
    assert (place / f"{STUB_NAME}.saved-1").read_text() == "mine"


def test_a_stub_that_fails_is_not_put_there(url, shared, compiled, tmp_path, monkeypatch):
    error = StubError("compile-failed", "broken", "mend it")
    monkeypatch.setattr(module, "compile_stubs", lambda recipes, ended, **_: [ended(one, error) for one in recipes])
    store = open_store(url, push=True)
    (failed,) = build_matrix([cell(tmp_path, "3.10")], tmp_path / "out", store=store)
    assert (failed.error, len(paths(store, "records"))) == (error, 1)


def test_a_missing_folder_is_an_error_before_anything_is_fetched(url, shared, compiled, tmp_path):
    steps = Steps()
    with pytest.raises(InputError) as raised:
        build_matrix([shared], tmp_path / "none/out", store=open_store(url), progress=steps)
    error = raised.value
    assert (error.kind, error.message, error.hint) == ("output-missing", "this folder does not exist", "create it")
    assert steps.seen == []
