"""A program ends with its caller, and so do all processes that it has started."""

import contextvars
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from envpack.support.processes import run, stoppable
from tests.waiting import soon

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
    assert soon(lambda: file.is_file() and file.read_text().endswith("\n"))
    return file.read_text().strip()


@pytest.fixture
def begin_first(tmp_path, monkeypatch):
    """Lets a time limit begin only when the program has written a line to its file."""
    communicate = subprocess.Popen.communicate

    def wait(program, *args, **options):
        _content(tmp_path / "pid")
        return communicate(program, *args, **options)

    monkeypatch.setattr(subprocess.Popen, "communicate", wait)


def _lives(pid):
    return Path(f"/proc/{pid}").exists()


@pytest.fixture
def parent(tmp_path):
    return [sys.executable, "-c", PARENT, tmp_path / "pid"]


def test_output_and_status_are_returned():
    completed = run(["sh", "-c", "echo out; echo err >&2; exit 3"], env={"PATH": "/usr/bin:/bin"})
    assert (completed.returncode, completed.stdout, completed.stderr) == (3, "out\n", "err\n")


@pytest.mark.usefixtures("begin_first")
def test_a_program_over_its_timeout_ends_with_its_children(tmp_path, parent):
    with pytest.raises(subprocess.TimeoutExpired):
        run(parent, env={"PATH": "/usr/bin:/bin"}, timeout=0.1)
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


@pytest.mark.usefixtures("begin_first")
def test_a_program_that_ignores_sigterm_is_killed(tmp_path, monkeypatch):
    monkeypatch.setattr("envpack.support.processes._GRACE_PERIOD", 0.2)
    script = f"trap '' TERM; echo $$ > {tmp_path}/pid; while true; do sleep 1; done"
    with pytest.raises(subprocess.TimeoutExpired):
        run(["sh", "-c", script], env={"PATH": "/usr/bin:/bin"}, timeout=0.1)
    assert not _lives(_content(tmp_path / "pid"))


@pytest.mark.timeout(30)
def test_a_program_that_prints_without_an_end_is_killed(tmp_path, monkeypatch):
    monkeypatch.setattr("envpack.support.processes._MOST_OUTPUT", 1 << 20)
    script = f"trap '' TERM; echo $$ > {tmp_path}/pid; while true; do printf '%4000s' x; done"
    with pytest.raises(OSError, match="it prints more than 1 MiB") as raised:
        run(["/bin/sh", "-c", script], env={"PATH": "/usr/bin:/bin"})
    assert raised.value.filename == "/bin/sh"
    assert not _lives(_content(tmp_path / "pid"))


def test_a_program_reads_its_text_once_however_long_it_takes():
    completed = run(["sh", "-c", "sleep 0.3; cat"], env={"PATH": "/usr/bin:/bin"}, text="given\n")
    assert completed.stdout == "given\n"
