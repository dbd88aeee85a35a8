"""Work that is done at once: every core is used, one failure does not stop the rest, an interruption stops it all."""

import itertools
import threading
from pathlib import Path

import pytest

from envpack.settings.releases import find_release
from envpack.stub import matrix
from envpack.stub.matrix import _run_in_threads, compile_stubs
from envpack.stub.recipe import Cell, Recipe, source_folder
from envpack.stub.target import StubTarget
from envpack.stub.toolchain import Toolchain
from envpack.support.errors import StubError
from envpack.support.processes import run
from envpack.support.progress import NoProgress

BROKEN = StubError("compile-failed", "broken", "mend it")


def _collect(work, jobs):
    outcomes = {}
    _run_in_threads(work, outcomes.__setitem__, jobs, NoProgress())
    return outcomes


@pytest.mark.parametrize(
    ("works", "jobs", "at_once", "cores"), [(1, 8, 1, 8), (2, 8, 2, 4), (3, 2, 2, 1), (3, 8, 3, 2), (5, 1, 1, 1)]
)
def test_the_cores_are_shared(works, jobs, at_once, cores):
    """As many run at once as may: the first of them wait for each other."""
    threads, given, outcomes = set(), set(), {}
    together, numbers = threading.Barrier(at_once), itertools.count()

    def work(jobs, progress):
        given.add(jobs)
        threads.add(threading.get_ident())
        if next(numbers) < at_once:
            together.wait(60)

    _run_in_threads(dict.fromkeys(range(works), work), outcomes.__setitem__, jobs, NoProgress())
    assert outcomes == dict.fromkeys(range(works))
    assert (len(threads), given) == (at_once, {cores})


def test_a_failure_does_not_keep_the_others_from_being_done():
    def fail(**_):
        raise BROKEN

    assert _collect({"a": fail, "b": lambda **_: "made"}, 1) == {"a": BROKEN, "b": "made"}


def test_details_and_ends_are_reported_in_the_thread_of_the_caller():
    details = []

    class Noted(NoProgress):
        def detail(self, text):
            details.append((text, threading.current_thread()))

    def work(jobs, progress):
        progress.begin("not reported")
        progress.detail("half")
        progress.end("not reported")

    _run_in_threads({"a": work}, lambda key, _: details.append((key, threading.current_thread())), 1, Noted())
    assert details == [("half", threading.main_thread()), ("a", threading.main_thread())]


@pytest.mark.parametrize("reason", [KeyboardInterrupt, ZeroDivisionError])
def test_an_interruption_stops_running_work_and_starts_nothing_more(reason):
    begun, ends, slow_begins = [], [], threading.Event()

    def slow(**_):
        begun.append("slow")
        slow_begins.set()
        try:
            run(["sleep", "600"], env={"PATH": "/usr/bin:/bin"})
        finally:
            ends.append("slow")

    def interrupted(key, _):
        raise reason

    with pytest.raises(reason):
        _run_in_threads(
            {"fast": lambda **_: slow_begins.wait(60), "slow": slow, "later": slow}, interrupted, 2, NoProgress()
        )
    assert begun == ends
    assert len(begun) <= 2


def test_a_bug_in_the_work_is_raised():
    with pytest.raises(KeyError):
        _collect({"a": lambda **_: {}["x"]}, 1)


TOOLS = Toolchain("system", ("c++",), "c++ 1.2", "x86_64")


def _recipe(minor, release=None):
    target = StubTarget(minor, "x86_64", Path("include"), Path(f"libpython{minor}.so.1.0"))
    return Recipe(Cell(target, (find_release(release),) if release else ()), TOOLS, source_folder())


def test_what_is_shared_is_compiled_once_and_its_failure_is_that_of_all_who_need_it(monkeypatch):
    cached, needy, other, single = _recipe("3.9"), _recipe("3.10"), _recipe("3.11"), _recipe("3.10", "24.10")
    shared, outcomes = [], {}

    def compile_shared(recipe, **_):
        shared.append(recipe.cell.release_names)
        if not recipe.cell.releases:
            raise BROKEN

    monkeypatch.setattr(matrix, "cached_stub", lambda recipe, **_: Path() if recipe == cached else None)
    monkeypatch.setattr(matrix, "compile_shared", compile_shared)
    monkeypatch.setattr(matrix, "build_from_recipe", lambda recipe, **_: f"stub for {recipe.cell.target.minor}")
    compile_stubs([cached, needy, other, single], outcomes.__setitem__, jobs=1)
    assert shared == [[], ["24.10"]]
    assert outcomes == {cached: "stub for 3.9", needy: BROKEN, other: BROKEN, single: "stub for 3.10"}
