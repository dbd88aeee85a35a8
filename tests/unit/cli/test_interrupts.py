"""Ctrl-C at the moments at which Python would lose it, show a traceback or end by the signal."""

import signal
import subprocess
import sys

import pytest

from envpack.support.interruption import repeat_unhandled

HEAD = """
import io, os, signal, sys, time
from envpack.cli import interrupts
from envpack.support.interruption import repeat_unhandled

def press():
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(0)

class Pressed:
    def __del__(self):
        press()

class File(io.IOBase):
    @property
    def closed(self):
        press()
        return True

interrupts.install()
repeat_unhandled()
"""
# The handler of the system notes the signal; Python's runs in the main thread only, and that waits for the lock.
WAITING = """import threading
held = threading.Lock()
held.acquire()
def press_here():
    while open(f"/proc/self/task/{os.getpid()}/stat").read().split()[2] != "S":
        pass
    signal.pthread_kill(threading.get_ident(), signal.SIGINT)
thread = threading.Thread(target=press_here)
"""
# Each with its exit code.
MOMENTS = {
    "before the work": ("press()\ntime.sleep(60)", 130),
    "during the work": ("interrupts.begin_work()\ntry:\n    press()\nexcept KeyboardInterrupt:\n    sys.exit(7)", 7),
    "in a finalizer": (
        "interrupts.begin_work()\ntry:\n    Pressed()\n    time.sleep(60)\nexcept KeyboardInterrupt:\n    sys.exit(7)",
        7,
    ),
    "in the finalizer of a file, which drops it without a word": (
        "interrupts.begin_work()\ntry:\n    File()\n    time.sleep(60)\nexcept KeyboardInterrupt:\n    sys.exit(7)",
        7,
    ),
    "in a thread that handles no signals, before the main thread waits": (
        (
            WAITING + "interrupts.begin_work()\n"
            "try:\n    thread.start()\n    held.acquire()\nexcept KeyboardInterrupt:\n    sys.exit(7)"
        ),
        7,
    ),
    "in a block that handles it itself": (
        # Nothing repeats the signal once the block has handled it.
        (
            "from envpack.support.interruption import once_interruptible\ninterrupts.begin_work()\n"
            "try:\n    with once_interruptible():\n        press()\n"
            "except KeyboardInterrupt:\n    time.sleep(0.2)\nsys.exit(7)"
        ),
        7,
    ),
    "in a finalizer in a block that handles it itself": (
        (
            "from envpack.support.interruption import once_interruptible\ninterrupts.begin_work()\n"
            "try:\n    with once_interruptible():\n        File()\n        time.sleep(60)\n"
            "except KeyboardInterrupt:\n    time.sleep(0.2)\nsys.exit(7)"
        ),
        7,
    ),
    "in a thread, before the main thread waits in a block that handles it itself": (
        (
            WAITING + "from envpack.support.interruption import once_interruptible\ninterrupts.begin_work()\n"
            "try:\n    with once_interruptible():\n        thread.start()\n        held.acquire()\n"
            "except KeyboardInterrupt:\n    sys.exit(7)"
        ),
        7,
    ),
    "where it is caught and the work goes on": (
        (
            "from envpack.support.interruption import caught\ninterrupts.begin_work()\n"
            "try:\n    press()\nexcept KeyboardInterrupt as error:\n    caught(error)\n"
            "time.sleep(0.2)\nsys.exit(7)"
        ),
        7,
    ),
    "after the work": ("interrupts.begin_work()\ninterrupts.end_work()\npress()\ntime.sleep(60)", 130),
    "at the exit": ("import atexit\natexit.register(press)\nsys.exit(7)", 130),
    "in a thread that the exit waits for": (
        "import threading\nthreading.Thread(target=lambda: (press(), time.sleep(60))).start()\nsys.exit(7)",
        130,
    ),
    "after the last function of the exit": ("kept = Pressed()\nsys.exit(7)", 7),
}


def ended(program):
    """Programs in the background ignore Ctrl-C."""
    line = ["env", "--default-signal=INT", sys.executable, "-c", program]
    done = subprocess.run(line, capture_output=True, text=True, check=False, timeout=60)
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize("moment", MOMENTS)
def test_ctrl_c_has_one_outcome(moment):
    program, code = MOMENTS[moment]
    assert ended(HEAD + program) == (code, "", "")


@pytest.mark.parametrize("refused", ["_thread.start_new_thread", "os.pipe2"])
def test_a_command_starts_where_the_system_refuses_a_thread_or_a_file(refused, monkeypatch):
    """What needs one reports that itself."""

    def refuse(*_):
        raise RuntimeError("can't start new thread")

    for name in ("_arrived", "_wakeup"):
        monkeypatch.setattr(f"envpack.support.interruption.{name}", -1)
    monkeypatch.setattr(refused, refuse)
    before = signal.set_wakeup_fd(-1)
    repeat_unhandled()
    signal.set_wakeup_fd(before)


def test_ctrl_c_is_ignored_if_the_caller_ignores_it():
    program = "import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\n" + HEAD + "press()\nsys.exit(7)"
    assert ended(program) == (7, "", "")


def test_ctrl_c_in_text_that_exec_runs_has_the_same_outcome(tmp_path):
    """Only `python -m` ended by the signal, later."""
    body = (
        "interrupts.begin_work()\ntry:\n    exec('press()\\ntime.sleep(60)')\n"
        "except KeyboardInterrupt:\n    interrupts.end_work()\nsys.exit(7)"
    )
    (tmp_path / "pressed.py").write_text(HEAD + body)
    line = ["env", "--default-signal=INT", f"PYTHONPATH={tmp_path}", sys.executable, "-m", "pressed"]
    assert subprocess.run(line, check=False, timeout=60).returncode == 7


def test_other_errors_in_finalizers_are_still_reported():
    program = "class Broken:\n    def __del__(self):\n        raise ValueError('lost')\nBroken()\n"
    code, output, errors = ended(HEAD + program)
    assert (code, output) == (0, "")
    assert "ValueError: lost" in errors


def test_the_end_is_not_lost_in_a_finalizer():
    body = "interrupts.exit_on(signal.SIGTERM)\ninterrupts.begin_work()\nFile()\ntime.sleep(60)"
    assert ended(HEAD.replace("SIGINT", "SIGTERM") + body) == (128 + signal.SIGTERM, "", "")


def test_the_end_shows_no_traceback_in_a_program_of_the_background():
    ignored = "import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\n"
    body = "interrupts.exit_on(signal.SIGTERM)\ninterrupts.begin_work()\nPressed()\ntime.sleep(60)"
    assert ended(ignored + HEAD.replace("SIGINT", "SIGTERM") + body) == (128 + signal.SIGTERM, "", "")


def test_the_end_comes_once():
    body = (
        "interrupts.exit_on(signal.SIGTERM)\ninterrupts.begin_work()\n"
        "try:\n    press()\nfinally:\n    press()\n    print('cleaned up')"
    )
    assert ended(HEAD.replace("SIGINT", "SIGTERM") + body) == (128 + signal.SIGTERM, "cleaned up\n", "")
