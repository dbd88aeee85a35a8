"""A stub is identified by its report, which can arrive late, and by its file."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time

import pytest

from envpack.server.interface import Process
from envpack.server.process import ProcessServer
from envpack.verification import stub_processes
from tests.waiting import soon

REPORT = {"instance": "m_0_0", "python": "3.12.1", "numpy": "2.5.5", "stub": "0.1.0"}
ARGUMENTS = ("stub", "/r/m/1/model.py", "region", "1", "1", "1", "/b", "336", "m_0_0", "DEFAULT")
STUB = Process(7, "triton_python_b", False, ARGUMENTS)


class Server:
    """A server whose log contains the report from the second read on."""

    def __init__(self, report):
        self.logs = ["", f"I1121 envpack-stub {json.dumps(report)}" if report else ""]

    def log_size(self):
        return 0

    def log(self, since=0):
        return self.logs.pop(0) if len(self.logs) > 1 else self.logs[0]

    def executable(self, pid):
        return "/r/m/triton_python_backend_stub"

    def host_path(self, place):
        return None

    def list_folder(self, folder):
        return ()

    def mapped_files(self, pid):
        return ("/e/lib/libpython3.12.so.1.0",)


@pytest.fixture
def ours(monkeypatch):
    monkeypatch.setattr(stub_processes, "_version_of_ours", lambda executable: "0.1.0")
    monkeypatch.setattr(stub_processes, "_REPORT_SECONDS", 0.2)


def test_a_late_report_of_our_stub_is_awaited(ours):
    seen = stub_processes.identify(Server(REPORT), STUB)
    assert (seen.python, seen.numpy, seen.version) == ("3.12.1", "2.5.5", "0.1.0")


def test_our_stub_without_a_report_is_identified_by_its_file(ours):
    seen = stub_processes.identify(Server(None), STUB)
    assert (seen.python, seen.version) == ("3.12", "0.1.0")


def test_another_stub_is_identified_by_its_mapped_files():
    seen = stub_processes.identify(Server(None), STUB)
    assert (seen.python, seen.version) == ("3.12", "")


# Like a stub while it completes a configuration: it waits for a process that is killed when the stub ends.
COMPLETES = """
import ctypes, os, signal, time

def say(*_):
    while not os.path.exists(__file__ + ".polled"):  # until envpack waits for it
        time.sleep(0.01)
    print("stood here", flush=True)
    os._exit(1)

if os.fork() == 0:
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)
    signal.signal(signal.SIGABRT, say)
    print("ready", flush=True)
    time.sleep(60)
os.wait()
time.sleep(60)
"""
STARTS = "import subprocess, sys; subprocess.run(['stub', *sys.argv[1:]], executable=sys.executable)"


@pytest.fixture
def hanging(tmp_path):
    """A server with a child that has the name of a stub of the model `m`, whose own child is blocked."""
    model = tmp_path / "m/1/model.py"
    model.parent.mkdir(parents=True)
    model.write_text(COMPLETES)
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen([sys.executable, "-c", STARTS, str(model), *ARGUMENTS[2:]], stdout=log)
    server = ProcessServer(None, process.pid, 0, tmp_path)
    try:
        assert soon(lambda: "ready" in server.log())
        yield server
    finally:
        for child in server.children():
            with contextlib.suppress(ProcessLookupError):
                os.kill(child.pid, signal.SIGKILL)
        process.kill()
        process.wait()


def test_children_of_a_stub_write_their_stack_before_the_stub_is_aborted(hanging, tmp_path, monkeypatch):
    pause = time.sleep
    monkeypatch.setattr("time.sleep", lambda seconds: (tmp_path / "m/1/model.py.polled").touch() or pause(seconds))
    monkeypatch.setattr(stub_processes, "_ABORT_SECONDS", 60.0)
    assert len(stub_processes.stub_processes(hanging, "m")) == 1
    stub_processes.abort_stubs(hanging, "m")
    assert "stood here" in hanging.log()
    assert stub_processes.living_stubs(hanging) == ()
