"""Models on a running server: what becomes of a load, what the server has counted, and how it ends."""

import threading
import time

import pytest

from envpack.development import served as module
from envpack.development.models import ModelState
from envpack.development.served import Served
from envpack.support.errors import StubError
from tests.waiting import soon

from .fakes import LOGGED, FakeServer, running, write_model

MESSAGE = (
    "Failed to process the request(s) for model '{}', message: KeyError: 'x'\n\nAt:\n  {}/1/model.py(2): execute\n"
)


FRAMES = ("/srv/one/1/model.py:2 in execute",)


class Bench:
    """Two models on a server, and what is known of them."""

    def __init__(self, server, repository):
        self.server = server
        self.states = {name: ModelState(name) for name in ("one", "two")}
        self.changes, self.prepared, self.ended, self.fault = [], [], [], None
        self.served = Served(
            server,
            repository,
            self.states,
            lambda: self.changes.append(self.phases()),
            self._prepare,
            ended=self.ended.append,
            timeout=60,
        )

    def _prepare(self, name):
        self.prepared.append(name)
        if self.fault:
            raise self.fault

    def phases(self):
        return [state.phase for state in self.states.values()]

    def load(self, *names):
        self.served.load(names, time.monotonic())
        assert soon(self.served._loader.is_idle)
        self.served._loader.check()


@pytest.fixture
def bench(tmp_path):
    for name in ("one", "two"):
        write_model(tmp_path, name)
    with running(FakeServer(tmp_path)) as server:
        found = Bench(server, tmp_path)
        yield found
        found.served.end(now=True)
        found.served.join()


def test_models_are_loaded_one_after_the_other(bench):
    bench.states["one"].error = "an old one"
    bench.load("one", "two")
    assert bench.server.asked == ["load one", "load two"]
    assert bench.prepared == bench.ended == ["one", "two"]
    assert bench.changes == [["loading", "waiting"], ["ready", "waiting"], ["ready", "loading"], ["ready", "ready"]]
    for state in bench.states.values():
        assert (state.serves, state.loads, state.error, state.seconds > 0) == (True, 1, "", True)
    bench.load("one")
    assert [state.loads for state in bench.states.values()] == [2, 1]
    bench.load("unknown")  # it was removed in the meantime
    assert len(bench.server.asked) == 3


def test_a_load_that_fails_shows_the_models_code(bench, tmp_path):
    (tmp_path / "one/1/model.py").write_text("def initialize():\n    raise ValueError('boom')\n")
    reason = "load failed for model 'one': version 1 is at UNAVAILABLE state: Internal: ValueError: boom\n\nAt:\n"
    bench.server.errors["one"] = f"{reason}  /srv/one/1/model.py(2): initialize\n;\n"
    bench.load("one")
    state = bench.states["one"]
    assert (state.phase, state.serves, state.loads) == ("failed", False, 0)
    assert state.error.split("\n") == [
        "ValueError: boom",
        "one/1/model.py:2 in initialize",
        "    raise ValueError('boom')",
    ]
    del bench.server.errors["one"]
    bench.load("one")
    assert (state.phase, state.error, state.serves) == ("ready", "", True)


def test_a_load_has_a_limit_and_shows_where_the_model_stood(bench, monkeypatch):
    gate = bench.server.gates["one"] = threading.Event()
    bench.server.stubs["one"] = [5]
    ended = []

    def abort(_, model, spared):
        ended.append((model.name, set(spared)))
        return FRAMES

    monkeypatch.setattr(module, "abort_and_read_frames", abort)
    bench.served._timeout = 0.2
    bench.load("one", "two")
    gate.set()
    state = bench.states["one"]
    assert (state.phase, state.serves, ended) == ("failed", False, [("one", {5})]), "what it had goes on"
    assert state.error.split("\n") == [
        "not loaded after 0.2 s, and ended",
        "one/1/model.py:2 in execute",
        "    def execute(self, requests):",
        "--timeout allows more time",
    ]
    assert bench.states["two"].phase == "ready"


def test_a_folder_that_the_server_may_not_read_is_shown_with_what_to_do(bench):
    bench.server.errors["one"] = "failed to open directory /srv/one/1"
    bench.server.hidden = ("/srv/one/1",)
    bench.load("one")
    folder = bench.served._repository / "one"
    assert bench.states["one"].error.split("\n") == [
        "failed to open directory /srv/one/1",
        f"{folder}/1 can only be read by its owner or group, and the server runs as another user",
        f"chmod -R a+rX {folder}",
    ]


def test_what_cannot_be_prepared_is_shown(bench):
    bench.fault = StubError("compiler-missing", "no compiler", "install one", "/bin/cc")
    bench.load("one")
    assert (bench.states["one"].phase, bench.server.asked) == ("failed", [])
    assert bench.states["one"].error == "no compiler\n/bin/cc\nfix: install one"


def test_a_load_that_ends_with_its_server_is_no_fault_of_the_model(bench):
    bench.server.errors["one"] = "whatever"
    bench.server.dead = True
    bench.load("one")
    assert (bench.states["one"].phase, bench.states["one"].error) == ("loading", "")
    bench.served.look()
    assert bench.served.has_died


def test_a_load_whose_process_is_dead_is_given_up(bench, monkeypatch):
    dead = {3}
    monkeypatch.setattr(module, "dead_stubs", lambda server: frozenset(dead))
    monkeypatch.setattr(module, "_DEAD_SECONDS", 0.0)
    bench.server.gates["one"] = threading.Event()
    bench.served.load(["one"], time.monotonic())
    assert soon(lambda: bench.states["one"].phase == "loading" and bench.server.asked)
    for _ in range(3):
        bench.served.look()
    assert bench.served.lost == "", "that one was dead before"
    dead.add(7)
    bench.server.output += "Segmentation fault\n"
    bench.served.look()
    assert bench.served.lost == "", "the server may be about to notice it"
    bench.served.look()
    state = bench.states["one"]
    assert (state.phase, bench.served.lost) == ("failed", "one")
    assert state.error.splitlines()[0] == "the model's process ended during the load"
    assert "Segmentation fault" in state.error


def test_a_model_whose_stub_ends_is_loaded_again_but_not_for_ever(bench, monkeypatch):
    dead = {9}
    monkeypatch.setattr(module, "dead_stubs", lambda server: frozenset(dead))
    monkeypatch.setattr(bench.served, "_stubs", lambda name: frozenset({len(bench.server.asked)}))
    bench.load("one", "two")
    bench.served.look()
    assert bench.phases() == ["ready", "ready"], "that one was another's"
    state = bench.states["one"]
    for loads in range(1, module._MOST_DEATHS):
        assert (state.loads, state.serves) == (loads, True)
        dead.update(bench.served._stubs_of["one"])
        bench.served.look()
        assert ["failed", "ready"] in bench.changes
        assert soon(bench.served._loader.is_idle)
        assert bench.server.asked[-2:] == ["unload one", "load one"], "a server loads nothing that has not changed"
        bench.changes.clear()
    dead.update(bench.served._stubs_of["one"])
    bench.server.output += "Aborted"
    bench.served.look()
    said = "the model's process ended 10 times; save one of its files to load it again"
    assert (state.phase, state.serves, state.error.split("\n")) == ("failed", False, [said, "Aborted"])
    assert bench.served._loader.is_idle()
    bench.load("one")
    dead.update(bench.served._stubs_of["one"])
    bench.served.look()
    assert soon(lambda: (state.phase, state.error) == ("ready", "")), "a change begins anew"


def test_what_the_server_counts_is_shown_since_the_last_look(bench):
    bench.load("one")
    state = bench.states["one"]
    bench.server.counts["one"] = (4, 2_000_000_000, 1)
    bench.server.stubs["one"] = [7, 9]
    bench.server.stubs["two"] = [11]
    bench.served._ending.clear()
    bench.served.look()
    assert (state.requests, state.failures, state.latency, state.memory) == (4, 1, 0.5, (7000, 9000))
    assert 0 < state.per_second < 4 / 1e-3
    bench.server.counts["one"] = (6, 2_500_000_000, 2)
    bench.served.look()
    assert (state.requests, state.failures, state.latency) == (6, 2, 0.25)
    bench.served.look()
    assert (state.per_second, state.latency) == (0, 0)
    assert bench.states["two"].requests == 0, "only models that serve are counted"
    bench.load("one")
    assert (state.requests, state.failures) == (0, 0)
    assert not bench.served.has_died


def test_a_server_that_does_not_count_is_no_fault(bench):
    bench.load("one")
    bench.server.answer = lambda method, path: (404, {"error": "none"})
    bench.served.look()
    assert bench.states["one"].requests == 0


def test_instances_of_an_earlier_load_are_not_the_models_until_they_should_have_ended(bench, monkeypatch):
    bench.server.stubs["one"] = [7]
    bench.load("one")
    bench.server.stubs["one"] = [7, 9]
    bench.served.look()
    assert bench.states["one"].memory == (9000,)
    monkeypatch.setattr(module, "_ENDING_SECONDS", -1)
    bench.load("one")
    bench.served.look()
    assert bench.states["one"].memory == (7000, 9000)


def test_the_instances_of_a_load_that_failed_are_not_the_models(bench):
    bench.load("one")
    bench.server.stubs["one"] = [7]
    bench.served._ending.clear()

    def fail(method, path, answer=bench.server.answer):
        if path.endswith("/load"):
            bench.server.stubs["one"] = [7, 8]
            return 400, {"error": "failed"}
        return answer(method, path)

    bench.server.answer = fail
    bench.load("one")
    bench.served.look()
    assert (bench.states["one"].serves, bench.states["one"].memory) == (True, (7000,))


def test_errors_of_requests_are_shown_for_their_model(bench):
    bench.load("one", "two")
    for instance, folder, name in (("one_0", "/other", "one"), ("own", "/srv/two", "two")):
        bench.server.output += LOGGED.format(MESSAGE.format(instance, folder))
        bench.served.look()
        assert bench.states[name].request_error.startswith("KeyError: 'x'")
    assert "two/1/model.py:2 in execute" in bench.states["two"].request_error
    bench.states["one"].request_error = ""
    bench.served.look()
    assert bench.states["one"].request_error == "", "each is read once"
    bench.server.output += LOGGED.format(MESSAGE.format("unknown", "/other"))
    bench.served.look()
    bench.server.output += LOGGED.format(MESSAGE.format("one_0", "/srv/one"))
    bench.load("one")
    assert bench.states["one"].request_error == "", "it belongs to what ran before"


def test_a_longer_name_wins(bench):
    bench.states["one_two"] = ModelState("one_two")
    bench.server.output += LOGGED.format(MESSAGE.format("one_two_0", "/other"))
    bench.served.look()
    assert bench.states["one_two"].request_error
    assert not bench.states["one"].request_error


def test_a_model_that_waits_for_a_debugger_is_shown(bench):
    gate = bench.server.gates["one"] = threading.Event()
    bench.server.output = f"{module.WAITING}127.0.0.1:1, of an earlier load\n"
    bench.served.load(["one"], time.monotonic())
    assert soon(lambda: bench.server.asked)
    bench.served.look()
    assert bench.states["one"].phase == "loading"
    bench.server.output += f"{module.WAITING}127.0.0.1:1\n"
    bench.served.look()
    assert bench.states["one"].phase == "attaching"
    gate.set()
    assert soon(lambda: bench.states["one"].phase == "ready")


def test_a_model_that_changes_while_it_loads_blocks_others(bench):
    gate = bench.server.gates["one"] = threading.Event()
    bench.served.load(["one"], time.monotonic())
    assert soon(lambda: bench.server.asked)
    assert not bench.served.is_blocked(0)
    bench.served.load(["one"], time.monotonic())
    assert bench.served.is_blocked(0)
    assert not bench.served.is_blocked(3600)
    gate.set()


def test_a_model_that_is_gone_is_unloaded_and_not_loaded(bench):
    gate = bench.server.gates["one"] = threading.Event()
    bench.load("two")
    bench.served.load(["one", "two"], time.monotonic())
    assert soon(lambda: "load one" in bench.server.asked)
    bench.served.unload("two")
    assert not bench.states["two"].serves
    gate.set()
    assert soon(bench.served._loader.is_idle)
    assert bench.server.asked == ["load two", "load one", "unload two"]
    bench.server.answer = lambda method, path: (400, {"error": "it was never loaded"})
    bench.served.unload("one")


@pytest.mark.parametrize(
    ("code", "words"), [(0, "with status 0"), (3, "with status 3"), (-9, "by SIGKILL"), (-99, "by signal 99")]
)
def test_how_a_server_ended(bench, code, words):
    bench.server.code = code
    bench.server.output = "x" * (70 << 10)
    assert len(bench.served.log()) == 64 << 10
    bench.server.dead = code != 0
    bench.served.end(now=False)
    assert (bench.served.end_in_words, bench.served.has_died) == (words, code != 0)
    assert len(bench.served.last_output) == 64 << 10
    assert bench.server.stopped == [False]


def test_a_server_does_not_finish_while_a_model_loads(bench):
    gate = bench.server.gates["one"] = threading.Event()
    bench.served.load(["one", "two"], time.monotonic())
    assert soon(lambda: bench.server.asked)
    bench.served.end(now=False)
    gate.set()
    bench.served.join()
    assert bench.server.stopped == [True]
    assert bench.server.asked == ["load one"]


def test_a_debugged_model_is_released_before_it_is_loaded_again(bench):
    class Debugger:
        model = "one"

        def release(self, client, server):
            released.append((client, server))

    released = []
    bench.load("one")
    bench.served.release(Debugger())
    assert not bench.states["one"].serves
    assert released[0][1] is bench.server
    Debugger.model = "unknown"
    bench.served.release(Debugger())
    assert len(released) == 2


@pytest.mark.parametrize(
    ("code", "words"), [(0, "with status 0"), (3, "with status 3"), (-9, "by SIGKILL"), (-200, "by signal 200")]
)
def test_the_end_of_a_server_in_words(bench, code, words):
    assert bench.served.end_in_words == "with status 0"
    bench.server.code = code
    bench.served.end(now=True)
    assert bench.served.end_in_words == words


def test_a_server_is_stopped_at_once_if_it_is_busy_or_has_to_be(bench):
    bench.server.output = "x" * (module._LOG_BYTES + 1) + "end"
    bench.served.end(now=False)
    assert bench.server.stopped == [False]
    assert len(bench.served.last_output) == module._LOG_BYTES
    assert bench.served.last_output.endswith("end")
    bench.served.end(now=True)
    assert bench.server.stopped == [False, True]


def test_a_server_that_loads_is_stopped_at_once(bench):
    gate = bench.server.gates["one"] = threading.Event()
    bench.served.load(["one"], time.monotonic())
    assert soon(lambda: "load one" in bench.server.asked)
    bench.served.end(now=False)
    gate.set()
    assert bench.server.stopped == [True]


def test_files_that_a_model_has_open_are_those_of_its_instances(bench, tmp_path, monkeypatch):
    bench.server.stubs["one"] = [7, 9]
    opened = {7: ("/srv/one/log", "/srv/gone"), 9: ("/srv/one/data",), 11: ("/srv/two/x",)}
    monkeypatch.setattr(bench.server, "written_files", lambda pid: opened[pid], raising=False)
    places = {"/srv/one/log": tmp_path / "one/log", "/srv/one/data": tmp_path / "one/data"}
    monkeypatch.setattr(bench.server, "host_path", places.get, raising=False)
    assert bench.served.written_files("one") == set(places.values())


def test_an_unloaded_model_serves_no_more(bench):
    bench.load("one")
    assert bench.states["one"].serves
    bench.served.unload("one")
    assert (bench.states["one"].serves, bench.server.asked[-1]) == (False, "unload one")
