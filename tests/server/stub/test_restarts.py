"""A model's process that dies is replaced: its requests are answered, and the server notices nothing."""

import os
import re
import signal
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest
import requests

from envpack.settings.pythons import SUPPORTED
from tests.waiting import soon

pytestmark = [pytest.mark.spoils, pytest.mark.parametrize("python", SUPPORTED[:1] + SUPPORTED[-1:])]

CRASH = "import ctypes; ctypes.string_at(0)"
PREFIX = "Failed to process the request(s) for model 'first_0', message: the model's process {} "


@pytest.fixture
def start(servers, interpreter, python, tmp_path):
    """Starts a server of its own with two script models and others; with these environment variables."""
    servers.close()
    with ExitStack() as stack:
        yield lambda **options: servers.two_scripts(python, tmp_path, stack, **options)


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    """Keeps one server for the tests whose models may die as often as they like."""
    with ExitStack() as stack:
        yield stack, {}, tmp_path_factory


@pytest.fixture
def served(shared, servers, interpreter, python):
    stack, started, folders = shared
    if python not in started:
        stack.close()
        started.clear()
        servers.close()
        variables = {"ENVPACK_RESTARTS": "1000"}
        started[python] = servers.two_scripts(
            python, folders.mktemp("restarts"), stack, scripts=("stream", "sequence"), variables=variables
        )
    return started[python]


def test_a_crash_is_told_with_its_line_and_the_next_request_is_answered(served):
    (stub,) = served.stubs("first")
    (worker,) = served.workers("first")
    assert served.evaluate("os.getpid()", model="first") == worker != stub
    error = served.refusal(CRASH, model="first").message
    assert PREFIX.format(worker) + "was killed by signal 11 (SIGSEGV) at model.py:" in error
    successor = served.evaluate("os.getpid()", model="first")
    assert successor not in (stub, worker)
    assert served.stubs("first") == [stub]
    assert served.soon_logged(f", process {successor}): the model's process {worker} was")
    assert served.soon_logged("envpack stub: crash in 'first_0'. Python traceback:\nFatal Python error: Segm")
    assert served.evaluate("2 + 2", model="second") == 4


def test_the_end_of_a_process_by_itself_is_told(served):
    (worker,) = served.workers("first")
    assert served.refusal("os._exit(3)", model="first").message.endswith(PREFIX.format(worker) + "exited with status 3")
    assert served.evaluate("1 + 1", model="first") == 2


def test_a_process_that_dies_between_requests_is_replaced(served):
    (worker,) = served.workers("first")
    os.kill(worker, signal.SIGKILL)
    assert served.evaluate("os.getpid()", model="first") != worker
    _unload(served, "first")


def test_a_sequence_goes_on_in_a_process_that_has_not_seen_its_beginning(served):
    def send(code, **flags):
        return served.run_code(code, model="sequence", parameters={"sequence_id": 7, **flags})

    begin = "self.began = [request.correlation_id() for request in requests]; return [reply(self.began)]"
    go_on = "return [reply(getattr(self, 'began', None))]"
    assert send(begin, sequence_start=True) == send(go_on) == [7]
    served.refusal("os._exit(1)", model="sequence", parameters={"sequence_id": 7})
    assert send(go_on) is None
    assert send(go_on, sequence_end=True) is None
    assert send(begin, sequence_start=True, sequence_end=True) == [7]


def test_the_region_is_as_before(served):
    served.evaluate("1", model="first")
    free = served.free("first")
    served.refusal("self.kept = [bytes(1), *requests]; pb_utils.Logger.log_info('x' * 99); " + CRASH, model="first")
    assert served.frees_all_again(free, "first")


@pytest.mark.thorough
def test_restarts_are_counted_in_a_metric_of_the_server(start):
    served = start(arguments=("--allow-metrics=true", "--metrics-address=127.0.0.1", "--metrics-port=0"))
    for _ in range(2):
        served.refusal("os._exit(1)", model="first")
        served.evaluate("1", model="first")
    pages = (requests.get(f"http://127.0.0.1:{port}/metrics", timeout=10) for port in served.other_ports())
    text = "".join(page.text for page in pages if page.ok)
    assert re.search(r'^envpack_restarts_total\{model="first",version="1"\} 2', text, re.MULTILINE)


def test_log_lines_just_before_the_death_arrive_and_hold_up_nothing(served):
    for number in range(2):
        served.refusal(f"pb_utils.Logger.log_info('just before {number}'); os._exit(1)", model="first")
        assert served.evaluate("1 + 1", model="first") == 2
    _unload(served, "first")


def test_a_death_in_the_middle_of_a_request_to_another_model_harms_neither(served, tmp_path):
    waiting, go_on = tmp_path / "waiting", tmp_path / "go_on"
    inner = (
        f"import pathlib, time\npathlib.Path({str(waiting)!r}).touch()\n"
        f"while not pathlib.Path({str(go_on)!r}).exists(): time.sleep(0.01)\nreturn [reply(1)]"
    )
    with ThreadPoolExecutor(1) as pool:
        refused = pool.submit(served.refusal, f"bls_call('second', {inner!r}).exec()", model="first")
        assert soon(waiting.exists)
        os.kill(served.workers("first")[0], signal.SIGKILL)
        assert "was killed by signal 9" in refused.result(20).message
        assert served.evaluate("1 + 1", model="first") == 2
        go_on.touch()
    assert served.evaluate("1 + 1", model="second") == 2
    _unload(served, "first", "second")


def test_each_open_request_of_a_decoupled_model_gets_its_end(served):
    code = (
        "sender = request.get_response_sender()\nsender.send(reply(1))\n"
        "import threading\ndef later():\n    sender and os._exit(4)\nthreading.Timer(0.2, later).start()"
    )
    first, error = served.stream(code)
    assert first == 1
    assert "exited with status 4" in error
    raised = served.stream("request.get_response_sender().send(reply(2)); os._exit(5)")
    assert raised[0] == 2
    assert "exited with status 5" in raised[1]
    end = "request.get_response_sender().send(reply(3), flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)"
    assert served.stream(end) == [3]


def test_streams_of_a_dead_process_do_not_disturb_the_next_one(served, tmp_path):
    sent, go_on = tmp_path / "sent", tmp_path / "go_on"
    endless = (
        "import pathlib, threading, time\nsender = request.get_response_sender()\nsender.send(reply(0))\n"
        "def later():\n"
        f"    while not pathlib.Path({str(go_on)!r}).exists(): time.sleep(0.01)\n"
        "    for i in range(5): sender.send(reply(i))\n"
        "    sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)\n"
        f"    pathlib.Path({str(sent)!r}).touch()\n"
        "threading.Thread(target=later).start()"
    )
    error = served.refusal(
        f"s = bls_call('stream', {endless!r}).exec(decoupled=True); next(s); os._exit(1)", model="first"
    )
    assert "exited with status 1" in error.message
    short = "s = request.get_response_sender(); s.send(reply(7), flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)"
    go_on.touch()
    asked = f"[fetch(r) for r in bls_call('stream', {short!r}).exec(decoupled=True)]"
    assert served.evaluate(asked, model="first") == [7]
    assert soon(sent.exists)
    assert served.evaluate(asked, model="first") == [7]
    _unload(served, "first", "stream")


def test_after_three_deaths_within_a_minute_requests_are_refused_until_the_model_is_loaded_again(start):
    served = start()
    (stub,) = served.stubs("first")
    for _ in range(2):
        served.refusal("os._exit(1)", model="first")
        assert served.evaluate("1 + 1", model="first") == 2
    assert "exited with status 1" in served.refusal("os._exit(1)", model="first").message
    assert served.soon_logged("envpack stub: 'first_0' is not restarted any more: ")
    for _ in range(3):
        error = served.refusal("return []", model="first").message
        assert "it is not restarted any more: the model's process " in error
        assert "exited with status 1" in error
    assert served.stubs("first") == [stub]
    assert served.evaluate("1 + 1", model="second") == 2
    _unload(served, "first")
    assert served.evaluate("1 + 1", model="first") == 2


@pytest.mark.thorough
def test_nobody_is_restarted_if_a_variable_says_so(start):
    served = start(variables={"ENVPACK_RESTARTS": "0"})
    assert "exited with status 1" in served.refusal("os._exit(1)", model="first").message
    assert "it is not restarted any more" in served.refusal("return []", model="first").message


@pytest.mark.thorough
def test_an_execute_that_does_not_return_is_ended(start):
    served = start(variables={"ENVPACK_EXECUTE_TIMEOUT": "0.5"})
    (worker,) = served.workers("first")
    error = served.refusal("import time; time.sleep(600)", model="first").message
    assert PREFIX.format(worker) + "was ended, since execute() did not return within the 0.5 seconds" in error
    assert served.soon_logged('1/model.py", line ')
    assert served.evaluate("1 + 1", model="first") == 2


def test_a_worker_dies_with_its_stub(start):
    served = start()
    (stub,), (worker,) = served.stubs("first"), served.workers("first")
    os.kill(stub, signal.SIGKILL)
    assert soon(lambda: not Path(f"/proc/{worker}").exists())
    served.server.stop(force=True)


def _unload(served, *models):
    """Unload models, which leave nothing behind, and load them again for the next test."""
    kept = [folder.name for folder in served.repository.iterdir() if folder.name not in models]
    for model in models:
        served.client.unload(model)
    assert soon(lambda: (sorted(served.stubs()), len(served.regions())) == (_stubs_of(served, kept), len(kept)))
    served.load(models)


def _stubs_of(served, models):
    return sorted(stub for model in models for stub in served.stubs(model))
