"""The connection to a cluster: a scheduler that stands still, workers of this machine, and what dask logs."""

import logging
import signal
import threading
from types import SimpleNamespace

import dask
import pytest

from envpack.fleet import cluster
from envpack.fleet.cluster import Address, abilities_of, answer, worker_facts
from envpack.support.errors import ServerError
from envpack.support.progress import NoProgress
from tests.steps import Steps

ADDRESS = Address(scheduler="tcp://scheduler.example:8786")


def test_an_answer_is_returned_without_a_word():
    steps = Steps()
    assert answer(lambda: 7, ADDRESS, steps) == 7
    assert steps.seen == []


def test_an_error_of_the_call_is_that_of_its_caller():
    def fail():
        raise KeyError("x")

    with pytest.raises(KeyError, match="x"):
        answer(fail, ADDRESS, NoProgress())


def test_a_scheduler_that_stands_still_is_waited_for_with_reminders_and_a_limit(monkeypatch):
    monkeypatch.setattr(cluster, "_REMINDER", 0.05)
    steps, released = Steps(), threading.Event()
    with pytest.raises(ServerError) as raised:
        answer(released.wait, ADDRESS, steps, seconds=0.2)
    released.set()
    error = raised.value
    assert (error.kind, error.where) == ("scheduler-lost", str(ADDRESS))
    assert error.message == "the scheduler did not answer within 0 s"
    assert error.hint == "run the same command again; what was finished is not made again"
    assert 1 <= len(steps.seen) <= 4
    assert steps.seen[0].startswith("the scheduler has not answered for ")


def test_an_answer_that_comes_after_a_reminder_counts(monkeypatch):
    monkeypatch.setattr(cluster, "_REMINDER", 0.05)
    reminded = threading.Event()

    class Reminds(NoProgress):
        def detail(self, text):
            reminded.set()

    assert answer(lambda: reminded.wait(60), ADDRESS, Reminds(), seconds=60) is True


def test_all_workers_of_a_scheduler_are_asked_for():
    workers = {"tcp://a": {"resources": {"gpu": 1, "docker": 1}}, "tcp://b": {"resources": {}}}
    client = SimpleNamespace(scheduler_info=lambda n_workers: {"workers": workers} if n_workers == -1 else {})
    assert worker_facts(client) == workers
    assert abilities_of(workers) == {"tcp://a": {"gpu", "docker"}, "tcp://b": frozenset()}


@pytest.fixture
def started(monkeypatch):
    """Records the arguments of local workers, and the signals that are blocked while they start."""
    seen = []

    def start(**options):
        seen.append((options, signal.pthread_sigmask(signal.SIG_BLOCK, ())))
        if options["n_workers"] == 3:
            raise RuntimeError("no room")
        return "cluster"

    monkeypatch.setattr("distributed.LocalCluster", start)
    return seen


def test_workers_of_this_machine_are_out_of_reach_for_others(started):
    assert cluster._local_cluster(Address(workers=2), "certificates") == "cluster"
    ((options, blocked),) = started
    assert options == {
        "n_workers": 2,
        "threads_per_worker": 1,
        "processes": True,
        "host": "127.0.0.1",
        "security": "certificates",
        "dashboard_address": "127.0.0.1:0",
        "scheduler_kwargs": {"dashboard": False},
        "silence_logs": logging.CRITICAL,
        "memory_limit": 0,
    }
    assert signal.SIGINT in blocked, "workers inherit that, and Ctrl-C ends this process alone"
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, ())


def test_workers_that_cannot_start_leave_ctrl_c_as_it_was(started):
    with pytest.raises(RuntimeError, match="no room"):
        cluster._local_cluster(Address(workers=3), None)
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, ())


def test_workers_of_this_machine_get_certificates_of_their_own(started, monkeypatch):
    made = []

    def connect(where, **options):
        made.append((where, options))
        raise OSError("refused\nwith steps")

    monkeypatch.setattr("distributed.Client", connect)
    monkeypatch.setattr("distributed.Security.temporary", lambda: "certificates")

    class Local:
        def __enter__(self):
            return "here"

        def __exit__(self, *_):
            made.append("closed")

    monkeypatch.setattr("distributed.LocalCluster", lambda **options: made.append(options["security"]) or Local())
    with pytest.raises(ServerError) as raised, cluster.connected(Address(workers=2), NoProgress()):
        pass
    options = {"timeout": cluster._CONNECT, "set_as_default": False, "security": "certificates"}
    assert made == ["certificates", ("here", options), "closed"]
    error = raised.value
    assert (error.kind, error.where) == ("scheduler-unreachable", "local:2")
    assert error.message == "the scheduler does not answer: refused"
    assert error.hint.startswith("check the address, the network, and for tls://")


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (TimeoutError(), "no connection within 10 s"),
        (ServerError("scheduler-lost", "the scheduler did not answer", "try again"), "the scheduler did not answer"),
        (ValueError("no such protocol"), "no such protocol"),
        (OSError("in <dask.TCPConnector object at 0x7eff88e16590>: OSError: refused"), "OSError: refused"),
    ],
)
def test_why_a_connection_fails_is_said_in_one_line(monkeypatch, error, said):
    def connect(where, **options):
        assert (where, options["security"]) == (str(ADDRESS), None)
        raise error

    monkeypatch.setattr("distributed.Client", connect)
    with pytest.raises(ServerError) as raised, cluster.connected(ADDRESS, NoProgress()):
        pass
    assert raised.value.message == f"the scheduler does not answer: {said}"


def test_the_cause_of_a_failed_connection_counts_more_than_what_dask_says(monkeypatch):
    def connect(where, **options):
        raise OSError("Timed out trying to connect") from ConnectionRefusedError("Connection refused")

    monkeypatch.setattr("distributed.Client", connect)
    with pytest.raises(ServerError) as raised, cluster.connected(ADDRESS, NoProgress()):
        pass
    assert raised.value.message == "the scheduler does not answer: Connection refused"


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({}, "dask's configuration names no certificates for tls://"),
        (
            {"ca-file": "/nowhere/ca.pem", "client.cert": "/nowhere/cert.pem"},
            "the certificates that dask's configuration names cannot be read: [Errno 2] No such file or directory",
        ),
    ],
)
def test_an_encrypted_connection_needs_certificates_of_dask_that_can_be_read(settings, said):
    with (
        dask.config.set({f"distributed.comm.tls.{name}": value for name, value in settings.items()}),
        pytest.raises(ServerError) as raised,
        cluster.connected(Address(scheduler="tls://127.0.0.1:9"), NoProgress()),
    ):
        pass
    assert (raised.value.kind, raised.value.where) == ("scheduler-unreachable", "tls://127.0.0.1:9")
    assert raised.value.message == said
    assert "ca-file and client below distributed.comm.tls" in raised.value.hint
