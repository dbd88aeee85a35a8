"""Tasks and what becomes of them, as data; and what a machine has that they need."""

import contextlib
import dataclasses
import errno
import functools
import hashlib
import json
import pickle
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

import envpack
from envpack.fleet import child
from envpack.fleet.child import LineProgress
from envpack.fleet.tasks import Done, Product, Task, combined, task_key
from envpack.requirements.model import Requirements
from envpack.requirements.target import Target
from envpack.server import launch
from envpack.server.choice import ServerSpec
from envpack.settings.releases import find_release
from envpack.stub.build import Stub
from envpack.stub.inspection import inspect_stub
from envpack.stub.recipe import Cell
from envpack.support.errors import InputError, ServerError, StubError
from envpack.support.placed_files import STUB_NAME
from envpack.support.progress import NoProgress
from envpack.workflow.recipe import Recipe
from envpack.workflow.recipes import abilities, make_ingredients, make_lock, make_stub
from envpack.workflow.verify import verify_there
from tests.steps import Steps
from tests.unit.stub.elf_files import write_stub

STUB = functools.partial(make_stub, "3.10", "24.10", abi="", toolchain="gcc", glibc="2.28")
RECIPE = Recipe(
    name="m",
    requirements=Requirements(pip=("numpy",)),
    target=Target("linux-64", "3.10", "2.35", ""),
    channels=("https://channel.example",),
    triton="24.10",
)


def task(key="k", *names, work=STUB, **fields):
    return Task(key=key, names=names or ("a",), work=work, **fields)


def test_a_task_is_named_after_the_first_model_that_needs_it():
    assert [task("k", *names).label for names in (("a",), ("a", "b"), ("a", "b", "c"))] == [
        "a", "a (and 1 more)", "a (and 2 more)",
    ]  # fmt: skip
    assert task().version == envpack.__version__


def refused(*, progress, store):
    raise OSError(errno.ENOSPC, "No space left on device", "/tmp/x")


def test_what_the_system_refuses_is_explained_as_on_the_callers_machine(tmp_path, monkeypatch):
    monkeypatch.setattr(child, "end_with", lambda _: None)
    (tmp_path / "task").write_bytes(pickle.dumps(task(work=refused)))
    child.main(tmp_path / "task", tmp_path / "product", 0)
    assert pickle.loads((tmp_path / "product").read_bytes()).error.kind == "disk-full"


def test_tasks_that_make_the_same_become_one():
    found = combined([task("k", "a"), task("l", "b"), task("k", "c", "d")])
    assert [(one.key, one.names) for one in found] == [("k", ("a", "c", "d")), ("l", ("b",))]


def test_a_key_changes_with_all_that_decides_the_result(monkeypatch):
    key = task_key("environment", "0f3a", "24.10", "auto")
    assert key == task_key("environment", "0f3a", "24.10", "auto")
    assert key.startswith("envpack-environment-0f3a-")
    assert len(key.rpartition("-")[2]) == 8
    assert key != task_key("environment", "0f3a", "24.10", "never")
    monkeypatch.setattr(envpack, "__version__", "0.0.1")
    assert key != task_key("environment", "0f3a", "24.10", "auto")


def test_an_error_travels_as_it_was():
    sent = Product(error=ServerError("server-missing", "no server", "start one", "/place", details="its log"))
    error = pickle.loads(pickle.dumps(sent)).error
    assert isinstance(error, ServerError)
    found = (error.kind, error.message, error.hint, error.where, error.details)
    assert found == ("server-missing", "no server", "start one", "/place", "its log")


def test_the_json_of_a_task():
    product = Product(fresh=True, digests={"stub": "0"}, seconds=1.23456, worker="w", host="h")
    assert Done(task=task("k", "a", "b"), product=product, attempts=2).as_json() == {
        "task": "k",
        "models": ["a", "b"],
        "worker": "w",
        "host": "h",
        "seconds": 1.235,
        "attempts": 2,
        "made": True,
        "digests": {"stub": "0"},
        "error": "",
    }
    failed = Done(task=task(), product=Product(), attempts=1, error=InputError("bad", "x", "y"))
    assert json.loads(json.dumps(failed.as_json()))["error"] == "bad"


# What a worker makes


@pytest.mark.parametrize("fresh", [True, False])
def test_a_stub_is_made_for_the_python_and_release_of_the_task(monkeypatch, tmp_path, fresh):
    path = write_stub(tmp_path / STUB_NAME)
    asked = []

    def stub_for(cell, **options):
        asked.append((cell, cell.release_names, options.pop("progress") and options))
        return Stub(path, inspect_stub(path), fresh=fresh, seconds=1)

    monkeypatch.setattr("envpack.workflow.recipes.stub_for", stub_for)
    monkeypatch.setattr("envpack.workflow.recipes.target_from_interpreter", lambda python: f"target {python}")
    steps = Steps()
    product = task().carry_out(steps)
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    assert (product.fresh, product.digests, product.lock) == (fresh, {"stub": digest}, "")
    cell = Cell("target 3.10", (find_release("24.10"),), "gcc", "2.28")
    assert asked == [(cell, ["24.10"], {"store": None})]
    assert steps.seen == [f"stub for Python 3.10: {'compiled' if fresh else 'up to date'}"]
    (tmp_path / "store").mkdir()
    plain = functools.partial(make_stub, "3.10", "", abi="", toolchain="gcc", glibc="2.28")
    task(work=plain, store=f"file://{tmp_path}/store").carry_out(NoProgress())
    assert asked[1][1] == []
    store = asked[1][2]["store"]
    assert (str(store.location), store.push) == (f"file://{tmp_path}/store", True)


def test_models_are_verified_where_the_task_says(monkeypatch, tmp_path):
    (tmp_path / "m").mkdir()
    asked = []
    monkeypatch.setattr(
        "envpack.workflow.verify.verify", lambda *found, **options: asked.append((found, options)) or "verdict"
    )
    monkeypatch.setattr(
        "envpack.workflow.verify.verify_published", lambda *found, **__: asked.append(found) or "published"
    )
    options = ServerSpec()

    def verified(place, *models):
        return task(work=functools.partial(verify_there, place, models, options)).carry_out(NoProgress())

    product = verified(str(tmp_path), "m")
    assert (product.fresh, product.verdict) == (True, "verdict")
    assert asked[0][0] == (tmp_path, ("m",))
    assert asked[0][1]["spec"] == options
    assert verified("s3://bucket/models", "m").verdict == "published"
    assert (str(asked[1][0]), asked[1][1]) == ("s3://bucket/models", ("m",))
    with pytest.raises(InputError, match="the worker's machine has no model other there") as raised:
        verified(str(tmp_path), "m", "other")
    assert (raised.value.kind, raised.value.where) == ("repository-not-shared", str(tmp_path))


def test_what_a_recipe_describes_is_made(monkeypatch, tmp_path):
    stub = tmp_path / "stub"
    stub.write_bytes(b"stub")
    asked = []

    @contextlib.contextmanager
    def made(recipe, progress, store):
        asked.append(recipe)
        yield type("Found", (), {"content": "c", "fresh": True})(), stub if recipe.stub == "always" else None

    monkeypatch.setattr("envpack.workflow.recipes.made_ingredients", made)
    for policy in ("always", "never"):
        recipe = dataclasses.replace(RECIPE, stub=policy)
        work = pickle.loads(pickle.dumps(functools.partial(make_ingredients, recipe)))  # as it travels
        product = task("k", "m", work=work).carry_out(NoProgress())
        digests = {"stub": hashlib.sha256(b"stub").hexdigest()} if policy == "always" else {}
        assert (product.fresh, product.digests) == (True, {"environment": "c"} | digests)
        assert asked.pop() == recipe


def test_a_lock_is_made_from_the_one_before(monkeypatch):
    asked = []

    def resolved(recipe, update, progress, store):
        asked.append((recipe.name, recipe.lock, update))
        return SimpleNamespace(text="a lock as text")

    monkeypatch.setattr("envpack.workflow.recipes.resolve_lock", resolved)
    new = task("k", "m", work=functools.partial(make_lock, RECIPE, ("numpy",))).carry_out(NoProgress())
    assert (new.fresh, new.lock) == (True, "a lock as text")
    assert new.digests == {"lock": hashlib.sha256(b"a lock as text").hexdigest()}
    again = dataclasses.replace(RECIPE, lock="a lock as text")
    again_made = task("k", "m", work=functools.partial(make_lock, again, ("numpy",))).carry_out(NoProgress())
    assert not again_made.fresh
    assert asked == [("m", "", ("numpy",)), ("m", "a lock as text", ("numpy",))]


def test_the_steps_of_a_worker_are_lines_of_json(capsys):
    progress = LineProgress()
    progress.begin("compile")
    progress.detail("with zig")
    progress.end("done")
    begun, detail, ended = map(json.loads, capsys.readouterr().out.splitlines())
    assert (begun, detail) == ({"begin": "compile"}, {"detail": "with zig"})
    assert (ended["end"], ended["outcome"], ended["seconds"] >= 0) == ("compile", "done", True)


# What a machine has


@pytest.fixture
def machine(monkeypatch):
    """A machine without anything; the test adds to it."""
    module = sys.modules["envpack.workflow.recipes"]

    def missing(*_, **__):
        raise StubError("compiler-missing", "none", "install one")

    here = set()
    monkeypatch.setattr(module, "host_platform", lambda: "linux-64")
    monkeypatch.setattr(module, "available_interpreters", tuple)
    monkeypatch.setattr(module, "prebuilt_pythons", lambda machine: ())
    monkeypatch.setattr(module, "find_toolchain", missing)
    monkeypatch.setattr(launch, "find_server", missing)
    monkeypatch.setattr(module.shutil, "which", lambda name: name in here and name)
    monkeypatch.setattr(Path, "exists", lambda path: str(path) in here)
    abilities.cache_clear()
    yield module, here, monkeypatch
    abilities.cache_clear()


class Interpreter:
    def __init__(self, minor, library="x"):
        self.minor, self.library = minor, library


def test_what_a_machine_has(machine):
    module, here, patch = machine

    def has():
        abilities.cache_clear()
        return set(abilities()) - {"platform linux-64"}

    assert has() == set()
    patch.setattr(
        module, "available_interpreters", lambda: [Interpreter("3.10"), Interpreter("3.9", ""), Interpreter("3.10")]
    )
    assert has() == {"python 3.10"}
    patch.setattr(module, "available_interpreters", tuple)
    patch.setattr(module, "prebuilt_pythons", lambda machine: ("3.10",))
    assert has() == {"compiler"}
    patch.setattr(module, "prebuilt_pythons", lambda machine: ())
    with patch.context() as one:
        one.setattr(module, "find_toolchain", lambda name, *, machine, glibc: (name, glibc) == ("auto", "") or 1 / 0)
        assert has() == {"compiler"}
    with patch.context() as one:
        one.setattr(launch, "find_server", lambda program: program is None or 1 / 0)
        assert has() == {"server"}
    for name, found in (
        ("/var/run/docker.sock", {"docker", "server"}),
        ("podman", {"docker", "server"}),
        ("/dev/nvidiactl", {"gpu"}),
    ):
        here.add(name)
        assert has() == found
        here.clear()
