"""Signals that become exceptions, once, and handlers that are restored."""

import os
import signal
import subprocess
import sys

import pytest

from envpack.support.interruption import once_interruptible


@pytest.mark.parametrize(("number", "kind"), [(signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, SystemExit)])
def test_signals_become_exceptions_and_handlers_are_restored(number, kind):
    before, (woken, wake) = signal.getsignal(number), os.pipe()
    os.set_blocking(wake, False)
    earlier = signal.set_wakeup_fd(wake)
    with pytest.raises(kind), once_interruptible():
        signal.raise_signal(number)
    assert signal.getsignal(number) == before
    assert signal.set_wakeup_fd(earlier) == wake
    for descriptor in (woken, wake):
        os.close(descriptor)


def test_later_signals_do_not_disturb_the_end():
    ended = []
    with pytest.raises(KeyboardInterrupt), once_interruptible():
        try:
            signal.raise_signal(signal.SIGINT)
        finally:
            signal.raise_signal(signal.SIGTERM)
            ended.append("cleaned up")
    assert ended


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_signals_that_the_caller_ignores_stay_ignored(number):
    before = signal.signal(number, signal.SIG_IGN)
    try:
        with once_interruptible():
            signal.raise_signal(number)
    finally:
        assert signal.signal(number, before) == signal.SIG_IGN


# Sends itself a signal at one call after another of the block's own code, where Python looks for signals; prints the
# outcomes that are wrong.
AT_EVERY_CALL = """import signal, sys
from envpack.support import interruption

FILES = interruption.__file__, signal.__file__

class Outer(Exception):
    pass

def outer(*_):
    raise Outer

def at_call(number, place):
    count = 0

    def profile(frame, event, argument):
        nonlocal count
        if event == "c_return" and frame.f_code.co_filename in FILES:
            count += 1
            if count == place:
                sys.setprofile(None)
                signal.raise_signal(number)

    got = None
    sys.setprofile(profile)
    try:
        with interruption.once_interruptible():
            pass
    except (KeyboardInterrupt, SystemExit, Outer) as error:
        interruption.caught(error)
        got = type(error)
    finally:
        sys.setprofile(None)
    return count, got

for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
    signal.signal(number, outer)
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
    place, count = 0, 0
    while count == place:
        place += 1
        count, got = at_call(number, place)
        kept = {signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
        if kept != {outer} or (count == place) != (got is not None):
            print(number, place, got, kept)
    print(place > 10)
"""


def test_a_signal_at_any_moment_ends_the_block_and_leaves_no_handler():
    done = subprocess.run([sys.executable, "-c", AT_EVERY_CALL], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "True\n" * 3, "")


def test_a_program_that_catches_nothing_ends_by_the_signal():
    block = "from envpack.support.interruption import once_interruptible\nwith once_interruptible():\n"
    program = f"import os, signal\n{block}    os.kill(os.getpid(), signal.SIGINT)\n    signal.pause()"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr.splitlines()[-1]) == (-signal.SIGINT, "KeyboardInterrupt")
