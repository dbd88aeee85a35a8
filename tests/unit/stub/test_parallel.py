"""Work that is done at once: every core is used, one failure does not stop the rest, an interruption stops it all."""

import threading
import time

import pytest

from envpack.errors import StubError
from envpack.process import run
from envpack.progress import Silent
from envpack.stub.parallel import _at_once

BROKEN = StubError("broken", kind="compile-failed", hint="mend it")


def _collect(work, jobs):
    outcomes = {}
    _at_once(work, outcomes.__setitem__, jobs, Silent())
    return outcomes


@pytest.mark.parametrize(
    ("works", "jobs", "at_once", "cores"), [(1, 8, 1, 8), (2, 8, 2, 4), (3, 2, 2, 1), (3, 8, 3, 2), (5, 1, 1, 1)]
)
def test_the_cores_are_shared(works, jobs, at_once, cores):
    lock, now, most, given = threading.Lock(), [0], [0], set()

    def work(cores, _):
        with lock:
            given.add(cores)
            now[0] += 1
            most[0] = max(most[0], now[0])
        time.sleep(0.1)
        with lock:
            now[0] -= 1

    assert set(_collect(dict.fromkeys(range(works), work), jobs)) == set(range(works))
    assert (most[0], given) == (at_once, {cores})


def test_a_failure_does_not_keep_the_others_from_being_done():
    def fail(*_):
        raise BROKEN

    assert _collect({"a": fail, "b": lambda *_: "made"}, 1) == {"a": BROKEN, "b": "made"}


def test_details_and_ends_are_told_in_the_thread_of_the_caller():
    told = []

    class Noted(Silent):
        def detail(self, text):
            told.append((text, threading.current_thread()))

    def work(_, progress):
        progress.begin("not told")
        progress.detail("half")
        progress.end("not told")

    _at_once({"a": work}, lambda key, _: told.append((key, threading.current_thread())), 1, Noted())
    assert told == [("half", threading.main_thread()), ("a", threading.main_thread())]


@pytest.mark.parametrize("reason", [KeyboardInterrupt, ZeroDivisionError])
def test_an_interruption_ends_what_is_going_on_and_begins_nothing_more(reason):
    begun, ends = [], []

    def slow(*_):
        begun.append("slow")
        try:
            run(["sleep", "600"], env={"PATH": "/usr/bin:/bin"})
        finally:
            ends.append("slow")

    def interrupted(key, _):
        raise reason

    with pytest.raises(reason):
        _at_once({"fast": lambda *_: time.sleep(0.5), "slow": slow, "later": slow}, interrupted, 2, Silent())
    assert begun == ends
    assert len(begun) <= 2


def test_a_bug_in_the_work_is_raised():
    with pytest.raises(KeyError):
        _collect({"a": lambda *_: {}["x"]}, 1)
