"""A stub is identified by its report, which can arrive late, and by its file.

It, a child of it, or a process that it watches runs the model.
"""

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
from envpack.verification.stub_processes import Instance
from tests.waiting import soon

REPORT = {"instance": "m_0_0", "python": "3.12.1", "numpy": "2.5.5", "stub": "0.1.0", "start": "warm"}
ARGUMENTS = ("stub", "/r/m/1/model.py", "region", "1", "1", "1", "/b", "336", "m_0_0", "DEFAULT")
STUB = Process(7, "triton_python_b", False, ARGUMENTS)
ALONE = Instance(STUB, STUB)


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
    seen = stub_processes.identify(Server(REPORT), ALONE)
    assert (seen.python, seen.numpy, seen.version, seen.start) == ("3.12.1", "2.5.5", "0.1.0", "warm")


def test_our_stub_without_a_report_is_identified_by_its_file(ours):
    seen = stub_processes.identify(Server(None), ALONE)
    assert (seen.python, seen.version) == ("3.12", "0.1.0")


def test_another_stub_is_identified_by_its_mapped_files():
    seen = stub_processes.identify(Server(None), ALONE)
    assert (seen.python, seen.version) == ("3.12", "")


class Table:
    """The process table of a server: its children, and theirs. A process that is aborted disappears.

    Attributes:
        below: children by the process id of their parent.
        followed: watched processes by the process id of the one that watches them.
    """

    def __init__(self, *stubs, **children):
        self.stubs = list(stubs)
        self.below = {int(pid[1:]): processes for pid, processes in children.items()}
        self.followed = {}
        self.aborted = []
        self.mapped = {}

    def mapped_files(self, pid):
        return self.mapped.get(pid, ("/lib/libc.so.6",))

    def children(self, of=None):
        return tuple(self.stubs if of is None else self.below.get(of, ()))

    def watched(self, pid):
        return tuple(self.followed.get(pid, ()))

    def abort(self, pid):
        self.aborted.append(pid)
        for processes in (self.stubs, *self.below.values(), *self.followed.values()):
            processes[:] = [process for process in processes if process.pid != pid]


def process(pid, *, model="m", name="triton_python_b", dead=False, parent=0, more=()):
    arguments = ("stub", f"/r/{model}/1/model.py", *ARGUMENTS[2:], *more)
    return Process(pid, name, dead, () if dead else arguments, parent=parent)


def of_template(pid, parent=0):
    """A template, or a fork of it."""
    return process(pid, parent=parent, more=("--template", "3", "2410", "1"))


def found(server, model="m"):
    return [each.pid for each in stub_processes.stub_processes(server, model)]


def test_a_child_with_the_command_line_of_its_stub_runs_the_model():
    server = Table(process(7), p7=[process(9)])
    assert found(server) == [9]
    assert [each.pid for each in stub_processes.living_stubs(server)] == [7]


def test_a_stub_without_such_a_child_runs_the_model_itself():
    program = Process(8, "sleep", False, ("sleep", "60"))
    assert found(Table(process(7))) == [7]
    assert found(Table(process(7), p7=[program])) == [7]
    assert found(Table(process(7), p7=[program, process(9)])) == [9]


def test_a_process_that_has_given_itself_another_title_runs_the_model():
    titled, program = (Process(pid, "mine", False, ("mine",)) for pid in (9, 8))
    server = Table(process(7), p7=[of_template(6, parent=7), program, titled])
    server.mapped = dict.fromkeys((6, 9), ("/e/lib/libpython3.12.so.1.0",))
    assert found(server) == [9]
    server.followed, server.below = {7: [titled]}, {7: [of_template(6, parent=7)]}
    assert found(server) == [9]


def test_a_process_that_a_model_has_forked_is_not_the_one_that_runs_it():
    """Another stub than envpack's embeds Python itself."""
    server = Table(process(7), p7=[process(9)])
    server.mapped[7] = ("/e/lib/libpython3.12.so.1.0",)
    assert found(server) == [7]


def test_a_stub_whose_child_has_died_is_named_until_the_next_one_lives():
    server = Table(process(7), p7=[process(9, dead=True)])
    assert found(server) == [7]
    server.below[7].append(process(10))
    assert found(server) == [10]


def test_each_instance_of_a_model_has_one_process_in_the_order_of_the_stubs():
    server = Table(
        process(5), process(6, model="other"), process(7), process(8, dead=True), p5=[process(11)], p7=[process(9)]
    )
    assert found(server) == [11, 9]
    assert found(server, "other") == [6]
    assert found(server, "none") == []


@pytest.fixture
def warm():
    """Two instances whose processes, 20 and 21, are forks of the template 9; its stub has ended."""
    server = Table(process(7), process(8))
    server.followed = {7: [of_template(20, parent=9)], 8: [of_template(21, parent=9)]}
    return server


def test_a_process_that_a_stub_watches_runs_the_model(warm):
    assert found(warm) == [20, 21]
    assert {instance.template for instance in stub_processes.instances(warm, "m")} == {9}
    assert [each.pid for each in stub_processes.living_stubs(warm)] == [7, 8]


def test_of_a_template_that_is_a_child_of_its_stub_the_stub_watches_a_fork(warm):
    warm.below[7] = [of_template(9, parent=7)]
    assert found(warm) == [20, 21]
    warm.followed.clear()
    assert found(warm) == [7, 8]


def test_a_stub_that_watches_another_program_or_a_dead_process_runs_the_model_as_before(warm):
    warm.followed = {7: [process(20, dead=True)], 8: [Process(30, "sleep", False, ("sleep", "60"))]}
    assert found(warm) == [7, 8]
    warm.below[7] = [process(31)]
    assert found(warm) == [31, 8]


def test_a_template_is_known_by_its_command_line():
    assert stub_processes.is_template(of_template(9))
    assert not stub_processes.is_template(process(9))
    assert not stub_processes.is_template(Process(30, "sleep", False, ("sleep", "60")))


def test_a_template_that_a_server_has_adopted_is_no_stub(warm):
    """A server that is process 1 of its container."""
    warm.stubs.append(of_template(9))
    assert [each.pid for each in stub_processes.living_stubs(warm)] == [7, 8]
    assert found(warm) == [20, 21]


def test_a_child_of_a_stub_was_forked_from_no_template():
    server = Table(process(7), p7=[process(9, parent=7)])
    assert [each.template for each in stub_processes.instances(server, "m")] == [0]
    assert [each.template for each in stub_processes.instances(Table(process(7, parent=5)), "m")] == [0]


def test_a_template_that_has_become_the_process_of_its_stub_is_no_template():
    server = Table(process(7))
    server.followed[7] = [of_template(9, parent=7)]
    (instance,) = stub_processes.instances(server, "m")
    assert (instance.worker.pid, instance.template) == (9, 0)


def test_the_processes_of_a_warm_model_are_aborted_before_its_stubs(warm):
    stub_processes.abort_stubs(warm, "m")
    assert warm.aborted == [20, 21, 7, 8]


def test_a_template_that_imports_the_model_is_aborted_before_its_stub():
    server = Table(process(7), process(8), p7=[of_template(9, parent=7)])
    stub_processes.abort_stubs(server, "m")
    assert server.aborted == [9, 7, 8]


def test_the_process_of_a_model_is_aborted_before_its_stub():
    server = Table(process(6, model="other"), process(7), p7=[process(9)])
    stub_processes.abort_stubs(server, "m")
    assert server.aborted == [9, 7]


def test_stubs_that_are_spared_go_on_with_their_processes():
    server = Table(process(7), process(8), p7=[process(9)], p8=[process(10)])
    stub_processes.abort_stubs(server, "m", {7})
    assert server.aborted == [10, 8]


def test_a_stub_that_runs_the_model_itself_is_aborted_once():
    server = Table(process(7))
    stub_processes.abort_stubs(server, "m")
    assert server.aborted == [7]


def test_a_stub_is_aborted_although_it_has_replaced_the_process_of_its_model():
    server = Table(process(7), p7=[process(9)])
    abort = server.abort

    def replace(pid):
        abort(pid)
        if pid == 9:
            server.below[7].append(process(10))

    server.abort = replace
    stub_processes.abort_stubs(server, "m")
    assert server.aborted == [9, 7]


def test_a_stub_is_not_aborted_before_it_has_reaped_the_process_of_its_model(monkeypatch):
    server = Table(process(7), p7=[process(9)])
    order = []

    def abort(pid):
        order.append(pid)
        server.below[7][:] = [process(9, dead=True)]

    def reap(_):
        order.append("reaped")
        server.below[7].clear()

    monkeypatch.setattr(stub_processes.time, "sleep", reap)
    monkeypatch.setattr(stub_processes, "_ABORT_SECONDS", 0.1)
    server.abort = abort
    stub_processes.abort_stubs(server, "m")
    assert order[:3] == [9, "reaped", 7]


def test_processes_that_do_not_end_are_waited_for_within_a_limit(monkeypatch):
    monkeypatch.setattr(stub_processes, "_ABORT_SECONDS", 0.1)
    server = Table(process(7), p7=[process(9)])
    server.abort = server.aborted.append
    stub_processes.abort_stubs(server, "m")
    assert server.aborted == [9, 7]


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
def hanging(tmp_path, monkeypatch):
    """A server with a child that has the name of a stub of the model `m`, whose own child is blocked."""
    model = tmp_path / "m/1/model.py"
    model.parent.mkdir(parents=True)
    model.write_text(COMPLETES)
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen([sys.executable, "-c", STARTS, str(model), *ARGUMENTS[2:]], stdout=log)
    server = ProcessServer(None, process.pid, 0, tmp_path)
    monkeypatch.setattr(server, "mapped_files", lambda pid: ())  # this Python may have mapped libpython
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


def test_reports_that_are_missing_are_awaited_together(ours, monkeypatch):
    seconds = []

    def report(server, instance, limit):
        seconds.append(limit)
        clock[0] += max(limit, 0)
        return instance

    clock = [100.0]
    monkeypatch.setattr(stub_processes.time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(stub_processes, "_report", report)
    assert stub_processes.reports(Server(None), (ALONE, ALONE)) == ("m_0_0", "m_0_0")
    assert seconds == [pytest.approx(0.2), pytest.approx(0)]
