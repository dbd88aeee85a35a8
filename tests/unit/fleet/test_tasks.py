"""Tasks and what becomes of them, as data; and what a machine has that they need."""

import contextlib
import dataclasses
import hashlib
import json
import sys
from pathlib import Path

import pytest

import envpack
from envpack.fleet import Task, VerifyOrder
from envpack.fleet.abilities import abilities
from envpack.fleet.child import LineProgress
from envpack.fleet.tasks import BuildOrder, Done, LockOrder, Product, StubOrder, combined, task_key
from envpack.fleet.work import carry_out_order
from envpack.lock import LockOptions
from envpack.requirements import Requirements, Target
from envpack.stub import STUB_NAME, Stub, inspect_stub
from envpack.support.errors import InputError, ServerError, StubError
from envpack.support.progress import NoProgress
from envpack.verification import VerifyOptions
from tests.unit.stub.elf_files import write_stub

STUB = StubOrder(python="3.10", release="24.10", abi="", toolchain="gcc", glibc="2.28")
LOCK = LockOrder(
    requirements=Requirements(pip=("numpy",)),
    target=Target("linux-64", "3.10", "2.35", ""),
    channels=("https://channel.example",),
    sources=(),
    python_preference="system",
    lock="",
    update=("numpy",),
)
VERIFY = VerifyOrder(repository="/models", models=("m",), options=VerifyOptions())


def task(key="k", *names, order=STUB, **fields):
    return Task(key=key, names=names or ("a",), order=order, **fields)


def test_a_task_is_named_after_the_first_model_that_needs_it():
    assert [task("k", *names).label for names in (("a",), ("a", "b"), ("a", "b", "c"))] == [
        "a", "a (and 1 more)", "a (and 2 more)",
    ]  # fmt: skip
    assert [task(order=order).makes_files for order in (STUB, VERIFY)] == [True, False]
    assert task().version == envpack.__version__


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
    fields = ("ServerError", "no server", "server-missing", "/place", "start one", "its log")
    error = Product(error=fields).failure()
    assert isinstance(error, ServerError)
    assert (error.message, error.kind, error.where, error.hint, error.details) == fields[1:]
    assert Product().failure() is None


def test_the_json_of_a_task():
    product = Product(made=True, digests={"stub": "0"}, seconds=1.23456, worker="w", host="h")
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
    failed = Done(task=task(), product=Product(), attempts=1, error=InputError("x", kind="bad", hint="y"))
    assert json.loads(json.dumps(failed.as_json()))["error"] == "bad"


# What a worker makes


class Steps(NoProgress):
    def __init__(self):
        self.seen = []

    def begin(self, task):
        self.seen.append(task)

    def end(self, outcome):
        self.seen[-1] += f": {outcome}"


@pytest.mark.parametrize("fresh", [True, False])
def test_a_stub_is_made_for_the_python_and_release_of_its_order(monkeypatch, tmp_path, fresh):
    path = write_stub(tmp_path / STUB_NAME)
    asked = []

    def stub_for(target, releases, **options):
        asked.append((target, [release.name for release in releases or ()], options.pop("progress") and options))
        return Stub(path, inspect_stub(path), fresh=fresh, seconds=1)

    monkeypatch.setattr("envpack.fleet.work.stub_for", stub_for)
    monkeypatch.setattr("envpack.fleet.work.target_from_interpreter", lambda python: f"target {python}")
    steps = Steps()
    product = carry_out_order(task(), tmp_path, steps)
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    assert (product.made, product.digests, product.lock) == (fresh, {"stub": digest}, "")
    options = {"toolchain": "gcc", "glibc": "2.28", "store": None}
    assert asked == [("target 3.10", ["24.10"], options)]
    assert steps.seen == [f"stub for Python 3.10: {'compiled' if fresh else 'up to date'}"]
    (tmp_path / "store").mkdir()
    plain = dataclasses.replace(STUB, release="")
    carry_out_order(task(order=plain, store=f"file://{tmp_path}/store"), tmp_path, NoProgress())
    assert asked[1][1] == []
    store = asked[1][2]["store"]
    assert (str(store.location), store.push) == (f"file://{tmp_path}/store", True)


def test_models_are_verified_where_the_order_says(monkeypatch, tmp_path):
    (tmp_path / "m").mkdir()
    asked = []
    monkeypatch.setattr(
        "envpack.verification.verify", lambda *found, **options: asked.append((found, options)) or "verdict"
    )
    monkeypatch.setattr(
        "envpack.verification.verify_published", lambda *found, **__: asked.append(found) or "published"
    )
    local = dataclasses.replace(VERIFY, repository=str(tmp_path))
    product = carry_out_order(task(order=local), tmp_path, NoProgress())
    assert (product.made, product.verdict) == (True, "verdict")
    assert asked[0][0] == (tmp_path, ("m",))
    assert asked[0][1]["options"] == VERIFY.options
    away = dataclasses.replace(VERIFY, repository="s3://bucket/models")
    assert carry_out_order(task(order=away), tmp_path, NoProgress()).verdict == "published"
    assert (str(asked[1][0]), asked[1][1]) == ("s3://bucket/models", ("m",))
    with pytest.raises(InputError, match="the worker's machine has no model other there") as raised:
        carry_out_order(task(order=dataclasses.replace(local, models=("m", "other"))), tmp_path, NoProgress())
    assert (raised.value.kind, raised.value.where) == ("repository-not-shared", str(tmp_path))


def test_a_build_has_the_options_of_its_order(monkeypatch, tmp_path):
    stub = tmp_path / "stub"
    stub.write_bytes(b"stub")
    asked = []

    @contextlib.contextmanager
    def made(request, progress, store):
        asked.append(request)
        yield type("Found", (), {"content": "c", "fresh": True})(), stub if request.stub == "always" else None

    monkeypatch.setattr("envpack.fleet.work.made_ingredients", made)
    monkeypatch.setenv("ENVPACK_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("HOME", str(tmp_path))
    order = BuildOrder(
        requirements=Requirements(pip=("numpy",)),
        target=Target("linux-64", "3.10", "2.35", ""),
        channels=("https://channel.example",),
        sources=("x",),
        python_preference="only-system",
        lock="the text of a lock",
        release="24.10",
        abi="",
        strip=True,
        stub="always",
        toolchain="zig",
    )
    product = carry_out_order(task("k", "m", order=order), tmp_path, NoProgress())
    assert product.made
    assert product.digests == {"environment": "c", "stub": hashlib.sha256(b"stub").hexdigest()}
    (request,) = asked
    assert (request.model.name, request.model.folder, request.release.name) == ("m", tmp_path / "m", "24.10")
    assert (tmp_path / "m/envpack.lock").read_text() == "the text of a lock"
    assert (request.strip, request.stub, request.toolchain, request.archive_format) == (True, "always", "zig", "dir")
    source = request.source
    assert (source.requirements, source.target) == (order.requirements, order.target)
    assert isinstance(source.options, LockOptions)
    assert (source.options.channels, source.options.sources) == (order.channels, ("x",))
    assert source.options.cache == tmp_path / "cache"
    (tmp_path / "two").mkdir()
    plain = dataclasses.replace(order, lock="", stub="never", strip=False)
    assert carry_out_order(task("k", "m", order=plain), tmp_path / "two", NoProgress()).digests == {"environment": "c"}
    assert not (tmp_path / "two/m/envpack.lock").exists()


def test_a_lock_is_made_from_the_one_before(monkeypatch, tmp_path):
    asked = []

    def resolved(request, before, update, progress, store):
        asked.append((request.model.name, before, update))
        return "a lock"

    monkeypatch.setattr("envpack.fleet.work.resolve_lock", resolved)
    monkeypatch.setattr("envpack.fleet.work.format_lock", lambda lock: f"{lock} as text")
    monkeypatch.setattr("envpack.fleet.work.parse_lock", lambda text, file: (text, file.name))
    monkeypatch.setenv("ENVPACK_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("HOME", str(tmp_path))
    for folder in ("first", "second"):
        (tmp_path / folder).mkdir()
    new = carry_out_order(task("k", "m", order=LOCK), tmp_path / "first", NoProgress())
    assert (new.made, new.lock) == (True, "a lock as text")
    assert new.digests == {"lock": hashlib.sha256(b"a lock as text").hexdigest()}
    again = dataclasses.replace(LOCK, lock="a lock as text")
    assert not carry_out_order(task("k", "m", order=again), tmp_path / "second", NoProgress()).made
    assert asked == [("m", None, LOCK.update), ("m", ("a lock as text", "envpack.lock"), LOCK.update)]


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
    module = sys.modules["envpack.fleet.abilities"]

    def missing(*_, **__):
        raise StubError("none", kind="compiler-missing", hint="install one")

    here = set()
    monkeypatch.setattr(module, "host_platform", lambda: "linux-64")
    monkeypatch.setattr(module, "available_interpreters", tuple)
    monkeypatch.setattr(module, "prebuilt_pythons", lambda machine: ())
    monkeypatch.setattr(module, "find_toolchain", missing)
    monkeypatch.setattr(module, "find_server", missing)
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
        one.setattr(module, "find_server", lambda program: program is None or 1 / 0)
        assert has() == {"server"}
    for name, found in (
        ("/var/run/docker.sock", {"docker", "server"}),
        ("podman", {"docker", "server"}),
        ("/dev/nvidiactl", {"gpu"}),
    ):
        here.add(name)
        assert has() == found
        here.clear()
