"""`envpack run`: where a model runs, what it reports of the run, and how it fails."""

import contextlib
import json
import math

import numpy as np
import pytest

from envpack.local.connection import MORE_TIME
from envpack.local.model_process import LogLine
from envpack.local.starting import Python
from envpack.settings.project import open_project
from envpack.settings.table import Settings
from envpack.support.errors import InputError, ServerError, UsageError
from envpack.testing import ModelError, model_run as module
from envpack.testing.model_run import run_model
from envpack.testing.opening import LocalModels
from envpack.verification.samples import SAMPLES_FILE
from tests.steps import Steps
from tests.unit.local.conftest import ECHO, Repository, numbers

LOGS = """
def initialize(arguments, decoupled, instance):
    pass

def execute(requests, stub):
    report = '{"instance": "m_0_0", "import_seconds": 0.001, "initialize_seconds": 0.002}'
    stub.log("envpack-stub " + report, 3)
    stub.log("careful", 1)
    stub.log("in detail", 3)
    return [out(request) for _, request in requests]
"""
# Writes the profile and memray's recording of a model's process to the files that it gets.
RECORDS = """
import json

def execute(requests, stub):
    wanted = json.loads(os.environ["ENVPACK_RUN"])
    stub.log(" ".join(sorted(wanted)))
    if "profile" in wanted:
        with open(wanted["profile"], "w") as file:
            json.dump([{"function": "slow", "seconds": 2.0}], file)
    if "memray" in wanted:
        with open(wanted["memray"], "wb") as file:
            file.write(b"allocations")
    return [out(request) for _, request in requests]
"""
ENSEMBLE = """platform: "ensemble"
input [ { name: "IN" data_type: TYPE_INT32 dims: [ -1 ] } ]
output [ { name: "OUT" data_type: TYPE_INT32 dims: [ -1 ] } ]
ensemble_scheduling { step [ {
  model_name: "m" model_version: -1
  input_map { key: "IN" value: "IN" } output_map { key: "OUT" value: "OUT" }
} ] }
"""
REASON = "m gives load_model() another configuration or files"
OVERRIDES = 'if 0:\n    pb_utils.load_model("m", config=json.dumps({}))\n'
CALLS = 'import triton_python_backend_utils as pb_utils\nr = pb_utils.InferenceRequest(model_name="steps")\n'


class Server:
    """In place of a runtime: what is known about it before it starts."""

    release, image = "24.10", ""


class Served(LocalModels):
    """Models that run here in place of a server, which has a log of its own."""

    ended = ()

    def logged(self, model, since):
        return [f"{model} from {since}"]

    def close(self):
        self.ended += ("close",)
        super().close()

    def kill(self):
        self.ended += ("kill",)
        super().kill()


@pytest.fixture
def repository(tmp_path, monkeypatch):
    found = Repository(tmp_path)
    monkeypatch.setattr("envpack.local.running.python_of", lambda *_: Python(found.stub, found.prefix))
    found.add("m")
    found.project = open_project(found.folder)
    return found


@pytest.fixture
def array(tmp_path):
    np.save(tmp_path / "in.npy", np.array([4, 5], np.int32))
    return [str(tmp_path / "in.npy")]


@pytest.fixture
def served(repository, monkeypatch):
    """A model that only a server runs, and a server for it; returns what was asked of the server."""
    repository.add("m", OVERRIDES + ECHO)
    asked = []

    def open_models(project, runtime, **options):
        with_server = Repository.server(repository)
        asked.append((project, runtime, options, Served(with_server, repository.logged)))
        return asked[-1][3]

    monkeypatch.setattr(module, "find_runtime", lambda project: Server())
    monkeypatch.setattr(module, "open_models", open_models)
    return asked


def test_a_run_reports_where_the_model_ran_what_it_answered_and_what_it_logged(repository, array):
    repository.add("m", LOGS)
    shown = []
    run = run_model(repository.project, "m", array, show=lambda *line: shown.append(line), repeat=2)
    (answer,) = run.trial.answers
    assert [numbers(response) for response in answer.responses] == [[4, 5]]
    assert (run.where, run.trial.ok, len(answer.seconds)) == ("locally, without a server", True, 2)
    assert shown == [("warning", "careful")] * 2, "neither verbose lines nor the stub's report"
    assert [(line.level, line.text, line.model) for line in run.log] == [("warning", "careful", "m")] * 2
    assert run.peak_memory > 1 << 20
    assert (run.functions, run.memory_record, run.saved) == ([], None, None)


def test_the_phases_of_a_life_add_up(repository, array):
    repository.add("m", LOGS)
    run = run_model(repository.project, "m", array, repeat=3)
    (answer,) = run.trial.answers
    assert list(run.phases) == ["start", "import", "initialize", "execute"]
    assert (run.phases["import"], run.phases["initialize"]) == (0.001, 0.002)
    assert run.phases["start"] == pytest.approx(run.trial.load_seconds - 0.003)
    assert run.phases["execute"] == pytest.approx(sum(answer.seconds))


def test_the_start_is_never_shorter_than_nothing(repository, array):
    repository.add("m", LOGS.replace("0.001", "1000.0"))
    assert run_model(repository.project, "m", array).phases["start"] == 0


def test_a_stub_that_reports_no_times_has_phases_without_them(repository, array):
    repository.add("m", LOGS.replace(', "import_seconds": 0.001, "initialize_seconds": 0.002', ""))
    run = run_model(repository.project, "m", array)
    assert (run.phases["import"], run.phases["initialize"]) == (0, 0)
    assert run.phases["start"] == run.trial.load_seconds


def test_without_a_report_there_are_no_phases(repository, array):
    assert run_model(repository.project, "m", array).phases == {}


def test_a_profile_and_a_record_of_memory_are_returned(repository, array, tmp_path):
    repository.add("m", RECORDS)
    run = run_model(repository.project, "m", array, profile=True, memory_record=tmp_path / "memory.bin")
    assert run.functions == [{"function": "slow", "seconds": 2.0}]
    assert run.memory_record == tmp_path / "memory.bin"
    assert run.memory_record.read_bytes() == b"allocations"
    assert [line.text for line in run.log] == ["memray profile"]


def test_an_environment_without_memray_leaves_no_record(repository, array, tmp_path):
    run = run_model(repository.project, "m", array, memory_record=tmp_path / "memory.bin")
    assert run.memory_record is None
    assert not (tmp_path / "memory.bin").exists()


def test_a_model_that_dies_is_started_again_for_the_next_request_only(repository, array):
    """Not for what is reported of it; and if it cannot be, that is the answer to the request."""
    (repository.folder / "two.json").write_text('{"data": [{"IN": [1]}, {"IN": [2]}]}')
    code = """
def initialize(arguments, decoupled, instance):
    if os.path.exists(FLAG):
        open(FLAG + "2", "w").close()
        raise ValueError("not twice")

def execute(requests, stub):
    open(FLAG, "w").close()
    os._exit(3)
"""
    repository.add("m", f"FLAG = {str(repository.folder / 'flag')!r}\n{code}")
    died = "the process of 'm' ended with status 3 while execute() was running"
    run = run_model(repository.project, "m", array)
    assert ([answer.fault for answer in run.trial.answers], run.peak_memory) == ([died], 0)
    assert not (repository.folder / "flag2").exists()
    (repository.folder / "flag").unlink()
    run = run_model(repository.project, "m", [str(repository.folder / "two.json")])
    assert [answer.fault for answer in run.trial.answers] == [died, "not twice"]


def test_a_debugger_has_all_the_time_that_it_needs(repository, array, monkeypatch):
    (repository.prefix / "lib/python3.10/site-packages/debugpy").mkdir(parents=True)
    repository.add("m", RECORDS)
    limits, found = [], module.local_server
    monkeypatch.setattr(module, "local_server", lambda *a, **o: limits.append(o["timeout"]) or found(*a, **o))
    run = run_model(repository.project, "m", array, debug_port=40_123, timeout=60)
    assert [line.text for line in run.log] == ["claim debug debugger"]
    run_model(repository.project, "m", array, profile=True, timeout=60)
    assert limits == [math.inf, 60]


def test_the_last_response_is_written_to_a_file(repository, array, tmp_path):
    run_model(repository.project, "m", array, output=tmp_path / "out.npz")
    with np.load(tmp_path / "out.npz") as saved:
        assert {name: saved[name].tolist() for name in saved} == {"OUT": [4, 5]}


def test_an_error_leaves_the_file_of_outputs_as_it_is(repository, array, tmp_path):
    repository.add("m", "def execute(requests, stub):\n    raise ValueError('broken')\n")
    (tmp_path / "out.npz").write_bytes(b"outputs of an earlier run")
    run = run_model(repository.project, "m", array, output=tmp_path / "out.npz")
    assert [answer.fault.splitlines()[0] for answer in run.trial.answers] == ["broken"]
    assert (tmp_path / "out.npz").read_bytes() == b"outputs of an earlier run"


def test_a_file_that_cannot_be_written_or_read_is_an_error_before_the_model_runs(repository, array, tmp_path):
    repository.add("m", "raise ValueError('loaded')")
    with pytest.raises(InputError, match="this folder does not exist"):
        run_model(repository.project, "m", array, output=tmp_path / "none/out.npz")
    with pytest.raises(InputError, match="cannot be read"):
        run_model(repository.project, "m", [str(tmp_path / "none.npy")])
    with pytest.raises(InputError) as raised:
        run_model(repository.project, "absent", array)
    assert raised.value.kind == "model-missing"


def test_what_was_sent_and_answered_becomes_samples(repository, array):
    run = run_model(repository.project, "m", array, save_sample=True)
    assert run.saved == repository.folder / "m" / SAMPLES_FILE
    content = json.loads(run.saved.read_text())
    assert [entry["IN"] for entry in content["data"]] == [[4, 5]]
    assert [entry["OUT"] for entry in content["validation_data"]] == [[4, 5]]
    again = run_model(repository.project, "m")  # the samples are what is sent without inputs
    assert (again.trial.samples.right, again.trial.samples.sent) == (1, 1)


def test_a_wrong_answer_becomes_no_sample(repository, array):
    repository.add("m", "def execute(requests, stub):\n    return [Response(error='bad') for _ in requests]\n")
    run = run_model(repository.project, "m", array, save_sample=True)
    assert (run.trial.ok, run.saved) == (False, None)
    assert not (repository.folder / "m" / SAMPLES_FILE).exists()


@pytest.mark.parametrize(
    ("code", "text", "hint"),
    [
        (
            "raise ValueError('boom\\n\\nAt:\\n  m.py(3): f')",
            "boom\n\nAt:\n  m.py(3): f",
            "correct the model; its own lines are named above",
        ),
        ("raise ValueError('no label')", "no label", "look for a fault in its files: `envpack inspect m`"),
        (
            "raise ModuleNotFoundError(\"ModuleNotFoundError: No module named 'pandas'\")",
            "ModuleNotFoundError: No module named 'pandas'",
            "pandas",
        ),
        (
            "raise FileNotFoundError(\"No such file or directory: '/models/m/1/model.py'\")",
            "No such file or directory: '/models/m/1/model.py'",
            "/m/1/model.py: begin its path with one of Path(__file__).parents; or serve the repository at /models: ",
        ),
        (
            "import os\n\ndef initialize(arguments, decoupled, instance):\n    os._exit(3)",
            "the process of 'm' ended with status 3 while initialize() was running",
            "find what ends the process with status 3: os._exit",
        ),
        (
            "import os\n\ndef initialize(arguments, decoupled, instance):\n    os.kill(os.getpid(), 9)",
            "the process of 'm' ended by SIGKILL while initialize() was running",
            "usually the kernel killed it because memory ran out",
        ),
        (
            "import threading\n\ndef initialize(arguments, decoupled, instance):\n    threading.Event().wait()",
            "the process of 'm' was ended: more than 3 s passed while initialize() was running; " + MORE_TIME,
            "find what blocks there",
        ),
    ],
)
def test_a_model_that_cannot_be_loaded_is_an_error_with_its_place_and_a_hint(repository, array, code, text, hint):
    repository.add("m", code)
    with pytest.raises(InputError) as raised:
        run_model(repository.project, "m", array, timeout=3)
    error = raised.value
    assert (error.kind, error.message, error.where) == ("model-failed", text, str(repository.folder / "m"))
    assert hint in error.hint


def test_weights_that_git_lfs_has_not_fetched_are_named(repository, array):
    repository.add("m", "raise ValueError('invalid load key')")
    (repository.folder / "m/weights.pkl").write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\n")
    with pytest.raises(InputError) as raised:
        run_model(repository.project, "m", array)
    hint = "m/weights.pkl: it is a git-lfs pointer, not the file itself; fetch the file: `git lfs pull`"
    assert (raised.value.message, hint in raised.value.hint) == ("invalid load key", True)


# Models that only a server runs


def test_a_model_that_only_a_server_runs_gets_one(served, repository, array):
    steps, shown, store = Steps(), [], object()
    run = run_model(
        *(repository.project, "m", array),
        progress=steps,
        show=lambda *line: shown.append(line),
        timeout=60,
        store=store,
    )
    ((project, runtime, options, models),) = served
    place = "on Triton 24.10, a process of this machine"
    assert (project, runtime.release, options) == (
        repository.project,
        "24.10",
        {"timeout": 60, "progress": steps, "store": store},
    )
    assert (run.where, steps.seen[0]) == (place, f"{place}, since {REASON}")
    assert run.log == [LogLine("info", "m from 0", "", "m")]
    assert shown == [("info", "m from 0")]
    assert (run.phases, run.peak_memory, models.ended) == ({}, 0, ("close",))
    assert [numbers(response) for response in run.trial.answers[0].responses] == [[4, 5]]


def test_an_interrupted_run_on_a_server_ends_it_at_once(served, repository, array, monkeypatch):
    def interrupt(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(module, "try_model", interrupt)
    with pytest.raises(KeyboardInterrupt):
        run_model(repository.project, "m", array)
    assert served[0][3].ended == ("kill", "close")


def test_an_interrupted_run_without_a_server_says_how_to_end_it_at_once(repository, array, monkeypatch):
    def interrupt(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(module, "try_model", interrupt)
    steps = Steps()
    with pytest.raises(KeyboardInterrupt):
        run_model(repository.project, "m", array, progress=steps)
    assert steps.seen == ["cancelled; Ctrl-C again ends the model at once"]


def test_a_model_that_is_called_can_be_the_reason_for_a_server(served, repository, array):
    repository.add("m")
    repository.add("steps", config=ENSEMBLE)
    repository.add("calls", CALLS + ECHO)
    steps = Steps()
    with contextlib.suppress(InputError):  # what stands for the server cannot import the code of a real model
        run_model(repository.project, "calls", array, progress=steps)
    assert steps.seen[0] == "on Triton 24.10, a process of this machine, since steps is an ensemble"


def test_a_server_that_is_named_is_used_for_any_model(served, repository, array, tmp_path):
    repository.add("m")
    steps = Steps()
    project = open_project(repository.folder, Settings(server=tmp_path / "triton"))
    run_model(project, "m", array, progress=steps)
    assert steps.seen[0] == "on Triton 24.10, a process of this machine, since --server names one"


def test_tools_for_a_model_without_a_server_are_refused_on_one(served, repository, array, tmp_path):
    for tools in ({"debug_port": 40_123}, {"profile": True}, {"memory_record": tmp_path / "memory.bin"}):
        with pytest.raises(UsageError) as raised:
            run_model(repository.project, "m", array, **tools)
        error = raised.value
        assert error.message == f"on a server, --debug, --profile and --memory cannot be used: {REASON}"
        assert (error.kind, error.hint) == ("usage", "leave them out, or use `envpack dev --debug`")
    assert served == []


def test_without_a_server_the_reason_for_one_is_named(served, repository, array, monkeypatch):
    monkeypatch.setattr(module, "find_runtime", lambda project: None)
    with pytest.raises(ServerError) as raised:
        run_model(repository.project, "m", array)
    error = raised.value
    assert (error.kind, error.hint) == ("server-missing", "envpack doctor says how to install one")
    assert error.message == f"a server is needed, and none can be started here: {REASON}"


def test_a_failure_on_a_server_keeps_its_own_hint(served, repository, array, monkeypatch):
    def fail(*_, **__):
        raise ModelError("no GPU", "start the server on a machine with one")

    monkeypatch.setattr(module, "try_model", fail)
    with pytest.raises(InputError, match="no GPU") as raised:
        run_model(repository.project, "m", array)
    assert (raised.value.message, raised.value.hint) == ("no GPU", "start the server on a machine with one")
    assert served[0][3].ended == ("close",)
