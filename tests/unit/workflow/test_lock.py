"""From a model to its lock, and from its lock to its environment: what is resolved, remembered and shared."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from envpack.lock.lockfile import read_lock, write_lock
from envpack.lock.resolve import LockOptions
from envpack.requirements.model import PipPackage
from envpack.settings.table import Settings
from envpack.store.shared import open_store
from envpack.support.errors import EnvironmentBuildError, InputError
from envpack.support.progress import NoProgress
from envpack.workflow import lock as module
from envpack.workflow.lock import lock_model, locked_environment, refuse_stale, resolve_lock
from envpack.workflow.recipes import look_ahead
from envpack.workflow.shared import find_lock
from tests.unit.store.conftest import requests_to

from .conftest import other_target


class Resolver:
    """Resolves nothing: notes what it is asked, and returns one lock."""

    def __init__(self, machine, monkeypatch):
        self.asked, self.lock, self.remembered = [], machine.lock(), None
        monkeypatch.setattr(module, "lock_requirements", self.resolve)
        monkeypatch.setattr(LockOptions, "resolve_once", self.remember)
        monkeypatch.setattr(LockOptions, "remembered", lambda *_: self.remembered)

    def resolve(self, requirements, target, options, progress):
        self.asked.append((requirements, target, options))
        return self.lock

    def remember(self, requirements, target, progress):
        self.remembered = self.resolve(requirements, target, None, progress)
        return self.remembered


@pytest.fixture
def resolver(machine, monkeypatch):
    return Resolver(machine, monkeypatch)


@pytest.fixture
def store(tmp_path):
    (tmp_path / "store").mkdir()
    return open_store(f"file://{tmp_path}/store", push=True, expiry=0.6)


def test_a_model_gets_a_lockfile_and_what_changed_is_named(machine, resolver):
    done = lock_model(machine.project, "m")
    file = machine.folder / "envpack.lock"
    assert (done.name, done.file, done.packages, done.changes, done.changed, done.local) == ("m", file, 2, (), True, ())
    assert read_lock(file) == resolver.lock
    assert resolver.asked[0][2].previous is None
    assert not lock_model(machine.project, "m").changed
    assert resolver.asked[1][2].previous == resolver.lock
    before = resolver.lock
    more = PipPackage("more", "1", "file:///wheels/more-1-py3-none-any.whl", "c" * 64, 1)
    interpreter = tuple(replace(package, url="file:///channel/python.conda") for package in before.conda)
    resolver.lock = replace(machine.lock("2.0.0"), conda=interpreter, pip=(*machine.lock("2.0.0").pip, more))
    done = lock_model(machine.project, "m", update=("numpy",))
    assert (done.changes, done.packages, done.changed) == (("more – → 1", "numpy 1.26.4 → 2.0.0"), 3, True)
    assert done.local == ("python 3.10.1", "more 1")
    assert resolver.asked[2][2].update == ("numpy",)
    resolver.lock = before
    assert lock_model(machine.project, "m").changes == ("more 1 → –", "numpy 2.0.0 → 1.26.4")


def test_a_lock_of_another_python_decides_nothing(machine, resolver):
    machine.write_lock(machine.lock())
    lock_model(machine.project.saying(Settings(python="3.11")), "m")
    assert resolver.asked[0][1].python == "3.11"
    assert resolver.asked[0][2].previous is None


def test_what_another_machine_has_resolved_is_written(machine, resolver):
    lock = machine.lock("1.0")
    assert lock_model(machine.project, "m", resolved=lock.text).changed
    assert (read_lock(machine.folder / "envpack.lock"), resolver.asked) == (lock, [])


def test_models_with_the_same_requirements_are_resolved_once(machine, resolver):
    for name in ("same", "more", "older", "locked"):
        shutil.copytree(machine.folder, machine.repository / name)
    (machine.repository / "same/requirements.txt").write_text("# as m\n\nnumpy\n")
    (machine.repository / "more/requirements.txt").write_text("numpy\nmore\n")
    project = machine.project
    project.file.write_text(project.file.read_text() + '[models.older]\npython = "3.9"\n')
    write_lock(machine.lock("1.0"), machine.repository / "locked/envpack.lock")
    known, names = {}, ("m", "same", "more", "older", "locked")
    done = [lock_model(machine.project, name, known=known, progress=machine.steps) for name in names]
    assert [model.packages for model in done] == [2] * 5
    assert read_lock(machine.repository / "same/envpack.lock") == read_lock(machine.folder / "envpack.lock")
    assert [options.previous is not None for _, _, options in resolver.asked] == [False, False, False, True]
    assert [target.python for _, target, _ in resolver.asked][2] == "3.9"
    assert "same: requires what m does" in machine.steps.seen
    lock_model(machine.project, "m", known=known, update=("numpy",))
    assert len(resolver.asked) == 5


def test_ensembles_and_environments_from_folders_have_no_lock(machine, resolver):
    (machine.repository / "e/1").mkdir(parents=True)
    (machine.repository / "e/config.pbtxt").write_text(
        'platform: "ensemble" ensemble_scheduling { step [ { model_name: "m" model_version: -1 } ] }'
    )
    settings = machine.repository / "envpack.toml"
    settings.write_text(settings.read_text() + '[models.m]\nfrom_prefix = "/srv/env"\n')
    for name in ("e", "m"):
        done = lock_model(machine.project, name)
        assert (done.name, done.file, done.packages, done.changed) == (name, None, 0, False)
    assert resolver.asked == []


def test_the_first_lock_of_a_store_is_everyones(machine, resolver, store):
    first = resolver.lock
    lock_model(machine.project, "m", store=store)
    key = machine.request().lock_key
    assert find_lock(store, key, NoProgress()) == first
    (machine.folder / "envpack.lock").unlink()
    resolver.lock = machine.lock("2.0.0")
    lock_model(machine.project, "m", store=store)
    assert (read_lock(machine.folder / "envpack.lock"), len(resolver.asked)) == (first, 1)
    lock_model(machine.project, "m", store=store, update=("numpy",))
    assert len(resolver.asked) == 2, "what is to be updated is resolved anew"
    assert find_lock(store, key, NoProgress()) == first
    store.push = False
    request = machine.request(python="3.11")
    assert resolve_lock(request, (), machine.steps, store) == resolver.lock
    assert find_lock(store, request.lock_key, NoProgress()) is None


# Environments of locks


def test_a_lockfile_decides_the_environment(machine, resolver):
    machine.write_lock()
    made = machine.install()
    found = locked_environment(machine.request(), machine.steps)
    assert (found.key, found.prefix, resolver.asked) == (made.key, made.prefix, [])
    stripped = machine.install(strip=True)
    assert locked_environment(machine.request(strip=True), machine.steps).prefix == stripped.prefix


def test_without_a_lockfile_the_first_resolution_is_remembered(machine, resolver):
    machine.install()
    for _ in range(2):
        assert locked_environment(machine.request(), machine.steps).key == resolver.lock.key
    assert len(resolver.asked) == 2


def test_a_store_has_the_lock_and_the_environment(machine, resolver, store):
    machine.install()
    locked_environment(machine.request(), machine.steps, store=store)
    assert find_lock(store, machine.request().lock_key, NoProgress()) == resolver.lock
    assert store.find("environment", resolver.lock.key)
    resolver.remembered, resolver.lock = None, machine.lock("2.0.0")
    for push in (False, True):  # this machine has resolved nothing, and the store has a lock
        store.push = push
        assert locked_environment(machine.request(), machine.steps, store=store).key == machine.lock().key
    assert len(resolver.asked) == 1


def test_a_build_asks_at_once_for_what_it_needs_of_a_store(machine, resolver, store):
    locks, environments = (f"records/{kind}" for kind in ("lock", "environment"))
    asked = requests_to(store)
    for push, lock, installed, wanted in (
        (False, "", False, {locks}),  # its environment is known when the lock is
        (True, "", False, {locks}),
        (False, "remembered", False, {environments}),
        (True, "remembered", False, {locks, environments}),
        (False, "file", False, {environments}),
        (True, "file", False, {environments}),
        (False, "file", True, set()),
        (True, "file", True, {environments}),
    ):
        store.push, resolver.remembered = push, machine.lock() if lock == "remembered" else None
        if lock == "file":
            machine.write_lock()
        if installed and not push:
            machine.install()
        look_ahead(machine.project, ["m"], store)
        assert {path.rpartition("/")[0] for path in asked} == wanted
        asked.clear()
        store._found.clear()
    look_ahead(machine.project, ["m"], None)
    (machine.folder / "envpack.lock").write_text("[")
    look_ahead(machine.project, ["m"], store)
    assert asked == [], "the build says what is wrong with the model"


def test_what_this_machine_remembers_comes_first_where_nothing_is_shared(machine, resolver, store):
    resolver.remembered = resolver.lock = machine.lock("2.0.0")
    machine.install(resolver.lock)
    store.push = False
    assert locked_environment(machine.request(), machine.steps, store=store).key == resolver.lock.key
    assert [found.path for found in store.objects.list("records")] == []
    store.push = True
    locked_environment(machine.request(), machine.steps, store=store)
    assert len(store.objects.list("records")) == 2


def test_a_machine_without_the_python_takes_the_lock_of_the_store(machine, resolver, store, monkeypatch):
    def missing(*_):
        raise EnvironmentBuildError("interpreter-missing", "no such Python", "install it")

    machine.install()
    locked_environment(machine.request(), machine.steps, store=store)
    monkeypatch.setattr(LockOptions, "remembered", missing)
    store.push = False
    assert locked_environment(machine.request(), machine.steps, store=store).key == resolver.lock.key


def test_packages_of_the_store_are_located_where_an_environment_is_installed(machine, resolver, store, monkeypatch):
    asked, made = [], []

    def install(lock, options, progress, **how):
        asked.append((lock, options, progress, how))
        return made.pop() if made else machine.install(lock)

    machine.write_lock()
    monkeypatch.setattr(module, "environment_of", install)
    monkeypatch.setattr(
        module, "locate_packages", lambda found, lock, cache, progress: replace(lock, channels=("located",))
    )
    store.push = False
    made.append(locked_environment(machine.request(), machine.steps, store=store))
    locked_environment(machine.request(), machine.steps)
    assert [lock.channels for lock, *_ in asked] == [("located",), machine.lock().channels]
    request = machine.request()
    _, options, progress, how = asked[0]
    assert (options, progress) == (request.options(), machine.steps)
    assert how == {"variables": request.requirements.download_variables, "strip": False, "fill": None}


STAYS = "; what still fits stays as it is"
STALE = [
    (
        {"requirements_digest": "0"},
        {},
        "the lockfile was made for other requirements or channels than the model has now",
        f"run envpack lock m{STAYS}",
    ),
    (
        {"requirements_digest": "0"},  # markers may hold for one Python only
        {"python": "3.9"},
        "the lockfile is for Python 3.9 on linux-64, not for 3.10 on linux-64",
        "run envpack lock m --python 3.10",
    ),
    (
        {},
        {"platform": "linux-aarch64"},
        "the lockfile is for Python 3.10 on linux-aarch64, not for 3.10 on linux-64",
        f"run envpack lock m --platform linux-64{STAYS}",
    ),
    (
        {},
        {"glibc": "2.99"},
        "the lockfile was made for glibc 2.99, the release has 2.35",
        f"run envpack lock m --triton 24.10{STAYS}",
    ),
    (
        {},
        {"python": "3.9", "platform": "linux-aarch64", "glibc": "2.99"},
        "the lockfile is for Python 3.9 on linux-aarch64, not for 3.10 on linux-64",
        "run envpack lock m --python 3.10 --platform linux-64 --triton 24.10",
    ),
]


def test_a_lockfile_that_does_not_answer_the_request_is_refused(machine):
    said = []
    for changes, target, *_ in STALE:
        with pytest.raises(InputError) as raised:
            refuse_stale(other_target(replace(machine.lock(), **changes), **target), machine.request(python="3.10"))
        assert (raised.value.kind, raised.value.where) == ("stale-lock", str(machine.folder / "envpack.lock"))
        said.append((raised.value.message, raised.value.hint))
    assert said == [(what, fix) for *_, what, fix in STALE]
    refuse_stale(machine.lock(), machine.request())
    refuse_stale(other_target(machine.lock(), glibc="2.5"), machine.request())


@pytest.mark.parametrize(("python", "option"), [("3.10", ""), ("3.9", " --python 3.9")])
def test_the_fix_of_a_lockfile_for_other_channels_names_the_channels(machine, python, option):
    request = machine.request(python=python, channels=("./a channel", "conda-forge"))
    with pytest.raises(InputError) as raised:
        refuse_stale(machine.lock(python="3.10"), request)
    named = f"--channel {Path('a channel').absolute().as_uri()} --channel conda-forge"
    assert raised.value.hint.partition(";")[0] == f"run envpack lock m{option} {named}"


def test_the_fix_for_changed_requirements_names_no_channel_of_the_repository(machine):
    before = machine.lock()
    (machine.folder / "requirements.txt").write_text("numpy\nmore\n")
    with pytest.raises(InputError) as raised:
        refuse_stale(before, machine.request())
    assert "--channel" not in raised.value.hint


def test_warnings_name_what_the_code_imports(machine, resolver):
    model = machine.folder / "1/model.py"
    model.write_text("import numpy\nimport cv2\n")
    (warning,) = lock_model(machine.project, "m").warnings
    assert warning.startswith(f"{model}:2: it imports cv2")
    assert warning.endswith(f"add opencv-python-headless to {machine.folder}/requirements.txt")


def test_an_error_names_the_other_pythons_if_envpack_chose_the_newest(machine, monkeypatch):
    def fail(*_):
        raise EnvironmentBuildError("wheel-missing", "x", "choose a version")

    monkeypatch.setattr(module, "lock_requirements", fail)
    (machine.folder / "requirements.txt").unlink()
    (machine.folder / "environment.yml").write_text("dependencies: ['python>=3.11,<3.14', {pip: [numpy]}]\n")
    with pytest.raises(EnvironmentBuildError) as caught:
        lock_model(machine.project, "m", progress=machine.steps)
    assert caught.value.hint == (
        "choose a version; or choose another Python that >=3.11,<3.14 allows: --python 3.11 or 3.12"
    )
    assert "Python 3.13: Triton 24.10 has 3.10, and environment.yml requires >=3.11,<3.14" in machine.steps.seen
