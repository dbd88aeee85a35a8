"""A program ends with its caller, and so do all processes that it has started."""

import contextvars
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from envpack.support.processes import run, stoppable

# Starts a program in a process group of its own, as Ninja does with compilers, and kills it on SIGTERM.
PARENT = """
import os, signal, subprocess, sys
child = subprocess.Popen(["sleep", "600"], process_group=0, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
def ended(*_):
    child.kill()
    os.waitpid(child.pid, 0)
    os._exit(1)
signal.signal(signal.SIGTERM, ended)
with open(sys.argv[1], "w") as file:
    file.write(str(child.pid) + "\\n")
while True:
    signal.pause()
"""


def _content(file):
    end = time.monotonic() + 60
    while not file.is_file() or not file.read_text().endswith("\n"):
        assert time.monotonic() < end
        time.sleep(0.01)
    return file.read_text().strip()


def _lives(pid):
    return Path(f"/proc/{pid}").exists()


@pytest.fixture
def parent(tmp_path):
    return [sys.executable, "-c", PARENT, tmp_path / "pid"]


def test_output_and_status_are_returned():
    completed = run(["sh", "-c", "echo out; echo err >&2; exit 3"], env={"PATH": "/usr/bin:/bin"})
    assert (completed.returncode, completed.stdout, completed.stderr) == (3, "out\n", "err\n")


def test_a_program_over_its_timeout_ends_with_its_children(tmp_path, parent):
    with pytest.raises(subprocess.TimeoutExpired):
        run(parent, env={"PATH": "/usr/bin:/bin"}, timeout=3)
    assert not _lives(_content(tmp_path / "pid"))


def test_stopping_ends_the_programs_of_other_threads_and_refuses_new_ones(tmp_path, parent):
    with stoppable() as programs, ThreadPoolExecutor(1) as pool:
        running = pool.submit(contextvars.copy_context().run, run, parent, env={"PATH": "/usr/bin:/bin"})
        child = _content(tmp_path / "pid")
        programs.stop()
        with pytest.raises(KeyboardInterrupt):
            running.result(60)
        assert not _lives(child)
        with pytest.raises(KeyboardInterrupt):
            run(["true"], env={"PATH": "/usr/bin:/bin"})
    assert run(["true"], env={"PATH": "/usr/bin:/bin"}).returncode == 0


def test_an_interrupted_caller_leaves_no_program_behind(tmp_path, parent):
    def interrupt():
        _content(tmp_path / "pid")
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    interrupting = threading.Thread(target=interrupt)
    interrupting.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            run(parent, env={"PATH": "/usr/bin:/bin"})
    finally:
        signal.signal(signal.SIGINT, before)
        interrupting.join()
    assert not _lives(_content(tmp_path / "pid"))


def test_a_program_that_ignores_sigterm_is_killed(monkeypatch):
    monkeypatch.setattr("envpack.support.processes._GRACE_PERIOD", 0.2)
    with pytest.raises(subprocess.TimeoutExpired):
        run(["sh", "-c", "trap '' TERM; while true; do sleep 1; done"], env={"PATH": "/usr/bin:/bin"}, timeout=0.5)
