"""A session: what is built and loaded when files change, and when its server is started again."""

import contextlib
import os
import shutil
import threading

import pytest

from envpack.development import session as module
from envpack.development.session import Session
from envpack.settings.project import open_project
from envpack.support.errors import EnvironmentBuildError, ServerError
from envpack.support.progress import NoProgress
from tests.waiting import soon

from .fakes import CODE, CONFIG, FakeServer, running, write_model

ENSEMBLE = """platform: "ensemble"
input [ { name: "IN" data_type: TYPE_FP32 dims: [ 1 ] } ]
output [ { name: "OUT" data_type: TYPE_FP32 dims: [ 1 ] } ]
ensemble_scheduling { step [ { model_name: "one" model_version: -1
  input_map { key: "IN" value: "IN" } output_map { key: "OUT" value: "OUT" } } ] }
"""


class Bench:
    """A session in a thread. Its builds and servers are noted."""

    def __init__(self, repository, monkeypatch):
        self.repository = repository
        self.built, self.servers, self.chosen, self.shown = [], [], [], 0
        self.errors, self.code = {}, 0
        self.stop = threading.Event()
        self.raised = None
        monkeypatch.setattr(module, "build_model", self._build)
        monkeypatch.setattr(module, "choose_runtime", self._choose)
        monkeypatch.setattr(module, "_LOOK_SECONDS", 0.1)
        monkeypatch.setattr(module, "_WRITE_SECONDS", 0.01)

    def _build(self, project, name, progress):
        self.built.append(name)
        if name in self.errors:
            raise self.errors[name]

    def _choose(self, spec, repository, models):
        self.chosen.append((spec, {model.name for model in models}))
        bench = self

        class Runtime:
            @contextlib.contextmanager
            def start(self, repository):
                server = FakeServer(repository, code=bench.code)
                bench.servers.append(server)
                with running(server):
                    yield server

        return Runtime()

    def _show(self):
        self.shown += 1

    def start(self, *names, **options):
        self.session = Session(
            open_project(self.repository),
            names,
            "process",
            show=self._show,
            progress=NoProgress(),
            **options,
        )
        self.thread = threading.Thread(target=self._run)
        self.thread.start()

    def _run(self):
        try:
            self.session.run(self.stop)
        except ServerError as error:
            self.raised = error

    def end(self):
        self.stop.set()
        for server in self.servers:
            for gate in server.gates.values():
                gate.set()
        self.thread.join(60)
        assert not self.thread.is_alive()

    @property
    def asked(self):
        return self.servers[-1].asked if self.servers else []

    def ready(self, *names):
        return soon(lambda: all(name in self.states and self.states[name].phase == "ready" for name in names))

    @property
    def states(self):
        return self.session.states


def completes(spec):
    """Whether the server lets models complete their configurations."""
    return "--disable-auto-complete-config" not in spec.said.server_arg


@pytest.fixture
def bench(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    found = Bench(tmp_path / "models", monkeypatch)
    write_model(found.repository, "one")
    yield found
    found.end()


def test_models_are_built_and_loaded_and_what_changes_is_loaded_again(bench):
    write_model(bench.repository, "e", ENSEMBLE)
    write_model(bench.repository, "two")
    bench.start()
    assert bench.ready("one", "two", "e")
    assert sorted(bench.built) == ["one", "two"]
    assert (set(bench.asked), bench.asked[-1]) == ({"load one", "load two", "load e"}, bench.asked[-1])
    assert bench.asked.index("load one") < bench.asked.index("load e")
    assert bench.session.url == bench.servers[0].url
    ((spec, models),) = bench.chosen
    assert (models, completes(spec), spec.said.port, spec.utilities) == ({"one", "two", "e"}, False, None, None)
    assert spec.variables == {"ENVPACK_LOG_FAILURES": "1"}
    bench.asked.clear()
    (bench.repository / "one/1/model.py").write_text(f"{CODE}# changed\n")
    assert soon(lambda: bench.states["one"].loads == 2 and bench.states["e"].loads == 2)
    assert bench.asked == ["load one", "load e"]
    assert len(bench.built) == 2, "a change of code needs no build"
    assert len(bench.servers) == 1
    assert bench.shown > 5


def test_a_change_of_requirements_is_built(bench):
    bench.start()
    assert bench.ready("one")
    (bench.repository / "one/requirements.txt").write_text("numpy\n")
    assert soon(lambda: bench.states["one"].loads == 2)
    assert bench.built == ["one", "one"]


def test_a_build_that_fails_is_shown_and_nothing_is_loaded(bench):
    bench.errors["one"] = EnvironmentBuildError("unresolvable", "no such package", "correct it", "one")
    bench.start()
    assert soon(lambda: bench.servers and bench.states["one"].phase == "failed")
    assert bench.states["one"].error == "no such package\none\nfix: correct it"
    del bench.errors["one"]
    (bench.repository / "one/1/model.py").write_text(f"{CODE}# changed\n")
    assert bench.ready("one")
    assert bench.built == ["one", "one"], "a model that was never built is built with the next change"


def test_a_model_whose_last_build_failed_is_built_with_the_next_change(bench):
    """Although it was built before: what its environment holds is not what it requires."""
    bench.start()
    assert bench.ready("one")
    bench.errors["one"] = EnvironmentBuildError("unresolvable", "no such package", "correct it")
    (bench.repository / "one/requirements.txt").write_text("none-such\n")
    assert soon(lambda: bench.states["one"].phase == "failed")
    del bench.errors["one"]
    (bench.repository / "one/1/model.py").write_text(f"{CODE}# changed\n")
    assert soon(lambda: bench.states["one"].loads == 2)
    assert bench.built == ["one", "one", "one"]


def test_a_model_whose_environment_was_removed_is_built_with_the_next_change(bench):
    own = '"EXECUTION_ENV_PATH" value { string_value: "$$TRITON_MODEL_DIRECTORY/python3.10" }'
    write_model(bench.repository, "one", f"{CONFIG}parameters {{ key: {own} }}\n")
    (bench.repository / "one/python3.10").mkdir()
    bench.start()
    assert bench.ready("one")
    (bench.repository / "one/python3.10").rmdir()
    (bench.repository / "one/1/model.py").write_text(f"{CODE}# changed\n")
    assert soon(lambda: bench.built == ["one", "one"])


def test_a_wrong_configuration_is_shown_until_it_is_right(bench):
    bench.start()
    assert bench.ready("one")
    (bench.repository / "one/config.pbtxt").write_text("nonsense")
    assert soon(lambda: bench.states["one"].phase == "failed")
    assert "config.pbtxt" in bench.states["one"].error
    (bench.repository / "one/config.pbtxt").write_text(CONFIG)
    assert bench.ready("one")
    assert bench.built == ["one"]


def test_models_that_come_and_go_are_noticed(bench):
    bench.start()
    assert bench.ready("one")
    write_model(bench.repository, "two")
    assert bench.ready("two")
    assert bench.built == ["one", "two"]
    shutil.rmtree(bench.repository / "two")
    assert soon(lambda: "two" not in bench.states)
    assert "unload two" in bench.asked
    assert list(bench.states) == ["one"]
    write_model(bench.repository, "two")
    assert bench.ready("two")
    assert bench.states["two"].own_writes == ()


def test_only_the_named_models_are_loaded(bench):
    write_model(bench.repository, "two")
    bench.start("two")
    assert bench.ready("two")
    assert (list(bench.states), bench.built) == (["two"], ["two"])
    shutil.rmtree(bench.repository / "two")
    assert soon(lambda: bench.states["two"].phase == "removed")
    assert "unload two" in bench.asked


def test_a_change_of_the_settings_builds_everything(bench):
    bench.start()
    assert bench.ready("one")
    (bench.repository / "envpack.toml").write_text("unknown = 1\n")
    assert soon(lambda: "envpack.toml" in bench.session.trouble)
    (bench.repository / "envpack.toml").write_text('served_from = "/srv"\n')
    assert soon(lambda: bench.session.trouble == "")
    assert soon(lambda: len(bench.built) >= 3)
    assert bench.session._project.of().served_from == "/srv"


def test_settings_that_change_while_they_are_read_are_read_again(bench, monkeypatch):
    bench.start()
    assert bench.ready("one")
    file, texts = bench.repository / "envpack.toml", ['served_from = "/later"\n']

    def read(*words):
        project = open_project(*words)
        if texts and project.of().served_from == "/srv":
            file.write_text(texts.pop())
        return project

    monkeypatch.setattr(module, "open_project", read)
    file.write_text('served_from = "/srv"\n')
    assert soon(lambda: bench.session._project.of().served_from == "/later", seconds=20)


def test_a_model_that_can_complete_its_configuration_needs_another_server(bench):
    bench.start()
    assert bench.ready("one")
    code = CODE.replace("execute", "auto_complete_config")
    (bench.repository / "one/1/model.py").write_text(code)
    assert soon(lambda: len(bench.servers) == 2)
    assert bench.ready("one")
    assert [completes(spec) for spec, _ in bench.chosen] == [False, True]
    assert bench.chosen[1][0].said.port == int(bench.servers[0].url.rpartition(":")[2])
    assert bench.servers[0].stopped == [True]
    (bench.repository / "one/1/model.py").write_text(CODE)
    assert soon(lambda: bench.states["one"].loads >= 2)
    assert len(bench.servers) == 2, "a server that completes stays"


def test_a_server_that_ends_is_started_again_three_times(bench):
    bench.code = -9
    bench.start()
    for number in range(1, 4):
        assert soon(lambda count=number: len(bench.servers) == count and "load one" in bench.servers[-1].asked)
        bench.servers[-1].output = f"first line\nlast words {number}\n"
        bench.servers[-1].dead = True
        if number < 3:
            words = (
                f"the server ended by SIGKILL, and was started again; its last lines:\nfirst line\nlast words {number}"
            )
            assert soon(lambda text=words: bench.session.trouble == text), bench.session.trouble
    bench.thread.join(60)
    assert bench.raised.kind == "server-ended"
    assert bench.raised.message.startswith(
        "the server ended 3 times in a row, the last time by SIGKILL; its last lines:"
    )
    assert "last words 3" in bench.raised.message
    assert len(bench.servers) == 3


def test_a_change_ends_the_count_of_deaths(bench):
    bench.code = 1
    bench.start()
    for number in range(1, 6):
        assert soon(lambda count=number: bench.states["one"].loads == 2 * count - 1)
        (bench.repository / "one/1/model.py").write_text(f"{CODE}# {number}\n")
        assert soon(lambda count=number: bench.states["one"].loads == 2 * count)
        assert soon(lambda: bench.session.trouble == ""), bench.session.trouble
        bench.servers[-1].dead = True
    assert bench.raised is None


def test_a_long_life_ends_the_count_of_deaths(bench, monkeypatch):
    monkeypatch.setattr(module, "_LONG_LIFE", -1)
    bench.start()
    for number in range(1, 6):
        assert soon(lambda count=number: len(bench.servers) == count)
        bench.servers[-1].dead = True
    assert soon(lambda: len(bench.servers) == 6)
    monkeypatch.setattr(module, "_LONG_LIFE", 60.0)
    bench.servers[-1].dead = True  # the second in a row
    assert soon(lambda: len(bench.servers) == 7)


def test_a_load_that_takes_too_long_ends_when_its_model_changes(bench, monkeypatch):
    monkeypatch.setattr(module, "_PATIENCE", 0.2)
    bench.start()
    assert bench.ready("one")
    gate = bench.servers[0].gates["one"] = threading.Event()
    (bench.repository / "one/1/model.py").write_text(f"{CODE}# hangs\n")
    assert soon(lambda: bench.states["one"].phase == "loading")
    (bench.repository / "one/1/model.py").write_text(f"{CODE}# returns\n")
    assert soon(lambda: bench.servers[0].stopped)
    gate.set()
    assert soon(lambda: len(bench.servers) == 2)
    assert bench.ready("one")
    assert bench.servers[0].stopped == [True]


def test_the_end_lets_models_finish(bench):
    bench.start()
    assert bench.ready("one")
    bench.servers[0].output = "the log"
    assert bench.session.log() == "the log"
    bench.end()
    assert bench.servers[0].stopped == [False]
    assert (bench.raised, bench.session.log()) == (None, "")


def test_the_model_that_is_debugged_is_prepared_before_each_load(bench, monkeypatch):
    class Debugger:
        model = "one"

        def __init__(self):
            self.calls = []

        def variables(self):
            return {"ENVPACK_DEBUG": "settings"}

        def release(self, client, server):
            self.calls.append("release")

        def prepare(self, model, python, progress):
            self.calls.append(("prepare", model.name, python()))

    monkeypatch.setattr(module, "python_of", lambda project, model, progress: f"python of {model.name}")
    write_model(bench.repository, "two")
    debugger = Debugger()
    bench.start(debugger=debugger)
    assert bench.ready("one", "two")
    assert debugger.calls == ["release", ("prepare", "one", "python of one")]
    spec, _ = bench.chosen[0]
    assert spec.variables == {"ENVPACK_LOG_FAILURES": "1", "ENVPACK_DEBUG": "settings"}
    assert spec.utilities == module.UTILITIES
    assert os.path.exists(module.UTILITIES)
    bench.end()
    assert bench.servers[0].stopped == [True], "a request that stands at a breakpoint is not waited for"


def test_a_model_that_is_wrong_from_the_beginning_is_built_once_it_is_right(bench):
    write_model(bench.repository, "two", "nonsense")
    bench.start()
    assert bench.ready("one")
    assert soon(lambda: bench.states["two"].phase == "failed")
    assert (bench.built, "load two" in bench.asked) == (["one"], False)
    (bench.repository / "two/config.pbtxt").write_text(CONFIG)
    assert bench.ready("two")
    assert bench.built == ["one", "two"]


def test_a_model_that_comes_during_a_build_is_not_loaded_before_its_own(bench):
    bench.start()
    assert bench.ready("one")
    assert bench.session._may_load("one")
    assert not bench.session._may_load("two")


def test_a_model_whose_load_was_given_up_is_loaded_again_once_it_changes(bench):
    bench.start()
    assert bench.ready("one")
    bench.session._lost.add("one")
    assert not bench.session._may_load("one")
    (bench.repository / "one/1/model.py").write_text(f"{CODE}# changed\n")
    assert soon(lambda: bench.states["one"].loads == 2)
    assert bench.session._lost == set()


def test_what_is_wrong_beside_a_model_is_said_in_lines(bench):
    bench.start()
    assert bench.ready("one")
    assert bench.session.trouble == ""
    bench.session._fault, bench.session._death = "a setting", ""
    assert bench.session.trouble == "a setting"
    bench.session._death = "the server"
    assert bench.session.trouble == "a setting\nthe server"


def test_settings_are_read_again_and_wrong_ones_change_nothing(bench):
    (bench.repository / "envpack.toml").write_text('served_from = "/one"\n')
    bench.start()
    assert bench.ready("one")
    session, bench.built[:] = bench.session, []
    assert session._project.of().served_from == "/one"
    (bench.repository / "envpack.toml").write_text("unknown = 1\n")
    assert soon(lambda: "unknown key" in session.trouble and bench.built == ["one"])
    assert session._project.of().served_from == "/one"
    (bench.repository / "envpack.toml").write_text('served_from = "/two"\n')
    assert soon(lambda: session.trouble == "" and session._project.of().served_from == "/two")
    assert session._finder.project is session._project
    assert soon(lambda: bench.built == ["one", "one"])


def test_ctrl_c_ends_the_session_and_lets_models_finish(bench, monkeypatch):
    def interrupted(session, served, stop):
        assert soon(served._loader.is_idle)
        raise KeyboardInterrupt

    monkeypatch.setattr(module.Session, "_follow", interrupted)
    bench.start()
    bench.thread.join(60)
    assert (len(bench.servers), bench.servers[0].stopped, bench.raised) == (1, [False], None)
