"""`envpack run`: models that hang or die, Ctrl-C, and debuggers."""

import contextlib
import itertools
import json
import os
import shutil
import signal
import socket
import struct
import subprocess

import pytest

from envpack.local.connection import Kind
from tests.local.running import copied, ensemble
from tests.object_stores import free_port
from tests.rings import parameters
from tests.waiting import soon


def pytest_generate_tests(metafunc):
    """Not the Pythons of the other modules."""


def test_ctrl_c_ends_a_run_on_a_server(repository, command, tmp_path):
    """The model would run on for a minute."""
    ensemble(repository, "waits", step="sleeper")
    flag = tmp_path / "runs"
    source = (repository / "default/1/model.py").read_text()
    sleep = f"open({str(flag)!r}, 'w').close(); import time; time.sleep(60)\n        return [self"
    copied(repository, "sleeper", source.replace("return [self", sleep))
    with command("waits", stdout=subprocess.PIPE, stderr=subprocess.PIPE) as child:
        assert soon(flag.exists)
        child.send_signal(signal.SIGINT)
        _, errors = child.communicate(timeout=30)
    assert child.returncode == 130
    assert "error: interrupted; " in errors


def test_processes_that_a_model_leaves_behind_do_not_keep_the_run(repository, run):
    copied(
        repository,
        "leaves",
        "import os, time\n\nclass TritonPythonModel:\n    def execute(self, requests):\n"
        "        for number in (1, 2):\n            os.set_inheritable(number, False)\n"
        "        if os.fork() == 0:\n            os.closerange(0, 3)\n            time.sleep(60)\n"
        "        os._exit(5)\n",
    )
    code, output, _ = run("leaves")
    assert code == 1
    assert output.splitlines() == [
        "wrong: the process of 'leaves' ended with status 5 while execute() was running",
        "  fix: find what ends the process with status 5: os._exit or exit() in the model or its libraries",
    ]


@pytest.mark.parametrize("ends", ["os.close(number)", "os.dup2(0, number)"])
def test_a_model_that_takes_every_descriptor_ends_at_once(repository, run, ends):
    """A thread of the stub still waits at the socket, which so remains open."""
    copied(
        repository,
        "takes",
        "import contextlib, os\n\nclass TritonPythonModel:\n    def execute(self, requests):\n"
        f"        for number in map(int, sorted(os.listdir('/proc/self/fd'))):\n"
        f"            with contextlib.suppress(OSError):\n                number < 3 or {ends}\n"
        "        return []\n",
    )
    code, output, errors = run("takes", "--timeout", "60")
    assert code == 1
    assert "wrong: the process of 'takes' ended with status 1 while execute() was running" in output.splitlines()
    assert "the model closes descriptors that are not its own" in errors  # whichever thread notices it first
    shutil.rmtree(repository / "takes")


def test_a_model_that_dies_after_it_has_returned_fails_its_requests(repository, run):
    shutil.copytree(repository / "stream", repository / "dies", symlinks=True)
    (repository / "dies/1/model.py").write_text(
        "import os, threading, time\n\nclass TritonPythonModel:\n    def execute(self, requests):\n"
        "        self.sender = requests[0].get_response_sender()\n"
        "        threading.Timer(0.1, os._exit, [9]).start()\n"
    )
    code, output, _ = run("dies")
    assert code == 1
    assert output.startswith("wrong: the process of 'dies' ended with status 9 while ")


def test_a_stream_that_never_ends_shows_what_came_and_what_is_missing(repository, run):
    shutil.copytree(repository / "stream", repository / "endless", symlinks=True)
    source = (repository / "stream/1/model.py").read_text()
    kept = source.replace("sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)", "self.kept = sender")
    assert kept != source
    (repository / "endless/1/model.py").write_text(kept)
    code, output, _ = run("endless", "--timeout", "1")
    assert code == 1
    assert [line.split()[-1] for line in output.splitlines()[1:6:2]] == ["0", "1", "2"]
    ended = (
        "wrong: the process of 'endless' was ended: more than 1 s passed, and execute() had returned; 3 responses came"
    )
    assert output.splitlines()[-1].startswith(
        f"{ended} without the final flag: send the last response, or nothing, with"
    )


def test_a_model_that_hangs_is_ended_and_its_stack_is_shown(repository, run):
    source = (repository / "default/1/model.py").read_text()
    copied(repository, "hangs", source.replace("return [self", "threading.Event().wait()\n        return [self"))
    code, output, errors = run("hangs", "--timeout", "1")
    ended = "wrong: the process of 'hangs' was ended: more than 1 s passed, and execute() was running; 0 responses came"
    assert (code, output.partition("; --timeout")[0]) == (1, ended)
    assert f"{repository}/hangs/1/model.py:9 in execute was running" in output
    assert f'File "{repository}/hangs/1/model.py", line 9 in execute' in errors


@pytest.mark.parametrize(
    "message",
    [(2**60, 0, 0), (Kind.EXECUTED, 0, 2**40), (Kind.EXECUTED, 0, 0), (Kind.LOG, 0, 0)],
    ids=["no kind", "too large", "an empty answer", "an empty line of the log"],
)
def test_a_model_that_writes_to_the_socket_of_its_stub_fails(repository, run, request, message):
    name = f"writes {request.node.callspec.id}".replace(" ", "_")
    written = struct.pack("<QQQ", *message)
    copied(
        repository,
        name,
        "import os, stat\n\nclass TritonPythonModel:\n    def execute(self, requests):\n"
        "        for name in os.listdir('/proc/self/fd'):\n"
        "            if os.path.exists(f'/proc/self/fd/{name}') and stat.S_ISSOCK(os.fstat(int(name)).st_mode):\n"
        f"                os.write(int(name), {written})\n"
        "        import time; time.sleep(600)\n",
    )
    code, output, _ = run(name)
    assert code == 1
    assert (
        output == f"wrong: the process of '{name}' was ended: it sent what no stub sends while execute() was running: "
        "the model writes to descriptors that are not its own\n"
    )


def test_an_end_by_an_error_is_reported(repository, run):
    source = (repository / "default/1/model.py").read_text()
    copied(repository, "ends", source + "\n    def finalize(self):\n        import os\n        os._exit(4)\n")
    code, _, errors = run("ends")
    assert code == 0
    assert "error: the process of 'ends' ended with status 4 while finalize() was running" in errors


class Debugger:
    """The client's side of the debug adapter protocol."""

    def __init__(self, connection):
        self._numbers = itertools.count(1)
        self._stream = connection.makefile("rwb")

    def send(self, command, **arguments):
        message = {"seq": next(self._numbers), "type": "request", "command": command, "arguments": arguments}
        body = json.dumps(message).encode()
        self._stream.write(b"Content-Length: %d\r\n\r\n%s" % (len(body), body))
        self._stream.flush()

    def wait_for(self, event):
        while True:
            size = int(self._stream.readline().split(b":")[1])
            self._stream.readline()
            if json.loads(self._stream.read(size)).get("event") == event:
                return


@pytest.mark.thorough
def test_a_debugger_is_awaited_before_the_model_is_imported(command):
    port = free_port()
    with command("default", "--debug", str(port), stdout=subprocess.PIPE, stderr=subprocess.PIPE) as child:
        line = next(line for line in child.stderr if "waiting for a debugger" in line)
        assert line == f"envpack: waiting for a debugger at 127.0.0.1:{port}\n"
        with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
            debugger = Debugger(connection)
            debugger.send("initialize", adapterID="test")
            debugger.send("attach", justMyCode=True)
            debugger.wait_for("initialized")
            debugger.send("configurationDone")
            assert "FP32" in child.stdout.read()
    assert child.returncode == 0


def test_a_port_that_is_in_use_is_one_line(run):
    with socket.create_server(("127.0.0.1", 0)) as busy:
        port = busy.getsockname()[1]
        code, output, errors = run("default", "--debug", str(port))
    assert (code, output) == (6, "")
    assert f"error: 127.0.0.1:{port}: the debugger cannot listen: Address already in use (port-taken)" in errors


def test_a_breakpoint_works_on_the_terminal(repository, run):
    source = (repository / "default/1/model.py").read_text()
    copied(repository, "stops", source.replace("return [self", "breakpoint()\n        return [self"))
    code, _, errors = run("stops", sent="p len(requests) + 41\ncontinue\n")
    assert code == 0
    assert "(Pdb) 42" in errors


# The model presses Ctrl-C itself, so that it comes at the same moment on a busy machine; its parent is envpack.
PRESSES = """
import os, signal, time
import triton_python_backend_utils as pb_utils

def press():
    open("pid", "w").write(str(os.getpid()))
    os.kill(os.getppid(), signal.SIGINT)

def wait(*_):
    while True:
        time.sleep(60)

def wait_until_cancelled(requests):
    while not requests[0].is_cancelled():
        time.sleep(0.001)
    open("cancelled", "w").close()

class TritonPythonModel:
"""


PRESSING = {
    "import": "    press()\n    wait()\n",
    "initialize": "    def initialize(self, args):\n        press()\n        wait()\n",
    "execute": "    def execute(self, requests):\n"
    "        press()\n        wait_until_cancelled(requests)\n        return 7\n",
    "twice": "    def execute(self, requests):\n"
    "        press()\n        wait_until_cancelled(requests)\n        press()\n        wait()\n",
    "finalize": "    def execute(self, requests):\n        return 7\n"
    "    def finalize(self):\n        press()\n        wait()\n",
}


@pytest.mark.parametrize("where", parameters(PRESSING, {"execute"}))
def test_ctrl_c_ends_the_model(repository, run, tmp_path, where):
    copied(repository, f"pressed_{where}", PRESSES + PRESSING[where])
    code, output, errors = run(f"pressed_{where}")
    assert (code, output) == (130, "")
    assert "Traceback" not in errors
    assert "ignored" not in errors
    assert errors.splitlines()[-2].startswith("error: interrupted; ")
    assert (tmp_path / "cancelled").exists() == (where in ("execute", "twice"))
    with contextlib.suppress(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)
        pytest.fail("the model still runs")
