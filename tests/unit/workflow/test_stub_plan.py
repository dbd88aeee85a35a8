"""Which stubs `envpack stub` compiles, and where one of them goes."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from envpack.settings.releases import find_release
from envpack.settings.table import Settings
from envpack.stub.build import Stub
from envpack.stub.inspection import inspect_stub
from envpack.stub.recipe import Cell
from envpack.stub.target import StubTarget
from envpack.support.errors import InputError, StubError, UsageError
from envpack.support.placed_files import STUB_NAME
from envpack.support.progress import NoProgress
from envpack.workflow import stubs as module
from envpack.workflow.stubs import WantedStubs, build_one_stub, plan_stubs, stub_store
from tests.steps import Steps
from tests.tables import every_row
from tests.unit.stub.elf_files import write_stub

FAULT = StubError("no-shared-library", "static", "install another one")


def target(minor):
    return StubTarget(minor, "x86_64", Path("include"), Path(f"libpython{minor}.so.1.0"))


@pytest.fixture
def pythons(monkeypatch):
    """Replaces the lookup of Pythons of this machine and of folders; returns the arguments of each call."""
    asked = []

    def from_interpreter(minor, **how):
        asked.append((minor, how))
        return target(minor)

    def from_prefix(prefix):
        asked.append(prefix)
        return target("3.13")

    def find_pythons(preference):
        asked.append(preference)
        return SimpleNamespace(targets=(target("3.8"), target("3.9")), missing={"3.7": FAULT})

    monkeypatch.setattr(module, "target_from_interpreter", from_interpreter)
    monkeypatch.setattr(module, "target_from_prefix", from_prefix)
    monkeypatch.setattr(module, "find_pythons", find_pythons)
    return asked


def plan(said=None, **wanted):
    return plan_stubs(WantedStubs(**wanted), said or Settings(), NoProgress())


def identifiers(planned):
    return [cell.identifier for cell in planned.cells]


@every_row(
    ("wanted", "is_matrix"),
    [
        ({"pythons": ("3.8",)}, False),
        ({"prefixes": (Path("env"),)}, False),
        ({"pythons": ("3.8",), "tritons": ("24.10",)}, False),
        ({"pythons": ("3.8", "3.9")}, True),
        ({"pythons": ("3.8",), "prefixes": (Path("env"),)}, True),
        ({"prefixes": (Path("a"), Path("b"))}, True),
        ({"pythons": ("3.8",), "tritons": ("24.10", "25.08")}, True),
        ({"all_pythons": True}, True),
        ({"pythons": ("3.8",), "only": ("cp38-*",)}, True),
        ({"pythons": ("3.8",), "skip": ("cp38-*",)}, True),
    ],
)
def test_what_is_asked_for_alone_decides_whether_stubs_get_folders(wanted, is_matrix):
    assert WantedStubs(**wanted).is_matrix is is_matrix


def test_each_python_gets_a_stub_for_all_releases(pythons, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    planned = plan(Settings(python_preference="only-system"), pythons=("3.8", "3.10"), prefixes=(Path("env"),))
    assert identifiers(planned) == ["cp38-x86_64", "cp310-x86_64", "cp313-x86_64"]
    assert [minor for minor, _ in pythons[:2]] == ["3.8", "3.10"]
    assert all(how["preference"] == "only-system" for _, how in pythons[:2])
    assert pythons[2] == tmp_path / "env", "whatever the working folder is later"
    assert (planned.missing, planned.warnings) == ({}, ())


def test_each_release_gets_a_stub_of_its_own(pythons):
    planned = plan(pythons=("3.10",), tritons=("24.10", "23.04"))
    assert sorted(identifiers(planned)) == ["cp310-23.04-x86_64", "cp310-24.10-x86_64"]


def test_all_pythons_are_those_of_this_machine_and_what_is_missing_says_why(pythons):
    planned = plan(all_pythons=True, prefixes=(Path("/env"),))
    assert identifiers(planned) == ["cp38-x86_64", "cp39-x86_64", "cp313-x86_64"]
    assert planned.missing == {"3.7": FAULT}


def test_patterns_select(pythons):
    assert identifiers(plan(pythons=("3.8", "3.9"), only=("cp39-*",))) == ["cp39-x86_64"]
    assert identifiers(plan(pythons=("3.8", "3.9"), skip=("cp39-*",))) == ["cp38-x86_64"]
    with pytest.raises(UsageError, match="no stub matches"):
        plan(pythons=("3.8",), only=("cp39-*",))


def test_an_unknown_version_is_refused_before_any_python_is_fetched(pythons):
    with pytest.raises(UsageError, match=r"3\.99"):
        plan(pythons=("3.8", "3.99"))
    with pytest.raises(UsageError, match=r"unknown Triton release '1\.0'"):
        plan(pythons=("3.8",), tritons=("1.0",))
    assert pythons == []


def test_a_release_after_the_known_ones_is_a_warning(pythons):
    planned = plan(pythons=("3.10",), tritons=("30.01",), said=Settings(abi="24.10"))
    assert len(planned.warnings) == 1
    assert "30.01" in planned.warnings[0]


def test_the_store_is_the_one_that_settings_name(tmp_path):
    (tmp_path / "store").mkdir()
    url = f"file://{tmp_path}/store"
    store = stub_store(Settings(store=url, push=True))
    assert (store.location.folder, store.push) == (tmp_path / "store", True)
    assert stub_store(Settings(store=url)).push is False
    assert stub_store(Settings()) is stub_store(Settings(store="none")) is None


# One stub


@pytest.fixture
def compiled(monkeypatch, tmp_path):
    """Replaces the compiler; returns the arguments of each call."""
    asked = []
    path = write_stub(tmp_path / "cache" / STUB_NAME, "3.10")
    stub = Stub(path, inspect_stub(path), fresh=True, seconds=1)
    monkeypatch.setattr(module, "stub_for", lambda *what, **how: asked.append((what, how)) or stub)
    return asked


def test_a_stub_is_placed_in_a_folder(compiled, tmp_path):
    cell, steps = Cell(target("3.10"), toolchain="zig", glibc="2.28"), Steps()
    (tmp_path / "store").mkdir()
    (tmp_path / "out").mkdir()
    said = Settings(store=f"file://{tmp_path}/store")
    placed = build_one_stub(cell, tmp_path / "out", said, steps, jobs=3)
    ((what, how),) = compiled
    assert str(how.pop("store").location) == said.store
    assert what == (cell,)
    assert how == {"jobs": 3, "progress": steps}
    assert (placed.path, placed.changed, placed.model) == (tmp_path / "out" / STUB_NAME, True, None)
    assert placed.path.read_bytes() == placed.stub.path.read_bytes()
    facts = placed.stub.facts
    assert steps.seen == [f"place {placed.path}: needs {facts.libpython}, glibc {facts.glibc}"]
    again = build_one_stub(cell, tmp_path / "out", said, steps)
    assert (again.changed, steps.seen[-1]) == (False, f"place {placed.path}: up to date")


def test_a_stub_beside_a_model_names_the_model(compiled, tmp_path, monkeypatch):
    (tmp_path / "m/1").mkdir(parents=True)
    (tmp_path / "m/1/model.py").touch()
    monkeypatch.chdir(tmp_path)
    placed = build_one_stub(Cell(target("3.10"), (find_release("24.10"),)), Path("m"), Settings(), NoProgress())
    assert (placed.model, placed.path) == (tmp_path / "m", tmp_path / "m" / STUB_NAME)


def test_a_stub_of_another_origin_stays_unless_force_renames_it(compiled, tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / STUB_NAME).write_text("mine")
    cell = Cell(target("3.10"))
    with pytest.raises(InputError, match="envpack did not make it"):
        build_one_stub(cell, tmp_path / "out", Settings(), NoProgress())
    assert (tmp_path / "out" / STUB_NAME).read_text() == "mine"
    assert build_one_stub(cell, tmp_path / "out", Settings(force=True), NoProgress()).changed
