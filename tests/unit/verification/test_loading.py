"""Measuring for how long a dead stub has not been reaped by the server."""

import threading
from pathlib import Path
from types import SimpleNamespace

from envpack.server.kserve import RequestError
from envpack.server.log import NO_MORE
from envpack.verification import loading
from envpack.verification.stub_processes import DeadStubTimer, FullTimer

FIRST, SECOND = 7, 8
INITIALIZED = (
    'Starting Python backend stub: exec /m/stub /m/1/model.py region 1 1 7 /backends/python 336 m_0 DEFAULT"\n'
    'envpack-stub {"instance": "m_0", "initialize_seconds": 0.1}\n'
)
NO_BASH = "Failed to run python backend stub. Errno = 2\nPython backend stub path: /m/triton_python_backend_stub\n"


def test_a_dead_stub_counts_from_its_first_observation():
    dead = DeadStubTimer(10.0)
    for now in (10.1, 10.2, 10.3):
        dead.update(frozenset({FIRST}), now)
    dead.update(frozenset({FIRST, SECOND}), 10.4)
    assert round(dead.seconds, 6) == 0.3


def test_a_reaped_stub_is_forgotten():
    dead = DeadStubTimer(10.0)
    dead.update(frozenset({FIRST}), 10.1)
    dead.update(frozenset({FIRST}), 10.2)
    dead.update(frozenset(), 10.3)
    assert dead.seconds == 0


def test_time_in_which_the_machine_was_stopped_does_not_count():
    dead = DeadStubTimer(10.0)
    dead.update(frozenset({FIRST}), 10.1)
    dead.update(frozenset({FIRST}), 3610.1)
    assert dead.seconds < 0.3
    dead.update(frozenset({FIRST}), 3610.2)
    assert dead.seconds > 0.3


def test_a_load_that_asks_a_host_again_until_its_time_is_up_has_that_as_its_fix(monkeypatch):
    monkeypatch.setattr(loading, "abort_and_read_frames", lambda *_: ("model.py:4 in initialize",))
    server = SimpleNamespace(at_process_limit=lambda: False)
    asked = "'[Errno -2] Name or service not known' thrown while requesting HEAD https://huggingface.co/a/b/c.json"
    assert "does not reach that host" in loading._timed_out(server, None, f"{asked}\n", 5.0).fix
    assert "what blocks in model.py:4 in initialize" in loading._timed_out(server, None, "loading\n", 5.0).fix


def test_a_load_that_does_not_end_at_the_limit_of_threads_has_that_as_its_fix(monkeypatch):
    monkeypatch.setattr(loading, "abort_and_read_frames", lambda *_: ("model.py:4 in initialize",))
    server = SimpleNamespace(at_process_limit=lambda: True)
    assert "limits of threads" in loading._timed_out(server, None, "loading\n", 5.0).fix


def test_a_server_that_does_not_go_on_with_an_initialized_model_is_not_blamed_on_the_model(monkeypatch):
    """As one that has no memory for a thread, which no limit of processes shows."""
    monkeypatch.setattr(loading, "abort_and_read_frames", lambda *_: ())
    monkeypatch.setattr(loading, "instances", lambda *_: ["its process"])
    model = SimpleNamespace(name="m")
    failure = loading._timed_out(SimpleNamespace(at_process_limit=lambda: False), model, INITIALIZED, 5.0)
    assert "although initialize has ended" in failure.reason
    assert "limits of threads and memory" in failure.fix
    monkeypatch.setattr(loading, "abort_and_read_frames", lambda *_: ("model.py:4 in execute",))  # of a warm-up
    failure = loading._timed_out(SimpleNamespace(at_process_limit=lambda: False), model, INITIALIZED, 5.0)
    assert "what blocks in model.py:4 in execute" in failure.fix


def test_a_load_that_does_not_end_after_its_process_is_not_said_to_block():
    """Servers up to 24.04 wait so for another model that they serve."""
    server = SimpleNamespace(at_process_limit=lambda: False, children=lambda: ())
    failure = loading._timed_out(server, SimpleNamespace(name="m"), INITIALIZED, 5.0)
    assert "its process has ended" in failure.reason
    assert "envpack verify m`" in failure.fix


def test_the_command_that_gives_a_model_an_environment_names_the_model():
    model = SimpleNamespace(name="m")
    line = "/backends/python/stub: error while loading shared libraries: libpython3.8.so.1.0: cannot open shared object"
    failure = loading._stub_died(model, f"{line} file: No such file or directory\n")
    assert (failure.kind, failure.fix.partition("make one with ")[2]) == (
        "libpython-missing",
        "envpack build m",
    )


def test_a_refusal_of_the_server_that_names_no_cause_leads_to_the_model_s_files():
    def refuse(*_, **__):
        raise RequestError("failed to open text file for read /m/initial_state/a.bin", status=400)

    server = SimpleNamespace(log=lambda _=0: "", log_size=lambda: 0, ended=lambda: False, poll_seconds=0.1)
    server.children, server.server_path = tuple, str
    model = SimpleNamespace(name="m", folder=Path("/m"))
    client = SimpleNamespace(load=refuse)
    failure = loading.load_model(server, client, model, timeout=5, ignore_dead=frozenset()).failure
    assert (failure.kind, "`envpack inspect m`" in failure.fix) == ("load-failed", True)


def loaded(text, **server):
    """The result of a load that never ends, of a server with this log."""
    unending = threading.Event()
    server = SimpleNamespace(log=lambda _=0: text, log_size=lambda: 0, ended=lambda: False, **server)
    server.children, server.poll_seconds = tuple, 0.1
    client = SimpleNamespace(load=lambda *_, **__: unending.wait())
    try:
        return loading.load_model(
            server, client, SimpleNamespace(name="m"), timeout=threading.TIMEOUT_MAX, ignore_dead=frozenset()
        )
    finally:
        unending.set()


def test_a_server_without_bash_is_not_waited_for():
    result = loaded(NO_BASH, at_process_limit=lambda: False)
    assert (result.stuck, result.failure.kind) == (True, "stub-died")
    assert "the server cannot run bash" in result.failure.reason


def test_a_server_that_can_start_no_further_thread_is_not_waited_for(monkeypatch):
    monkeypatch.setattr(loading, "_GRACE_INSTANCE", 0.1)
    result = loaded(INITIALIZED, at_process_limit=lambda: True)
    assert (result.stuck, result.failure.kind) == (True, "load-failed")
    assert "limits of threads" in result.failure.fix


def test_the_limit_of_threads_ends_no_load_of_a_model_that_is_still_initialized():
    full = FullTimer()
    server = SimpleNamespace(at_process_limit=lambda: True)
    for now in (1.0, 9.0):
        full.update(server, INITIALIZED.partition("\n")[0], now)
    assert full.seconds == 0
    for now in (10.0, 12.0):
        full.update(server, INITIALIZED, now)
    assert full.seconds == 2
    full.update(SimpleNamespace(at_process_limit=lambda: False), INITIALIZED, 13.0)
    assert full.seconds == 0


def test_a_server_that_cannot_write_to_the_folder_of_temporary_files_has_it_in_the_fix():
    died = loading.server_died("at once", "  what():  Failed to create temporary directory for Python environments.")
    assert died.fix.startswith("the server cannot write to /tmp")


def test_a_server_that_ended_for_lack_of_a_thread_has_the_limit_as_its_fix():
    lines = "terminate called after throwing an instance of 'std::system_error'\n  what():  {}\nSignal (6) received.\n"
    ended = [loading.server_died("at once", lines.format(why)).fix for why in (NO_MORE, "Invalid argument")]
    assert "limits of threads" in ended[0]
    assert ended[1] == ""
