"""From models and options to tasks: what each orders, what it needs, and what only this machine can make."""

import hashlib
import json
from dataclasses import replace

import pytest

from envpack.fleet.orders import build_tasks, lock_tasks, stub_tasks
from envpack.lock.lockfile import Lock, write_lock
from envpack.requirements.model import CondaPackage
from envpack.requirements.target import Target
from envpack.settings.project import open_project
from envpack.settings.releases import find_release
from envpack.settings.table import Settings
from envpack.store.shared import open_store
from envpack.stub.recipe import Cell
from envpack.stub.target import StubTarget
from envpack.support.errors import StubError
from envpack.support.placed_files import STUB_NAME
from envpack.workflow.recipes import make_lock

CHANNEL = "https://channel.example/conda"
RESOLVE = Settings(python="3.10", channels=(CHANNEL,))
ENSEMBLE = 'platform: "ensemble" ensemble_scheduling { step [ { model_name: "a" model_version: -1 } ] }'


@pytest.fixture
def project(add_model, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("ENVPACK_CACHE_DIR", str(tmp_path / "cache"))
    for name, requirements in {"a": "numpy\n", "b": "scipy\n", "c": "numpy\n"}.items():
        add_model(name, requirements)
    (tmp_path / "e/1").mkdir(parents=True)
    (tmp_path / "e/config.pbtxt").write_text(ENSEMBLE)
    return open_project(tmp_path)


@pytest.fixture
def store(tmp_path_factory):
    return open_store(f"file://{tmp_path_factory.mktemp('store')}", push=True)


def recipe_of(task):
    return task.work.args[0]


def one(tasks):
    (task,) = tasks
    return task


def test_equal_environments_are_one_task(project):
    tasks = build_tasks(project.saying(RESOLVE), ["a", "b", "c", "e"], None)
    assert [task.names for task in tasks] == [("a", "c"), ("b",)]
    first = tasks[0]
    assert first.key.startswith("envpack-environment-")
    assert (first.needs, first.store) == (("platform linux-64",), "")
    recipe = recipe_of(first)
    assert recipe.target == Target("linux-64", "3.10", find_release("24.10").glibc, find_release("24.10").cuda)
    assert (recipe.channels, recipe.sources, recipe.lock) == ((CHANNEL,), (), "")
    assert (recipe.triton, recipe.abi) == ("24.10", "")
    assert recipe.requirements.pip == ("numpy",)


def test_each_option_that_decides_the_result_is_another_task(project, store):
    plain = one(build_tasks(project.saying(RESOLVE), ["a"], None))
    others = [
        (RESOLVE.saying(strip=True), None),
        (RESOLVE.saying(stub="always"), None),
        (RESOLVE.saying(toolchain="zig"), None),
        (RESOLVE.saying(triton="25.08"), None),
        (RESOLVE.saying(python="3.11"), None),
        (RESOLVE, store),
    ]
    keys = [one(build_tasks(project.saying(options), ["a"], place)).key for options, place in others]
    assert len({plain.key, *keys}) == 7
    assert one(build_tasks(project.saying(RESOLVE), ["a"], None)).key == plain.key
    found = one(build_tasks(project.saying(others[0][0]), ["a"], store))
    assert (recipe_of(found).strip, found.store) == (True, str(store.location))


def test_a_stub_needs_a_compiler(project, tmp_path):
    for options in ({"stub": "always"}, {"layout": "backend"}, {"start": "warm"}):
        task = one(build_tasks(project.saying(RESOLVE.saying(**options)), ["a"], None))
        assert (recipe_of(task).stub, task.needs) == ("always", ("platform linux-64", "compiler")), options
    assert recipe_of(one(build_tasks(project.saying(RESOLVE.saying(stub="never")), ["a"], None))).stub == "never"
    (tmp_path / "a" / STUB_NAME).touch()
    assert recipe_of(one(build_tasks(project.saying(RESOLVE), ["a"], None))).stub == "always"


def test_a_lockfile_travels_and_names_the_environment(project, tmp_path, store):
    interpreter = tmp_path / "python-3.10.1-0.conda"
    interpreter.write_bytes(b"interpreter")
    package = CondaPackage(
        name="python",
        version="3.10.1",
        build="0",
        subdir="linux-64",
        url=interpreter.as_uri(),
        sha256=hashlib.sha256(b"interpreter").hexdigest(),
    )
    lock = Lock(Target("linux-64", "3.10", "2.35", ""), ("local",), (package,), ())
    write_lock(lock, tmp_path / "a/envpack.lock")
    task = one(build_tasks(project.saying(RESOLVE.saying(strip=True)), ["a"], store))
    assert recipe_of(task).lock == lock.text
    assert task.key.startswith(f"envpack-environment-{lock.environment_key(strip=True)}-")
    assert store.find("package", package.sha256), "what only this machine has is shared before"
    store.push = False
    store.objects.delete([found.path for found in store.objects.list("records")])
    build_tasks(project.saying(RESOLVE), ["a"], store)
    assert store.objects.list("records") == []


def test_an_interpreter_becomes_a_package_on_a_worker_that_has_it(project, tmp_path):
    local = Settings(python="3.10")
    assert one(build_tasks(project.saying(local), ["a"], None)).needs == ("platform linux-64", "python 3.10")
    lock = Lock(Target("linux-64", "3.10", "2.35", ""), ("local",), (), ())
    write_lock(lock, tmp_path / "a/envpack.lock")
    assert one(build_tasks(project.saying(local), ["a"], None)).needs == ("platform linux-64",)


@pytest.mark.parametrize(
    "requirements",
    [
        "-e ./project\n",
        "--find-links ./wheels\nnumpy\n",
        "--extra-index-url ./wheels\nnumpy\n",
        "./wheels/numpy-1-py3-none-any.whl\n",
    ],
)
def test_files_of_this_machine_stay_here_where_a_store_is_between(project, tmp_path, store, requirements):
    (tmp_path / "a/project").mkdir()
    (tmp_path / "a/project/pyproject.toml").write_text('[project]\nname = "p"\nversion = "1"\n')
    (tmp_path / "a/wheels").mkdir()
    (tmp_path / "a/wheels/numpy-1-py3-none-any.whl").touch()
    (tmp_path / "a/requirements.txt").write_text(requirements)
    assert build_tasks(project.saying(RESOLVE), ["a"], store) == ()
    assert len(build_tasks(project.saying(RESOLVE), ["a"], None)) == 1
    assert lock_tasks(project.saying(RESOLVE), ["a"], (), store) == ()
    assert len(lock_tasks(project.saying(RESOLVE), ["a"], (), None)) == 1


def test_a_folder_that_is_the_index_of_a_package_stays_here(project, tmp_path, store):
    (tmp_path / "a/requirements.txt").unlink()
    (tmp_path / "a/pyproject.toml").write_text(
        '[project]\nname = "p"\ndependencies = ["numpy"]\n[tool.uv.sources]\nnumpy = {index = "here"}\n'
        '[[tool.uv.index]]\nname = "here"\nurl = "wheels"\nexplicit = true\n'
    )
    assert build_tasks(project.saying(RESOLVE), ["a"], store) == ()


def test_channels_of_this_machine_stay_here_too(project, tmp_path, store, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for channel in ("./channel", "/channel", "~/channel", "file:///channel"):
        options = RESOLVE.saying(channels=(channel,))
        assert build_tasks(project.saying(options), ["b"], store) == (), channel
    assert len(build_tasks(project.saying(Settings(python="3.10")), ["b"], store)) == 1


def test_a_folder_with_the_name_of_a_channel_is_not_that_channel(project, tmp_path, store, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert len(build_tasks(project.saying(RESOLVE.saying(channels=("a",))), ["b"], store)) == 1


def test_an_environment_from_a_folder_is_taken_over_here(project, tmp_path):
    options = RESOLVE.saying(from_prefix=tmp_path)
    assert build_tasks(project.saying(options), ["a"], None) == ()
    (tmp_path / "envpack.toml").write_text('[models.a]\nfrom_prefix = "/srv/env"\n')
    assert [task.names for task in lock_tasks(open_project(tmp_path).saying(RESOLVE), ["a", "b", "e"], (), None)] == [
        ("b",)
    ]


def test_locks_are_tasks_with_what_they_were_before(project, tmp_path, store):
    tasks = lock_tasks(project.saying(RESOLVE), ["a", "b", "c", "e"], ("numpy",), store)
    assert [task.names for task in tasks] == [("a", "c"), ("b",)]
    first = tasks[0]
    assert (first.work.func, first.work.args[1]) == (make_lock, ("numpy",))
    assert (recipe_of(first).channels, recipe_of(first).lock) == ((CHANNEL,), "")
    assert (first.needs, first.store) == (("platform linux-64",), str(store.location))
    assert first.key.startswith("envpack-lock-")
    lock = Lock(Target("linux-64", "3.10", "2.35", ""), (CHANNEL,), (), ())
    write_lock(lock, tmp_path / "a/envpack.lock")
    again = lock_tasks(project.saying(RESOLVE), ["a"], ("numpy",), store)[0]
    assert (recipe_of(again).lock, again.key != first.key) == (lock.text, True)
    keys = {
        lock_tasks(project.saying(RESOLVE), ["a"], update, place)[0].key
        for update in ((), ("x",))
        for place in (None, store)
    }
    assert len(keys) == 4
    local = lock_tasks(project.saying(Settings(python="3.10")), ["b"], (), None)[0]
    assert local.needs == ("platform linux-64", "python 3.10")


def test_stubs_are_tasks_for_the_pythons_of_workers(tmp_path, monkeypatch, store):
    def known(minor, *, fetch=False):
        assert not fetch
        if minor == "3.13":
            raise StubError("interpreter-missing", "no such Python", "install it")
        return StubTarget(minor, "x86_64", tmp_path, tmp_path / f"libpython{minor}.so.1.0")

    monkeypatch.setattr("envpack.workflow.recipes.target_from_interpreter", known)
    release = find_release("24.10")
    of_a_folder = replace(known("3.11"), include=tmp_path / "other")
    missing = replace(known("3.10"), minor="3.13")
    cells = [Cell(known("3.10")), Cell(known("3.9"), (release,)), Cell(of_a_folder), Cell(missing)]
    cells = [replace(cell, toolchain="zig", glibc="2.28") for cell in cells]
    said = Settings(abi="24.10", store=str(store.location))
    tasks = stub_tasks(cells, said)
    assert [task.names for task in tasks] == [("cp310-x86_64",), ("cp39-24.10-x86_64",)]
    assert [task.work.args for task in tasks] == [("3.10", ""), ("3.9", "24.10")]
    for task in tasks:
        assert task.work.keywords == {"abi": "24.10", "toolchain": "zig", "glibc": "2.28"}
        assert task.needs == ("compiler", f"python {task.work.args[0]}")
        assert task.store == str(store.location)
        assert task.key.startswith(f"envpack-stub-{task.names[0]}-")
    other = stub_tasks([replace(cell, glibc="2.17") for cell in cells], said)
    assert other[0].key != tasks[0].key
    assert json.dumps([task.key for task in other])
