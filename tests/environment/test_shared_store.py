"""Two machines with one store: what the first one makes, the second one gets without index, channel or compiler."""

import concurrent.futures
import json
import os
import shutil
from pathlib import Path

import pytest

from tests.faults.bad_input import MODEL, BadInput
from tests.faults.command_line import assert_refused, envpack, listing
from tests.needed_pythons import need
from tests.object_stores import BUCKET, OTHERS, VARIABLES, faulty, moto

from .sources import PYTHON

pytestmark = pytest.mark.usefixtures("own_index")


@pytest.fixture(scope="module")
def s3(tmp_path_factory):
    with moto(tmp_path_factory.mktemp("moto")) as address:
        yield address


@pytest.fixture
def proxy(s3):
    with faulty(s3) as found:
        yield found


@pytest.fixture
def url(proxy, tmp_path):
    return f"s3://{proxy.url}/{BUCKET}/{tmp_path.name}"


class Machine:
    """A repository of one model, and a cache of its own."""

    def __init__(self, folder, url, channel):
        folder.mkdir()
        self.repository = BadInput("", "", 0, "", (), MODEL).write(folder)
        (self.repository / "m/requirements.txt").write_text("numpy\ntree\n")
        self.cache = folder / "cache"
        self.url, self.channel = url, channel

    def run(self, command, *words, **changes):
        everywhere = dict.fromkeys(OTHERS) | VARIABLES | {"ENVPACK_CACHE_DIR": str(self.cache)}
        return envpack(command, "--repository", self.repository, *words, changes=everywhere | changes)

    def build(self, *words, store=True, **changes):
        words = ("--python", PYTHON, "--stub", "never", "--format", "tar.gz", *words)
        words += ("--channel", self.channel) if self.channel else ()
        return self.run("build", *words, *(("--store", self.url) if store else ()), **changes)

    def lock(self, *words):
        channel = ("--channel", self.channel) if self.channel else ()
        return self.run("lock", "--python", PYTHON, *channel, "--store", self.url, *words)

    @property
    def archive(self):
        return (self.repository / f"m/python{PYTHON}.tar.gz").read_bytes()

    @property
    def environments(self):
        return [found.name for found in self.cache.glob("environments/[!.]*")]


@pytest.fixture
def machines(tmp_path, served, url):
    def make(name, *, local=False):
        return Machine(tmp_path / name, url, "" if local else served.url("/conda"))

    return make


def done(ended):
    assert ended.code == 0, ended.err
    return ended.err


@pytest.mark.parametrize("locked", [True, False])
def test_the_second_machine_gets_the_same_bytes_without_index_and_channel(machines, served, locked):
    """By a lockfile, or by the lock that the store has for the same requirements."""
    first, second = machines("first"), machines("second")
    if locked:
        done(first.run("lock", "--python", PYTHON, "--channel", first.channel))
        shutil.copy(first.repository / "m/envpack.lock", second.repository / "m")
    assert "put environment" in done(first.build("--set", "push=true"))
    served.requested.clear()
    said = done(second.build(UV_OFFLINE="1"))
    assert served.requested == []
    assert "fetch environment" in said
    assert "install" not in said
    assert second.archive == first.archive
    assert second.environments == first.environments
    assert [found.name for found in second.cache.glob("transfers/[!.]*")] == []
    assert "up to date" in done(second.build())


@pytest.mark.thorough
def test_without_push_nothing_is_put_into_the_store(machines, proxy):
    done(machines("first").build())
    assert {method for method, _ in proxy.requests} <= {"GET", "HEAD"}


@pytest.mark.thorough
def test_the_repository_says_which_store_it_has_and_what_was_made_before_is_put_there(machines):
    first, second = machines("first"), machines("second")
    for machine in (first, second):
        (machine.repository / "envpack.toml").write_text(f'store = "{machine.url}"\npush = true\n')
    assert "store" not in done(first.build("--store", "none", store=False))
    assert "put environment" in done(first.build(store=False))
    assert "put environment" not in done(first.build(store=False))
    assert "fetch environment" in done(second.build(store=False))


def test_a_lock_is_shared_before_anything_is_built(machines, served):
    first, second = machines("first"), machines("second")
    done(first.lock("--set", "push=true"))
    served.requested.clear()
    done(second.lock())
    assert served.requested == []
    assert (second.repository / "m/envpack.lock").read_bytes() == (first.repository / "m/envpack.lock").read_bytes()


@pytest.mark.thorough
def test_an_interpreter_that_only_one_machine_has_comes_from_the_store(machines, packaged):
    need(PYTHON)
    first, second = machines("first", local=True), machines("second", local=True)
    packaged(PYTHON, first.cache)
    done(first.lock("--set", "push=true"))
    shutil.copy(first.repository / "m/envpack.lock", second.repository / "m")
    shutil.rmtree(first.cache / "channel")
    said = done(second.build())
    assert "fetch python" in said
    assert "turn Python" not in said
    assert json.loads(second.run("cache", "verify", "--json").out or "{}").get("damaged", []) == []


@pytest.mark.thorough
def test_of_two_machines_at_once_one_builds_and_the_other_waits(machines, s3):
    both = [machines("first"), machines("second")]
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        said = [done(ended) for ended in pool.map(lambda machine: machine.build("--set", "push=true"), both)]
    assert sorted("fetch environment" in text for text in said) == [False, True], said
    assert sorted("make the environment relocatable" in text for text in said) == [False, True], said
    assert both[0].archive == both[1].archive


@pytest.mark.thorough
def test_a_store_that_fails_after_the_build_loses_nothing(machines, proxy):
    first = machines("first")
    before = listing(first.repository)
    proxy.refuses = lambda method, path: method == "PUT" and "/records/environment/" in path
    ended = first.build("--set", "push=true", "--json")
    assert_refused(ended, 7, "store-forbidden", "refuses access")
    assert listing(first.repository) == before
    proxy.refuses = lambda *_: False
    said = done(first.build("--set", "push=true"))
    assert "install" not in said
    assert "put environment" in said


@pytest.mark.thorough
def test_a_blob_that_was_altered_is_not_used(machines, proxy):
    done(machines("first").build("--set", "push=true"))
    second = machines("second")

    def alter(method, path, status, headers, body):
        return status, headers, bytes([body[0] ^ 1]) + body[1:] if method == "GET" and "/blobs/" in path else body

    proxy.fault = alter
    errors = done(second.build())
    assert "cannot be used, so this machine makes its own: " in errors
    assert "its SHA-256 differs from the one in its name" in errors
    assert "install 1 conda package … installed" in errors


def test_a_store_that_is_not_there_is_an_error_before_anything_is_built(machines, tmp_path):
    machine = machines("first")
    machine.url = f"file://{tmp_path}/absent"
    assert_refused(machine.build("--json"), 3, "store-folder-missing", "does not exist")
    assert not machine.environments


@pytest.mark.thorough
def test_a_stub_comes_from_the_store_where_no_compiler_is(tmp_path):
    need(PYTHON)
    folder = tmp_path / "store"
    for name in ("store", "a", "b"):
        (tmp_path / name).mkdir()
    words = ("stub", "--python", PYTHON, "--store", f"file://{folder}", "--json")
    kept = {"ENVPACK_CACHE_DIR": os.environ["ENVPACK_TEST_CACHE"]}
    first = envpack(*words, "--set", "push=true", "--output", tmp_path / "a", changes=kept)
    done(first)
    without = {"ENVPACK_CACHE_DIR": str(tmp_path / "cache"), "CXX": "/nonexistent/c++", "PATH": "/nonexistent"}
    second = envpack(*words, "--output", tmp_path / "b", changes=without)
    assert "fetch the stub" in done(second)
    stubs = [Path(tmp_path / name / "triton_python_backend_stub") for name in ("a", "b")]
    assert stubs[0].read_bytes() == stubs[1].read_bytes()
    assert os.access(stubs[1], os.X_OK)
    assert not second.document["compiled"]
