"""Tasks on a real cluster of dask in this process: what comes back, and what is refused before anything begins."""

import asyncio
import functools
import json
import logging
import socket
import sys
import threading
import warnings
from types import SimpleNamespace

import pytest
from distributed import LocalCluster
from distributed.scheduler import KilledWorker

import envpack
from envpack.fleet import client, cluster, worker
from envpack.fleet.client import carry_out_all
from envpack.fleet.cluster import Address
from envpack.fleet.tasks import Product, Task
from envpack.fleet.worker import Announcement, schedule_waiting, version_ability
from envpack.server.choice import ServerSpec
from envpack.support.errors import InputError, ServerError, UsageError
from envpack.support.platforms import host_platform
from envpack.support.progress import NoProgress
from envpack.workflow.recipes import make_stub
from envpack.workflow.verify import verify_there
from tests.steps import Steps


@pytest.fixture(scope="module")
def running():
    """A cluster of one worker in this process, which also starts where another one has dask's usual port."""
    options = {"processes": False, "dashboard_address": "127.0.0.1:0", "silence_logs": 60, "memory_limit": 0}
    with LocalCluster(1, threads_per_worker=1, host="127.0.0.1", protocol="tcp", **options) as found:
        yield found


@pytest.fixture
def address(running):
    return Address(scheduler=running.scheduler_address)


def verify_task(key, repository, *needs, **fields):
    work = functools.partial(verify_there, str(repository), ("m",), ServerSpec())
    return Task(key=key, names=(key,), work=work, needs=needs, makes_files=False, **fields)


def test_workers_may_have_another_python(address, monkeypatch):
    """Dask prints a table of what differs, and its own line of code."""
    found = {"warning": "Mismatched versions found\n\n| python | 3.11 | 3.12 |", "error": ""}
    monkeypatch.setattr("distributed.client.version_module.error_message", lambda *_: found)
    with warnings.catch_warnings(record=True) as shown, cluster.connected(address, NoProgress()):
        pass
    assert not shown


def test_each_task_runs_in_a_process_and_its_error_comes_back(address, tmp_path):
    steps = Steps()
    old = verify_task("old", tmp_path, version="0.0.1")
    tasks = [verify_task("absent", tmp_path), verify_task("again", tmp_path, f"platform {host_platform()}")]
    done = carry_out_all(address, tasks, steps)
    assert [found.task for found in done] == tasks
    for found in done:
        assert (found.error.kind, found.error.where) == ("repository-not-shared", str(tmp_path))
        assert isinstance(found.error, InputError)
        assert found.error.message == "the worker's machine has no model m there"
        assert (found.attempts, found.product.host, found.product.worker) == (1, socket.gethostname(), "0")
        assert found.product.seconds > 0
        document = json.loads(json.dumps(found.as_json()))
        assert (document["error"], document["made"], document["digests"]) == ("repository-not-shared", False, {})
    assert steps.seen[0] == f"connect to {address}: 1 worker"
    assert steps.seen[1] == f"2 of 2 tasks left on {address}"
    assert "absent [0]: failed" in steps.seen
    assert f"1 of 2 tasks left on {address}" in steps.seen
    with pytest.raises(ServerError, match=r"no worker can carry out 1 task: old needs envpack 0\.0\.1") as raised:
        carry_out_all(address, [old], NoProgress())
    assert raised.value.kind == "no-worker-can"


def test_no_task_needs_no_cluster():
    assert carry_out_all(Address(scheduler="tcp://127.0.0.1:1"), [], NoProgress()) == ()


def test_what_no_worker_has_is_named_with_what_they_have(address, tmp_path):
    tasks = [
        verify_task("a", tmp_path, "gpu of another kind"),
        verify_task("b", tmp_path, "x", "y"),
        verify_task("c", tmp_path),
    ]
    with pytest.raises(ServerError) as raised:
        carry_out_all(address, tasks, NoProgress())
    message = "no worker can carry out 2 tasks: a needs gpu of another kind; b needs x, y"
    assert (raised.value.message, raised.value.kind, raised.value.where) == (message, "no-worker-can", str(address))
    assert raised.value.hint.startswith("add such a worker; the workers have ")
    assert f"envpack {envpack.__version__}, platform " in raised.value.hint


def test_results_need_a_store_to_come_back_from_another_machine(address):
    work = functools.partial(make_stub, "3.10", "", abi="", toolchain="auto", glibc="")
    with pytest.raises(UsageError, match="results come back from another machine through a store only") as raised:
        carry_out_all(address, [Task(key="a", names=("a",), work=work)], NoProgress())
    assert (raised.value.kind, raised.value.where) == ("fleet-needs-store", str(address))


def test_a_scheduler_that_does_not_answer_is_named(monkeypatch):
    monkeypatch.setattr(cluster, "_CONNECT", 0.2)
    monkeypatch.setitem(cluster._SETTINGS, "distributed.comm.timeouts.connect", "0.2s")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    address = Address(scheduler=f"tcp://127.0.0.1:{port}")
    with (
        pytest.raises(ServerError, match="the scheduler does not answer: ") as raised,
        cluster.connected(address, NoProgress()),
    ):
        pass
    assert (raised.value.kind, raised.value.where) == ("scheduler-unreachable", str(address))


def test_workers_with_another_version_are_refused(address, monkeypatch):
    for version, has in (("0.0.1", "envpack 0.0.1"), (ImportError("none"), "no envpack that fits")):
        monkeypatch.setattr(
            "distributed.Client.run", lambda *_, found=version, **__: {"tcp://b": found, "tcp://a": found}
        )
        with pytest.raises(ServerError) as raised, cluster.connected(address, NoProgress()):
            pass
        assert raised.value.message == (f"worker tcp://a has {has}, not {envpack.__version__} (and 1 more)")
        assert (raised.value.kind, raised.value.where) == ("worker-version", str(address))


def test_a_cluster_without_workers_is_named(address, monkeypatch):
    monkeypatch.setattr(cluster, "worker_facts", lambda _client: {})
    monkeypatch.setattr(cluster, "_FIRST_WORKER", 0)
    with (
        pytest.raises(ServerError, match="the cluster got no worker within 0 s") as raised,
        cluster.connected(address, NoProgress()),
    ):
        pass
    assert raised.value.kind == "no-workers"


def test_without_dask_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(UsageError, match="local:2 needs dask, which is not installed") as raised:
        carry_out_all(Address(workers=2), [Task(key="a", names=("a",), work=None)], NoProgress())
    assert raised.value.kind == "dask-missing"


def test_what_dask_logs_is_kept_back_during_the_connection(address):
    names = ("asyncio", "distributed", "distributed.client", "tornado", "tornado.application", "tornado.general")
    loggers = [logging.getLogger(name) for name in names]
    before = [logger.level for logger in loggers]
    with cluster.connected(address, NoProgress()):
        assert {logger.level for logger in loggers} == {logging.CRITICAL + 1}
    assert [logger.level for logger in loggers] == before


# What a worker does, without a cluster


class Worker:
    """A worker of dask, as far as a plugin and a task use one."""

    name = "w"

    def __init__(self):
        self.resources, self.events = {}, []

    async def set_resources(self, **found):
        self.resources = found

    def log_event(self, topic, event):
        assert topic == "envpack"
        self.events.append(event)


def test_a_worker_announces_what_it_has_unless_it_has_another_version(monkeypatch):
    monkeypatch.setattr("envpack.fleet.worker.abilities", lambda: ("platform x", "gpu"))
    here, plugin = Worker(), Announcement()
    asyncio.run(plugin.setup(here))
    assert here.resources == {"platform x": 1e9, "gpu": 1e9, version_ability(envpack.__version__): 1e9}
    assert (plugin.name, plugin.idempotent) == (f"envpack-{envpack.__version__}", True)
    monkeypatch.setattr(envpack, "__version__", "0.0.1")
    other = Worker()
    asyncio.run(plugin.setup(other))
    assert other.resources == {}


class Programs:
    def __init__(self):
        self.stopped = threading.Event()

    def stop(self):
        self.stopped.set()


def test_the_process_of_a_cancelled_task_ends(monkeypatch):
    found = {name: Programs() for name in ("a", "b", "c")}
    monkeypatch.setattr(worker, "_RUNNING", dict(found))
    plugin = Announcement()
    plugin.transition("a", "executing", "memory")
    plugin.transition("a", "executing", "error")
    plugin.transition("a", "ready", "released")
    plugin.transition("other", "executing", "released")
    plugin.transition("b", "executing", "released")
    assert found["b"].stopped.wait(60)
    assert not found["a"].stopped.is_set()
    plugin.teardown(Worker())
    assert all(programs.stopped.is_set() for programs in found.values())


def test_a_task_reports_its_steps_and_what_its_program_writes(monkeypatch, tmp_path):
    own = Worker()
    monkeypatch.setattr(worker, "get_worker", lambda: own)

    def follow(command, *, env, on_line):
        assert command[1:4] == ["-P", "-m", "envpack.fleet.child"]
        for line in ('{"begin": "one"}', "a warning", "[1, 2]", *(f"line {n}" for n in range(12))):
            on_line(line)
        return 3

    monkeypatch.setattr(worker, "follow", follow)
    product = worker.carry_out(verify_task("k", tmp_path))
    assert own.events[0] == {"key": "k", "name": "w", "started": socket.gethostname()}
    assert own.events[1] == {"key": "k", "name": "w", "begin": "one"}
    assert own.events[2]["detail"] == "a warning"
    error = product.error
    assert (error.kind, error.message) == (
        "worker-failed",
        "the process on worker w ended with status 3 and without a result",
    )
    assert error.details.split("\n") == [f"line {n}" for n in range(12)]
    assert (product.worker, product.host, worker._RUNNING) == ("w", socket.gethostname(), {})
    monkeypatch.setattr(worker, "follow", lambda *_, **__: -9)
    assert "limit of memory" in worker.carry_out(verify_task("k", tmp_path)).error.hint
    other = worker.carry_out(verify_task("k", tmp_path, version="0.0.1")).error
    assert (other.kind, other.message) == ("worker-version", f"worker w has envpack {envpack.__version__}, not 0.0.1")

    def cancelled(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(worker, "follow", cancelled)
    with pytest.raises(RuntimeError, match="k was cancelled"):
        worker.carry_out(verify_task("k", tmp_path))
    assert worker._RUNNING == {}


# What the caller does with what workers report


class Client:
    """A client of dask, as far as a run looks at one."""

    def __init__(self, workers, status="running"):
        self.workers, self.status, self.scheduled = workers, status, []

    def scheduler_info(self, n_workers):
        assert n_workers == -1
        known = {"name": "east", "last_seen": 1.5}
        return {"workers": {at: {"resources": dict.fromkeys(has, 1), **known} for at, has in self.workers.items()}}

    def run_on_scheduler(self, function):
        self.scheduled.append(function)


def run_of(found, *tasks):
    steps = Steps()
    return client._Run(found, Address(workers=1), tasks, steps), steps


OWN = version_ability(envpack.__version__)


def test_a_task_that_no_worker_can_carry_out_any_more_is_refused_after_a_while(tmp_path, monkeypatch):
    found = Client({"a": [OWN, "gpu"]})
    run, _ = run_of(found, verify_task("t", tmp_path, "gpu"))
    run._look()
    found.workers = {"a": [OWN]}
    run._look()
    monkeypatch.setattr(client, "_PATIENCE", -1)
    with pytest.raises(ServerError, match="t needs gpu"):
        run._look()
    found.workers = {}
    with pytest.raises(ServerError) as raised:
        run._look()
    assert raised.value.hint == "add such a worker; the workers have nothing, since there is none"
    found.status = "closed"
    with pytest.raises(ServerError, match="the connection to the scheduler was lost") as raised:
        run._look()
    assert raised.value.kind == "scheduler-lost"


def test_a_worker_that_the_scheduler_does_not_hear_of_is_named(tmp_path, monkeypatch):
    run, steps = run_of(Client({"a": [OWN]}), verify_task("t", tmp_path))
    run._look()
    run._look()
    assert steps.seen == []
    monkeypatch.setattr(client, "_SILENCE", 0)
    run._look()
    assert steps.seen == ["worker east has been silent for 0 s; if it stays so, its work goes to others"]


def test_tasks_are_scheduled_again_when_a_worker_has_announced_itself(tmp_path):
    found = Client({"a": []})
    run, _ = run_of(found, verify_task("t", tmp_path))
    for workers, times in (({"a": []}, 0), ({"a": [OWN]}, 1), ({"a": [OWN]}, 1), ({"a": [OWN], "b": [OWN]}, 2)):
        found.workers = workers
        run._look()
        assert found.scheduled == [schedule_waiting] * times


def test_what_workers_report_is_shown(tmp_path):
    run, steps = run_of(Client({}), verify_task("t", tmp_path), verify_task("u", tmp_path))
    for event in (
        {"key": "t", "name": "w", "started": "host"},
        {"key": "t", "name": "w", "detail": "wait"},
        {"key": "t", "name": "w", "end": "load", "outcome": "ready", "seconds": 1.25},
        {"key": "other", "name": "w", "detail": "not ours"},
        {"name": "w", "detail": "not ours"},
    ):
        run._report(event)
    assert steps.seen == ["t [w]: wait", "t [w]: load: ready, 1.2 s", "2 of 2 tasks left on local:1"]
    run._report({"key": "t", "name": "w", "started": "host"})
    for made, outcome in ((True, "done"), (False, "up to date")):
        product = Product(fresh=made, worker="w", seconds=2)
        run._fetch(SimpleNamespace(key="t", status="finished", result=lambda found=product: found))
        run._inbox.get(timeout=10)()
        assert f"t [w]: {outcome}, 2.0 s" in steps.seen
    assert (run._done["t"].attempts, run._done["t"].error) == (2, None)
    assert steps.seen[-1] == "1 of 2 tasks left on local:1"
    seen = len(steps.seen)
    run._report({"key": "t", "name": "w", "detail": "late"})
    assert len(steps.seen) == seen


def test_a_task_without_a_report_of_its_worker_has_failed(tmp_path):
    lost = KilledWorker("t", SimpleNamespace(address="a"), 3)
    for error, kind, says in (
        (lost, "worker-lost", "t: each worker that built it was lost"),
        (ValueError("bad"), "worker-failed", "t: ValueError: bad"),
    ):
        run, steps = run_of(Client({}), verify_task("t", tmp_path))
        run._fetch(SimpleNamespace(key="t", status="error", exception=lambda found=error: found))
        run._inbox.get(timeout=10)()
        assert (run._done["t"].error.kind, run._done["t"].error.message) == (kind, says)
        assert (run._done["t"].attempts, steps.seen[0]) == (1, "t []: failed")
    run._fetch(SimpleNamespace(key="t", status="cancelled"))
    with pytest.raises(ServerError, match="the connection to the scheduler was lost"):
        run._inbox.get(timeout=10)()


class Finished:
    """A task that has ended, and whose result does not come: the scheduler stands still, or ends with this error."""

    key, status = "t", "finished"

    def __init__(self, found, error):
        self._client, self._error = found, error

    def add_done_callback(self, function):
        function(self)

    def result(self):
        if self._error:
            raise self._error
        self._client.status = "connecting"
        threading.Event().wait(20)


@pytest.mark.parametrize("error", [None, OSError("closed")], ids=["stands still", "ended"])
def test_a_scheduler_that_does_not_pass_on_a_result_is_lost(tmp_path, monkeypatch, error):
    monkeypatch.setattr(client, "_LOOK", 0.05)
    found = Client({"a": [OWN]})
    found.submit = lambda *_, **__: Finished(found, error)
    found.subscribe_topic = found.cancel = lambda *_: None
    with pytest.raises(ServerError, match="the connection to the scheduler was lost"):
        run_of(found, verify_task("t", tmp_path))[0].wait()
