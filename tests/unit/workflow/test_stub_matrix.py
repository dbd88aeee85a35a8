"""Stubs of a matrix are placed in folders named by their identifiers; a folder that stays empty is removed."""

import os
from pathlib import Path

import pytest

from envpack.settings.releases import find_release
from envpack.stub.build import Stub
from envpack.stub.recipe import Cell
from envpack.stub.target import StubTarget
from envpack.stub.toolchain import Toolchain
from envpack.support.errors import InputError, StorageError, StubError
from envpack.support.placed_files import STUB_NAME
from envpack.support.progress import NoProgress
from envpack.workflow import stubs
from envpack.workflow.shared import stub_for
from envpack.workflow.stubs import build_matrix, plan_build
from tests.steps import Steps
from tests.tables import every_row

BROKEN = StubError("compile-failed", "broken", "mend it")
TOOLS = Toolchain("system", ("c++",), "c++ 1.2", "x86_64")


def cell(minor, release=None):
    target = StubTarget(minor, "x86_64", Path("include"), Path(f"libpython{minor}.so.1.0"))
    return Cell(target, (find_release(release),) if release else ())


ANY, ONE = cell("3.9"), cell("3.10", "24.10")


def test_a_stub_is_compiled_as_it_was_asked_for(monkeypatch):
    asked = {}
    monkeypatch.setattr("envpack.workflow.shared.build_stub", lambda cell, **how: asked.update({"cell": cell, **how}))
    progress = NoProgress()
    stub_for(ANY, jobs=3, progress=progress)
    assert asked == {"cell": ANY, "jobs": 3, "progress": progress}


@pytest.fixture
def compiler(tmp_path, monkeypatch):
    """Compiles nothing: the outcome of each Python is in this dictionary, by default a fresh stub."""
    outcomes = {}
    binary = tmp_path / "cache/stub"
    binary.parent.mkdir()
    binary.write_bytes(b"a stub, envpack_stub_run")

    def compile_stubs(recipes, ended, **_):
        for recipe in reversed(recipes):
            stub = Stub(binary, None, fresh=True, seconds=1.24)
            ended(recipe, outcomes.get(recipe.cell.target.minor, stub))

    monkeypatch.setattr("envpack.stub.recipe.find_toolchain", lambda *_, **options: TOOLS)
    monkeypatch.setattr(stubs, "compile_stubs", compile_stubs)
    monkeypatch.setattr(stubs, "cached_stub", lambda *_, **options: binary)
    return outcomes


def names(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def test_each_stub_is_in_the_folder_of_its_identifier(compiler, tmp_path):
    output = tmp_path / "out"
    first, second = build_matrix([ANY, ONE], output)
    assert (first.cell, second.cell) == (ANY, ONE)
    assert (first.path, second.path) == (output / "cp39-x86_64" / STUB_NAME, output / "cp310-24.10-x86_64" / STUB_NAME)
    assert (first.changed, first.error, first.stub.path.read_bytes()) == (True, None, b"a stub, envpack_stub_run")
    assert first.path.read_bytes() == second.path.read_bytes() == b"a stub, envpack_stub_run"
    assert len(names(first.path.parent)) == 1
    assert len(names(second.path.parent)) == 2  # the release file too
    assert [result.changed for result in build_matrix([ANY, ONE], output)] == [False, False]


def test_a_stub_that_does_not_compile_leaves_no_folder_and_the_others_are_placed(compiler, tmp_path):
    compiler["3.10"] = BROKEN
    placed, failed = build_matrix([ANY, ONE], tmp_path / "out")
    assert (placed.error, placed.changed) == (None, True)
    assert (failed.error, failed.stub, failed.changed) == (BROKEN, None, False)
    assert names(tmp_path / "out") == ["cp39-x86_64", f"cp39-x86_64/{STUB_NAME}"]


def test_an_empty_folder_is_removed_and_one_with_files_stays_if_placing_fails(compiler, tmp_path, monkeypatch):
    def place_stub(*_):
        raise PermissionError(13, os.strerror(13))

    monkeypatch.setattr(stubs, "place_stub", place_stub)
    used = tmp_path / "out/cp310-24.10-x86_64"
    used.mkdir(parents=True)
    (used / "mine").touch()
    for result in build_matrix([ANY, ONE], tmp_path / "out"):
        assert (result.error.kind, result.stub.fresh, result.changed) == ("not-writable", True, False)
        assert result.error.where == str(result.path.parent)
    assert names(tmp_path / "out") == [used.name, f"{used.name}/mine"]


def test_a_file_with_the_name_of_a_folder_is_named(compiler, tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out/cp39-x86_64").write_text("mine")
    failed, placed = build_matrix([ANY, ONE], tmp_path / "out")
    assert isinstance(failed.error, InputError)
    assert (failed.error.kind, failed.error.where) == ("output-missing", str(tmp_path / "out/cp39-x86_64"))
    assert failed.error.hint == "remove it"
    assert (tmp_path / "out/cp39-x86_64").read_text() == "mine"
    assert placed.error is None


@pytest.mark.parametrize("prepare", [lambda path: None, Path.touch], ids=["missing", "file"])
def test_the_parent_of_the_output_must_be_a_folder(compiler, tmp_path, prepare):
    prepare(tmp_path / "parent")
    with pytest.raises(InputError) as caught:
        build_matrix([ANY], tmp_path / "parent/out")
    assert (caught.value.kind, caught.value.where) == ("output-missing", str(tmp_path / "parent/out"))


@every_row(
    ("make", "says"),
    [
        (lambda path: None, ("this folder does not exist", "create it")),
        (lambda path: path.symlink_to("nowhere"), ("this is not a folder", "remove it, or name another one")),
        (os.mkfifo, ("this is not a folder", "remove it, or name another one")),
    ],
)
def test_what_is_no_folder_for_the_output_is_named_as_what_it_is(tmp_path, make, says):
    output = tmp_path / "out"
    output.unlink(missing_ok=True)
    make(output)
    error = stubs.output_missing(output)
    assert (error.kind, error.where, error.message, error.hint) == ("output-missing", str(output), *says)


def test_an_output_that_cannot_be_made_is_an_error_for_the_user(compiler, tmp_path, monkeypatch):
    def mkdir(path, **_):
        raise PermissionError(13, os.strerror(13))

    monkeypatch.setattr(Path, "mkdir", mkdir)
    with pytest.raises(StorageError) as caught:
        build_matrix([ANY], tmp_path / "out")
    assert (caught.value.kind, caught.value.where) == ("not-writable", str(tmp_path / "out"))


def test_every_stub_is_reported_with_what_was_done(compiler, tmp_path):
    compiler["3.9"] = BROKEN
    steps = Steps()
    build_matrix([ANY, ONE], tmp_path / "out", progress=steps)
    assert steps.seen == [
        "2 stubs",
        "cp310-24.10-x86_64: compiled in 1.2 s",
        "1 of 2 stubs left",
        "cp39-x86_64: failed",
    ]
    steps = Steps()
    build_matrix([ONE], tmp_path / "out", progress=steps)
    assert steps.seen == ["1 stub", "cp310-24.10-x86_64: compiled in 1.2 s, up to date"]


def test_a_plan_places_nothing(compiler, tmp_path, monkeypatch):
    folders = [tmp_path / "a", tmp_path / "b"]
    build_matrix([ANY], tmp_path)
    (tmp_path / "cp39-x86_64").rename(folders[0])
    before = names(tmp_path)
    first, second = plan_build([ANY, ONE], folders)
    assert (first.cell, first.path, first.cached, first.placed) == (ANY, folders[0] / STUB_NAME, True, True)
    assert (second.cell, second.path, second.cached, second.placed) == (ONE, folders[1] / STUB_NAME, True, False)
    monkeypatch.setattr(stubs, "cached_stub", lambda *_, **options: None)
    assert [(plan.cached, plan.placed) for plan in plan_build([ANY], folders[:1])] == [(False, False)]
    assert names(tmp_path) == before
