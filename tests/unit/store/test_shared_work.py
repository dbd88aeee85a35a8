"""Environments and stubs through a store: made by one machine, fetched by the others."""

import json
import re
import threading

import pytest

from envpack.environment.store import read_environment
from envpack.settings.releases import find_release
from envpack.store.maintenance import verify_store
from envpack.store.shared import open_store
from envpack.stub.build import Stub
from envpack.stub.inspection import inspect_stub
from envpack.stub.recipe import Cell
from envpack.stub.target import StubTarget
from envpack.support.errors import EnvironmentBuildError, StorageError, StubError
from envpack.support.placed_files import STUB_NAME
from envpack.support.progress import NoProgress
from envpack.workflow import shared
from envpack.workflow.shared import fetch_stub, obtain_environment, push_stub, stub_for
from tests.steps import Steps
from tests.unit.archive.conftest import Prefixes, files_below
from tests.unit.stub.elf_files import write_stub

from .conftest import claimed_paths, paths, requests_to

KEY = "0" * 32


class Machine:
    """A machine with a cache of its own."""

    def __init__(self, folder, url, monkeypatch, *, push=True):
        self.cache, self.steps, self.built = folder / "cache", Steps(), 0
        self.store = open_store(url, push=push, expiry=0.6)
        self._enter = lambda: monkeypatch.setenv("ENVPACK_CACHE_DIR", str(self.cache))

    def make(self, fill):
        folder = self.cache / "environments" / KEY
        if fill is None:
            self.built += 1
            return Prefixes(self.cache / "environments").make(KEY, self.change)
        folder.mkdir(parents=True)
        fill(folder)
        return read_environment(folder)

    def change(self, prefix):
        pass

    def environment(self):
        self._enter()
        return obtain_environment(self.store, KEY, self.make, self.cache, self.steps)

    def stub(self, target, make):
        self._enter()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(shared, "build_stub", lambda *_, **_options: make())
            return stub_for(Cell(target), progress=self.steps, store=self.store)


@pytest.fixture
def machine(tmp_path, url, monkeypatch):
    def make(name, **options):
        return Machine(tmp_path / name, url, monkeypatch, **options)

    return make


# Environments


def test_the_second_machine_gets_the_environment_of_the_first(machine):
    first, second = machine("first"), machine("second", push=False)
    made = first.environment()
    size = first.store.find("environment", KEY).size
    assert first.steps.seen == [f"put environment 00000000 into the store: {size / 1e6:.1f} MB"]
    facts = first.store.find("environment", KEY).facts
    assert facts == {
        "content": made.content,
        "size": made.size,
        "python": "3.8.1",
        "platform": "linux-64",
        "packages": ["x 1", "y 1"],
    }
    found = second.environment()
    assert (first.built, second.built) == (1, 0)
    assert found.content == made.content
    assert files_below(found.prefix)["lib/changed-by-pip.txt"] == ("file", b"as tested")
    assert second.steps.seen == [f"fetch environment 00000000 from the store: {size / 1e6:.1f} MB"]
    assert second.environment().prefix == found.prefix
    assert len(second.steps.seen) == 1, "what is in the cache is not fetched"
    for one in (first, second):
        assert [name for name in one.cache.glob("transfers/*") if not name.name.startswith(".")] == []
    assert claimed_paths(first.store) == []


def test_without_push_nothing_is_put_there(machine):
    alone = machine("alone", push=False)
    alone.environment()
    alone.environment()
    assert (alone.built, alone.steps.seen, paths(alone.store, "")) == (1, [], [])


def test_what_was_built_before_is_put_there(machine):
    machine("first", push=False).environment()
    again = machine("first")
    assert again.environment()
    assert again.built == 0
    assert len(paths(again.store, "records")) == 1
    assert again.environment()
    assert len(again.steps.seen) == 1


def test_the_store_is_asked_once_for_an_environment_that_several_models_have(machine):
    machine("first").environment()
    again = machine("first")
    asked = requests_to(again.store)
    again.environment()
    assert len(asked) == len(set(asked)) == 1 + len(again.store.find("environment", KEY).blobs)
    again.environment()
    assert len(asked) == len(set(asked))


def test_records_are_looked_up_side_by_side_before_they_are_needed(url, store):
    for key in (KEY, "1" * 32):
        store.add_bytes("environment", key, key.encode(), facts={})
    store.objects.write(f"records/environment/{'2' * 32}.json", b"{")
    for push in (False, True):
        again = open_store(url, push=push)
        asked = requests_to(again)
        again.look_up("environment", [KEY, "1" * 32, "2" * 32, "3" * 32, KEY])
        assert len(asked) == len(set(asked)) == 4
        found = [again.find("environment", key) for key in (KEY, "1" * 32, "3" * 32)]
        assert ([record and record.key for record in found], len(asked)) == ([KEY, "1" * 32, None], 4)
        with pytest.raises(StorageError, match="cannot be used"):
            again.find("environment", "2" * 32)
        store.add_bytes("environment", "3" * 32, b"later", facts={})
        assert (again.find("environment", "3" * 32) is not None) == push, "who pushes may make it meanwhile"
        store.objects.delete([f"records/environment/{'3' * 32}.json"])


def test_a_store_that_cannot_be_used_is_said_by_what_needs_it(url, monkeypatch):
    def unreachable(*_):
        raise StorageError("store-unreachable", "no answer", "wait")

    again = open_store(url)
    with monkeypatch.context() as patched:
        patched.setattr(again.objects, "read", unreachable)
        again.look_up("lock", [KEY])
    with pytest.raises(StorageError, match="no answer"):
        again.find("lock", KEY)
    assert again.find("lock", KEY) is None, "it is asked again"


def test_a_machine_that_waits_fetches_what_the_other_has_made(machine):
    first, second = machine("first"), machine("second")
    with first.store.claimed("environment", KEY, "it", NoProgress()) as mine:
        assert mine
        thread = threading.Thread(target=lambda: results.append(second.environment()))
        results = []
        thread.start()
        environment = Prefixes(first.cache / "environments").make(KEY)
        (first.cache / "transfers").mkdir()
        shared._push_environment(first.store, environment, first.cache, NoProgress())
        thread.join(60)
    assert (second.built, results[0].content) == (0, environment.content)
    assert "another machine makes environment 00000000; wait for it" in second.steps.seen


def test_an_environment_that_cannot_travel_stays_here(machine):
    first = machine("first")
    first.change = lambda prefix: (prefix / "lib/out").symlink_to("/etc/passwd")
    assert first.environment()
    assert paths(first.store, "records") == []
    assert len(first.steps.seen) == 1
    assert first.steps.seen[0].startswith("put environment 00000000 into the store: stays here: ")
    assert list(first.cache.glob("transfers/[!.]*")) == []


@pytest.mark.parametrize(
    ("facts", "reason"),
    [
        ({"content": 5}, "it describes no environment"),
        ({"size": "7"}, "it describes no environment"),
        ({"size": 0}, "it describes no environment"),
        ({"size": True}, "it describes no environment"),
        ({"size": 65 << 30}, "it describes no environment"),
        ({"content": "0" * 64}, "records/environment/0+.json in the store cannot be used: "),
    ],
)
def test_a_record_that_does_not_fit_makes_this_machine_build(machine, facts, reason):
    first, second = machine("first"), machine("second", push=False)
    first.environment()
    path = first.store.find("environment", KEY).path
    document = json.loads(first.store.objects.read(path, 1 << 20)[0])
    document["facts"] |= facts
    first.store.objects.write(path, json.dumps(document).encode())
    assert second.environment()
    assert second.built == 1
    (said,) = [text for text in second.steps.seen if "cannot be used, so this machine makes its own" in text]
    assert re.search(reason, said)
    assert list(second.cache.glob("transfers/[!.]*")) == []


def no_blob(store, record):
    store.objects.delete([record.blobs[0].path])


def short_blob(store, record):
    store.objects.write(record.blobs[-1].path, b"")


def wrong_blob(store, record):
    store.objects.write(record.blobs[0].path, bytes(record.blobs[0].size))


def no_record(store, record):
    store.objects.write(record.path, b"{")


@pytest.mark.parametrize("damage", [no_blob, short_blob, wrong_blob, no_record])
def test_a_damaged_environment_is_built_by_readers_and_mended_by_who_pushes(machine, damage):
    first = machine("first")
    made = first.environment()
    damage(first.store, first.store.find("environment", KEY))
    reader = machine("reader", push=False)
    assert reader.environment().content == made.content
    assert reader.built == 1
    pushing = machine("pushing")
    assert pushing.environment().content == made.content
    assert pushing.built == 1
    fetching = machine("fetching", push=False)
    assert fetching.environment().content == made.content
    assert fetching.built == 0


@pytest.mark.parametrize("damage", [no_blob, short_blob, no_record])
def test_who_has_the_environment_mends_what_the_store_lacks(machine, damage):
    machine("first").environment()
    again = machine("first")
    damage(again.store, again.store.find("environment", KEY))
    again = machine("first")
    again.environment()
    assert again.built == 0
    fetching = machine("fetching", push=False)
    fetching.environment()
    assert fetching.built == 0


def test_what_verify_removes_is_put_there_again(machine):
    """A blob of the right size shows its damage only when it is read."""
    first = machine("first")
    first.environment()
    wrong_blob(first.store, first.store.find("environment", KEY))
    check = verify_store(first.store)
    assert len(check.damaged) == 2
    assert verify_store(first.store, repair=True).damaged == check.damaged
    assert verify_store(first.store).damaged == ()
    machine("first").environment()
    fetching = machine("fetching", push=False)
    fetching.environment()
    assert fetching.built == 0


@pytest.mark.parametrize("damage", [no_blob, wrong_blob, no_record])
def test_a_damaged_stub_is_compiled_by_readers_and_mended_by_who_pushes(machine, target, tmp_path, damage):
    first, make = machine("first"), Compiler(tmp_path / "made")
    first.stub(target, make)
    damage(first.store, first.store.find("stub", Cell(target).key))
    for name, push, times in (("reader", False, 2), ("pushing", True, 3), ("fetching", False, 3)):
        assert machine(name, push=push).stub(target, make)
        assert make.times == times, name


def test_a_failure_of_the_build_is_the_callers(machine):
    first = machine("first")

    def fail(fill):
        raise EnvironmentBuildError("unresolvable", "no such package", "correct it")

    first.make = fail
    with pytest.raises(EnvironmentBuildError, match="no such package"):
        first.environment()
    assert claimed_paths(first.store) == []


# Stubs


@pytest.fixture
def target(tmp_path):
    """A Python, as far as the key of its stub needs one."""
    (tmp_path / "include").mkdir()
    (tmp_path / "include/pyconfig.h").touch()
    (tmp_path / "libpython3.10.so.1.0").touch()
    return StubTarget("3.10", "x86_64", tmp_path / "include", tmp_path / "libpython3.10.so.1.0")


@pytest.fixture(autouse=True)
def no_compiler(monkeypatch):
    """This machine has no stub of its own for any Python."""

    def missing(*_, **__):
        raise StubError("compiler-missing", "no compiler", "install one")

    monkeypatch.setattr("envpack.stub.recipe.find_toolchain", missing)
    monkeypatch.setattr("envpack.stub.build.find_prebuilt", lambda *_, **__: None)


class Compiler:
    """Makes a stub, and counts."""

    def __init__(self, folder, python="3.10"):
        self.folder, self.python, self.times = folder, python, 0

    def __call__(self):
        self.times += 1
        path = write_stub(self.folder / STUB_NAME, self.python)
        return Stub(path, inspect_stub(path), fresh=True, seconds=1.0)


def test_the_second_machine_gets_the_stub_of_the_first(machine, target, tmp_path):
    first, second, make = machine("first"), machine("second", push=False), Compiler(tmp_path / "made")
    made = first.stub(target, make)
    assert (made.path, make.times) == (tmp_path / "made" / STUB_NAME, 1)
    key = Cell(target).key
    record = first.store.find("stub", key)
    facts = made.facts
    assert record.facts == {"python": "3.10", "machine": "x86_64", "glibc": facts.glibc, "compiler": "GNU 12.2.0"}
    found = second.stub(target, make)
    assert make.times == 1
    assert found.path.is_relative_to(second.cache)
    assert found.path.read_bytes() == made.path.read_bytes()
    assert second.steps.seen == [f"fetch the stub for Python 3.10 from the store: {record.size / 1e6:.1f} MB"]
    assert second.stub(target, make).path == found.path
    assert len(second.steps.seen) == 1
    assert claimed_paths(first.store) == []


def test_without_push_a_stub_is_compiled_and_stays_here(machine, target, tmp_path):
    alone, make = machine("alone", push=False), Compiler(tmp_path / "made")
    assert alone.stub(target, make).path == tmp_path / "made" / STUB_NAME
    assert paths(alone.store, "") == []


def test_a_stub_of_the_cache_is_put_there_once(machine, target, tmp_path):
    machine("first").stub(target, Compiler(tmp_path / "made"))
    second = machine("second", push=False)
    second.stub(target, Compiler(tmp_path / "made"))
    second.store.objects.delete(paths(second.store, "records"))
    pushing, make = machine("second"), Compiler(tmp_path / "made")
    for _ in range(2):
        pushing.stub(target, make)
    assert (make.times, len(paths(pushing.store, "records"))) == (0, 1)
    push_stub(pushing.store, second.stub(target, make), "other-key")
    assert len(paths(pushing.store, "records")) == 2


def test_a_stub_that_the_other_machine_makes_is_waited_for(machine, target, tmp_path):
    first, second, make = machine("first"), machine("second"), Compiler(tmp_path / "made")
    key = Cell(target).key
    with first.store.claimed("stub", key, "it", NoProgress()):
        results = []
        thread = threading.Thread(target=lambda: results.append(second.stub(target, make)))
        thread.start()
        push_stub(first.store, Compiler(tmp_path / "other")(), key)
        thread.join(60)
    assert (make.times, results[0].path.is_relative_to(second.cache)) == (0, True)


def test_what_is_no_stub_for_this_python_is_refused(machine, target, tmp_path):
    store = machine("first").store
    key = Cell(target).key
    for content, reason in ((b"noise", "not a stub of envpack"), (None, "this stub is for Python 3.11 on x86_64")):
        file = write_stub(tmp_path / "wrong", "3.11")
        if content:
            file.write_bytes(content)
        store.objects.delete(paths(store, "records"))
        store.add("stub", key, file)
        with pytest.raises(StorageError, match=reason) as raised:
            fetch_stub(machine("second").store, Cell(target), NoProgress())
        assert raised.value.kind == "store-corrupt"


def test_a_stub_that_is_too_large_is_not_fetched(machine, target, monkeypatch, tmp_path):
    monkeypatch.setattr("envpack.workflow.shared._MOST_OF_STUB", 10)
    store = machine("first").store
    (tmp_path / "large").write_bytes(bytes(11))
    store.add("stub", Cell(target).key, tmp_path / "large")
    with pytest.raises(StorageError, match="a stub has never 11 bytes"):
        fetch_stub(store, Cell(target), NoProgress())
    assert fetch_stub(store, Cell(target, (find_release("24.10"),)), NoProgress()) is None
