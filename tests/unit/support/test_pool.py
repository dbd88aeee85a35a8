"""Requests side by side: they end with Ctrl-C, and the first failure ends the others."""

import threading
from functools import partial
from types import SimpleNamespace

import pytest

from envpack.support import pool as module
from envpack.support.pool import Pool, in_background, interruptible, transfer_all
from envpack.support.processes import run, stoppable
from envpack.support.progress import NoProgress


class Bytes(NoProgress):
    def __init__(self):
        self.seen = []

    def advance(self, done, total, unit, *, size=0):
        self.seen.append((done, total, unit, threading.current_thread().name))


def test_each_task_reports_its_bytes_in_the_callers_thread():
    progress, done = Bytes(), []

    def task(number):
        def run(report):
            report(number)
            report(number)
            return f"result {number}"

        return run

    transfer_all(
        [task(1), task(2), task(4)], total=10, threads=2, progress=progress, done=lambda *found: done.append(found)
    )
    assert sorted(done) == [(0, "result 1"), (1, "result 2"), (2, "result 4")]
    assert progress.seen[-1] == (10, 10, "bytes", threading.current_thread().name), "no more than there is"
    assert [count for count, *_ in progress.seen] == sorted(count for count, *_ in progress.seen)


def test_the_first_failure_cancels_what_has_not_begun(monkeypatch):
    monkeypatch.setattr(module, "_PAUSE", 0.01)
    begun, go_on = [], threading.Event()

    def fail(report):
        begun.append("fail")
        raise ValueError("failed")

    def wait(report):
        begun.append("wait")
        interruptible(lambda: go_on.wait(60))

    def never(report):
        begun.append("never")

    with pytest.raises(ValueError, match="failed"):
        transfer_all([wait, fail, never, never], total=1, threads=2, progress=NoProgress(), done=lambda *_: None)
    go_on.set()
    assert begun.count("never") < 2
    assert {"wait", "fail"} <= set(begun)


def test_a_request_that_nobody_waits_for_any_more_is_given_up(monkeypatch):
    monkeypatch.setattr(module, "_PAUSE", 0.01)
    begun, go_on = threading.Event(), threading.Event()

    def request():
        begun.set()
        go_on.wait(60)

    with pytest.raises(ValueError, match="ended"), Pool(1) as pool:
        waiting = pool.submit(interruptible, request)
        assert begun.wait(60)
        raise ValueError("ended")
    assert isinstance(waiting.exception(), KeyboardInterrupt)
    go_on.set()


def test_a_signal_ends_the_wait_for_an_answer(monkeypatch):
    monkeypatch.setattr(module, "_PAUSE", 0.01)
    go_on = threading.Event()

    def stopped():
        raise KeyboardInterrupt

    monkeypatch.setattr(module, "raise_if_stopped", stopped)
    with pytest.raises(KeyboardInterrupt):
        interruptible(lambda: go_on.wait(60))
    go_on.set()
    monkeypatch.setattr(module, "raise_if_stopped", lambda: None)
    assert interruptible(lambda: 7) == 7
    with pytest.raises(OSError, match="broken"):
        interruptible(broken)


def broken():
    raise OSError("broken")


def test_a_pool_ends_with_the_block_around_it():
    with stoppable() as programs, Pool(1) as pool:
        running = pool.submit(partial(run, ["sleep", "600"], env={"PATH": "/usr/bin:/bin"}))
        programs.stop()
        with pytest.raises(KeyboardInterrupt):
            running.result(60)
    with Pool(1) as pool:
        assert pool.submit(partial(run, ["true"], env={"PATH": "/usr/bin:/bin"})).result(60).returncode == 0


def test_the_variables_of_this_python_are_read_before_threads_need_them(monkeypatch):
    """Else two threads that start uv first can fail, since uv's package puts its name together of them."""
    read = []
    monkeypatch.setattr(
        module, "sysconfig", SimpleNamespace(get_config_vars=lambda: read.append(threading.get_ident()))
    )
    with Pool(1):
        assert read == [threading.get_ident()]
    in_background(int, "").result()
    assert read == [threading.get_ident()] * 2
