"""Signals that become exceptions, once, and handlers that are restored."""

import os
import signal

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
