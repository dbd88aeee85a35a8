"""Verdicts on models that are loaded: from the load over each request to the first fault, on a server of words."""

import dataclasses
import json
import os
from pathlib import Path
from unittest.mock import Mock

import pytest

from envpack.inspection import BuildState
from envpack.repository import in_model_folder, open_model, point_to_environment
from envpack.server import RequestError, Tensor
from envpack.server.interface import Process
from envpack.server.kserve import IndexEntry, unfinished
from envpack.support.errors import InputError
from envpack.verification import answers, judge as judging
from envpack.verification.checks import concurrency
from envpack.verification.judge import Judge, JudgeOptions
from envpack.verification.loading import LoadResult
from envpack.verification.verdict import Failure, failed, unchecked
from tests.tables import every_row

ARGUMENTS = ("stub", "/srv/m/1/model.py", "region", "1", "1", "1", "/b", "336", "m_0_0", "DEFAULT")
STUB = Process(7, "triton_python_b", dead=False, arguments=ARGUMENTS)
TRACE = "ValueError: boom\n\nAt:\n  /srv/m/1/model.py(9): execute\n"


class Server:
    """A server with one stub; its log grows by what the client writes."""

    poll_seconds = 0.05

    def __init__(self):
        self.text, self.processes, self.mapped, self.given = "earlier\n", [STUB], (), {}

    def log_size(self):
        return len(self.text)

    def log(self, since=0):
        return self.text[since:]

    def ended(self):
        return False

    def model_at(self, folder):
        return folder.rpartition("/")[2]

    def children(self, of=None):
        return tuple(self.processes)

    def watched(self, pid):
        return ()

    def memory_bytes(self, pid):
        return 1 << 20

    def executable(self, pid):
        return ""

    def mapped_files(self, pid):
        return self.mapped

    def variables(self, pid):
        return self.given

    def host_path(self, place):
        return None

    def list_folder(self, folder):
        return ()

    def server_path(self, path):
        return "/srv/m"

    def abort(self, pid):
        self.processes = []


class Client:
    """A client whose model returns its input, or fails with ``error``."""

    def __init__(self, server, config, error=None, load_error=None):
        self._server, self._config, self._error, self._load_error = server, config, error, load_error
        self.sent = []

    def load(self, model, *, timeout):
        self._server.text += f"loading {model}\n"
        if self._load_error:
            raise RequestError(self._load_error, status=400)

    def index(self):
        return (IndexEntry("m", "READY", ""),)

    def of_version(self, version):
        self.version = version
        return self

    def config(self, model):
        return self._config

    def infer(self, model, inputs, *, binary=None, parameters=None):
        self.sent.append((inputs, parameters))
        if self._error:
            raise self._error
        (tensor,) = inputs
        return (Tensor("OUT", tensor.datatype, tensor.shape, tensor.data),)


CONFIG = {
    "input": [{"name": "IN", "data_type": "TYPE_FP32", "dims": [1]}],
    "output": [{"name": "OUT", "data_type": "TYPE_FP32", "dims": [1]}],
}


@pytest.fixture
def server():
    return Server()


def judge(server, *, config=CONFIG, error=None, load_error=None, **options):
    return Judge(server, Client(server, config, error, load_error), JudgeOptions(5.0, requests=1, **options))


def ids(verdict):
    return {check.id: check.status for check in verdict.checks}


def test_a_good_model(server, model):
    verdict = judge(server).judge(model)
    assert (verdict.name, verdict.ok, verdict.failure) == ("m", True, None)
    assert list(ids(verdict)) == ["load", "stub", "libpython", "user-site", "infer", "formats", "stability"]
    assert (verdict.stub.pid, verdict.latency.requests, verdict.samples) == (7, 1, None)
    assert verdict.log == ("loading m",)


class Versions(Client):
    """A client of a model with the versions 2, 9 and 10, of which some fail."""

    def __init__(self, server, broken=()):
        super().__init__(server, CONFIG)
        self.version, self.broken, self.asked = "", broken, []

    def index(self):
        states = {"2": "READY", "10": "READY", "9": "READY", "8": "UNAVAILABLE"}
        return (IndexEntry("other", "READY", "", "1"), *(IndexEntry("m", s, "", v) for v, s in states.items()))

    def infer(self, model, inputs, **options):
        self.asked += [self.version] if self.version not in self.asked[-1:] else []
        if self.version in self.broken:
            raise RequestError(TRACE, status=500)
        return super().infer(model, inputs, **options)


def test_every_served_version_is_asked_the_newest_first(server, model):
    client = Versions(server)
    verdict = Judge(server, client, JudgeOptions(5.0, requests=1)).judge(model)
    assert verdict.ok
    assert client.asked == ["", "9", "2"]
    said = [check.evidence.partition(" returned")[0] for check in verdict.checks if check.id == "infer"]
    assert said[1:] == ["version 9:", "version 2:"]


def test_an_older_version_that_fails_fails_the_model(server, model):
    client = Versions(server, broken=("9",))
    verdict = Judge(server, client, JudgeOptions(5.0, requests=1)).judge(model)
    assert client.asked == ["", "9"]
    assert (verdict.ok, verdict.failure.kind) == (False, "inference-failed")
    assert verdict.failure.reason == "version 9: ValueError: boom"


def test_answers_of_older_versions_may_differ_from_those_of_the_samples(server, model):
    with_samples(model, {"data": [{"IN": [3]}], "validation_data": [{"OUT": [3]}]})
    client = Versions(server)
    verdict = Judge(server, client, JudgeOptions(5.0, requests=1)).judge(model)
    assert [check.id for check in verdict.checks].count("infer") == 3
    assert [check.id for check in verdict.checks].count("expected") == 1


def test_inputs_too_large_to_make_up_are_told(server, model):
    giant = {**CONFIG, "input": [{"name": "IN", "data_type": "TYPE_FP32", "dims": [50_000, 50_000]}]}
    verdict = judge(server, config=giant).judge(model)
    (check,) = (check for check in verdict.checks if check.id == "infer")
    assert verdict.ok
    why = "config.pbtxt declares inputs too large to make up"
    assert check == unchecked("infer", f"not sent: {why}", "provide samples: m/envpack/smoke.json")
    assert not verdict.complete


def test_a_failed_load_is_the_only_check(server, model):
    judged = judge(server, load_error="failed to load 'm', " + TRACE)
    verdict = judged.judge(model)
    assert (verdict.ok, verdict.failure.kind, list(ids(verdict))) == (False, "load-failed", ["load"])
    assert verdict.failure.details == ("/srv/m/1/model.py:9 in execute",)
    assert verdict.checks[0].evidence == verdict.failure.reason
    assert not judged.stuck


def test_a_load_that_never_ends_blocks_the_server(server, model, monkeypatch):
    failure = Failure("load-timeout", "not loaded after 5 s")
    results = [LoadResult(5.0, failure, stuck=True), LoadResult(1.0, failure)]
    monkeypatch.setattr(judging, "load", lambda *_, **__: results.pop(0))
    judged = judge(server)
    assert judged.judge(model).failure == failure
    assert judged.stuck
    judged.judge(model)
    assert judged.stuck


def test_an_ensemble_of_a_faulty_member_is_not_loaded(server, model, tmp_path):
    (tmp_path / "all").mkdir()
    config = 'platform: "ensemble" ensemble_scheduling { step [ { model_name: "x" }, { model_name: "m" } ] }'
    (tmp_path / "all/config.pbtxt").write_text(config)
    judged = judge(server, load_error="failed")
    assert not judged.judge(model).ok
    verdict = judged.judge(open_model(tmp_path / "all"))
    assert (verdict.ok, verdict.failure.kind, verdict.checks) == (False, "step-failed", ())
    assert verdict.failure.reason == "its member m is not fit to serve"
    assert verdict.failure.fix == "correct m first"
    assert server.text.count("loading all") == 0


def test_an_ensemble_of_a_model_that_cannot_be_read_is_not_loaded(server, model, tmp_path):
    (tmp_path / "all").mkdir()
    config = 'platform: "ensemble" ensemble_scheduling { step [ { model_name: "m" } ] }'
    (tmp_path / "all/config.pbtxt").write_text(config)
    judged = judge(server)
    verdict = judged.reject(
        "m", InputError("not a number", kind="bad-config", where="m/config.pbtxt:3", hint="write one")
    )
    assert (verdict.ok, verdict.failure) == (
        False,
        Failure("bad-config", "m/config.pbtxt:3: not a number", (), "write one"),
    )
    assert judged.judge(open_model(tmp_path / "all")).failure.kind == "step-failed"
    assert "loading" not in server.text


NO_BACKEND = "Invalid argument: unable to find backend library for backend 'onnxruntime', try specifying runtime"


def foreign(folder):
    (folder / "far/1").mkdir(parents=True)
    (folder / "far/1/model.onnx").write_text("")
    return open_model(folder / "far", foreign=True)


def test_a_model_whose_backend_the_server_does_not_have_is_not_verified(server, tmp_path):
    verdict = judge(server, load_error=NO_BACKEND).judge(foreign(tmp_path))
    (check,) = verdict.checks
    assert (check.id, check.status) == ("load", "unchecked")
    assert check.evidence == 'not verified: this server has no backend "onnxruntime"'
    assert (verdict.ok, verdict.complete, verdict.is_verified, verdict.failure) == (True, False, False, None)


@every_row(
    ("load_error", "python"),
    [
        ("Internal: onnx runtime error 7: protobuf parsing failed", False),
        ("unable to find what the network needs", False),
        (NO_BACKEND, True),
    ],
)
def test_another_error_of_the_load_is_a_failure(load_error, python, tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    model = foreign(folder)
    model = dataclasses.replace(model, is_foreign=False, backend="python_3_8") if python else model
    verdict = judge(Server(), load_error=load_error).judge(model)
    assert (verdict.ok, verdict.is_verified) == (False, True)


def test_a_model_that_calls_an_unverified_one_and_fails_is_not_fully_checked(server, model, tmp_path):
    far = foreign(tmp_path)
    (model.folder / "1/model.py").write_text('pb_utils.InferenceRequest(model_name="far")')
    with_samples(model, {"data": [{"IN": [3]}]})
    failing = RequestError(TRACE, status=500)
    client = Client(server, CONFIG, failing)
    refuse = client.load

    def load(name, *, timeout):
        refuse(name, timeout=timeout)
        if name == "far":
            raise RequestError(NO_BACKEND, status=400)

    client.load = load
    judged = Judge(server, client, JudgeOptions(5.0, requests=1))
    alone = judged.judge(model)
    assert (alone.ok, alone.failure.kind) == (False, "inference-failed")
    judged = Judge(server, client, JudgeOptions(5.0, requests=1))
    judged.judge(far)
    verdict = judged.judge(model)
    assert (verdict.ok, verdict.complete, verdict.is_verified) == (True, False, True)
    (check,) = (check for check in verdict.checks if check.id == "infer")
    assert check.evidence.startswith('not verified: it runs or calls far, and this server has no backend "onnxruntime"')
    assert check.evidence.endswith("its answer: ValueError: boom")


def test_an_ensemble_has_no_process_to_check(server, tmp_path):
    (tmp_path / "all").mkdir()
    config = 'platform: "ensemble" ensemble_scheduling { step [ { model_name: "m" } ] }'
    (tmp_path / "all/config.pbtxt").write_text(config)
    client = Client(server, CONFIG)
    client.index = lambda: (IndexEntry("all", "READY", ""),)
    verdict = Judge(server, client, JudgeOptions(5.0, requests=1)).judge(open_model(tmp_path / "all"))
    assert (verdict.ok, verdict.stub, list(ids(verdict))) == (True, None, ["load", "infer", "formats"])


def test_a_model_without_a_process_is_a_fault(server, model):
    server.processes = []
    verdict = judge(server).judge(model)
    assert (verdict.ok, verdict.failure.kind, verdict.stub) == (False, "stub-died", None)
    assert "libpython" not in ids(verdict)


@pytest.mark.parametrize(
    ("mapped", "given", "kind"),
    [
        (("/e/lib/libpython3.9.so.1.0", "/f/lib/libpython3.10.so.1.0"), {}, "wrong-libpython"),
        (("/x/libz.so",), {}, "preload-missing"),
    ],
)
def test_the_first_failed_check_is_the_fault(server, model, mapped, given, kind):
    server.mapped, server.given = mapped, given
    verdict = judge(server, preload=(Path("/usr/lib/libtcmalloc.so.4"),)).judge(model)
    assert (verdict.ok, verdict.failure.kind) == (False, kind)
    bad = next(check for check in verdict.checks if check.status == "failed")
    assert (verdict.failure.reason, verdict.failure.fix) == (bad.evidence, bad.fix)


@pytest.mark.parametrize(
    ("check", "kind"),
    [
        ("stub", "stub-died"),
        ("numpy", "numpy-unsupported"),
        ("environment", "wrong-environment"),
        ("libpython", "wrong-libpython"),
        ("isolation", "not-isolated"),
        ("user-site", "user-site-leaks"),
        ("preload", "preload-missing"),
        ("infer", "bad-output"),
        ("formats", "formats-differ"),
        ("expected", "wrong-answers"),
        ("stability", "stub-died"),
    ],
)
def test_every_check_has_its_kind_of_fault(server, model, monkeypatch, check, kind):
    monkeypatch.setattr(Judge, "_process_checks", lambda *_: iter([failed(check, "why", "how")]))
    judged = judge(server)
    verdict = judged.judge(model)
    assert (verdict.ok, verdict.failure) == (False, Failure(kind, "why", (), "how"))
    assert judged.stuck == (kind == "stub-died")


def test_a_warning_is_no_fault(server, model):
    judged = Judge(
        server, Client(server, CONFIG), JudgeOptions(5.0), build_state=lambda _: BuildState("changed", "r", "f")
    )
    verdict = judged.judge(model)
    assert verdict.ok
    assert (verdict.checks[0].id, verdict.checks[0].status) == ("requirements", "warning")


def test_a_model_without_inputs_is_not_sent_a_request(server, model):
    verdict = judge(server, config={}).judge(model)
    assert (verdict.ok, ids(verdict)["infer"]) == (True, "unchecked")


DECOUPLED = {**CONFIG, "model_transaction_policy": {"decoupled": True}}


def streaming(monkeypatch, stream):
    """Every request to a decoupled model has this stream."""
    monkeypatch.setattr(answers, "stream", stream)
    monkeypatch.setattr(concurrency, "check_together", lambda *_: None)


def test_a_decoupled_model_is_judged_by_its_stream(server, model, monkeypatch):
    streaming(monkeypatch, lambda *_: [{"OUT": 1.0}])
    verdict = judge(server, config=DECOUPLED).judge(model)
    assert verdict.ok
    evidence = {check.id: check.evidence for check in verdict.checks}
    assert evidence["infer"] == "streamed 1 response; sent with every input"
    assert evidence["stability"].startswith("same processes")


@pytest.mark.parametrize(
    ("count", "frames", "fix"),
    [
        (0, (), f"{judging._SEND_FINAL}, or allow more time: --timeout"),
        (2, (), f"{judging._SEND_FINAL}, or allow more time: --timeout"),
        (2, ("m.py:5 in f",), f"{judging._SEND_FINAL}, or allow more time: --timeout; m.py:5 in f was running"),
        (0, ("m.py:5 in f",), "find what blocks in m.py:5 in f, or allow more time: --timeout"),
    ],
)
def test_a_stream_without_its_final_flag_is_the_cause(server, model, monkeypatch, count, frames, fix):
    streaming(monkeypatch, Mock(side_effect=unfinished(count, 5)))
    monkeypatch.setattr(judging, "abort_and_read_frames", lambda *_: frames)
    judged = judge(server, config=DECOUPLED)
    failure = judged.judge(model).failure
    assert (failure.kind, failure.fix) == ("inference-timeout", fix)
    assert failure.reason.startswith(f"{count} responses came within 5 s, and none with the final flag")
    assert judged.stuck


def with_changed_environment(model):
    environment = model.folder / "python3.8"
    environment.mkdir()
    (environment / "envpack-environment.json").write_text(json.dumps({"key": "key"}))
    listed = ["lib/x.py", "file", "x", 99, "0" * 64, "", ""]
    (environment / "envpack-files.json").write_text(json.dumps({"schema": 1, "files": [listed]}))
    point_to_environment(model, in_model_folder("python3.8"))
    return open_model(model.folder)


def test_a_model_whose_environment_is_not_as_built_is_unfit_and_the_file_is_named(server, model):
    verdict = judge(server).judge(with_changed_environment(model))
    assert (verdict.ok, verdict.failure.kind) == (False, "environment-changed")
    assert verdict.failure.reason == f"{model.folder}/python3.8: lib/x.py was changed or removed after the build"
    assert verdict.failure.fix == "run `envpack build m`"
    assert verdict.checks[-1].id == "files"


def test_what_a_model_raises_is_the_cause_although_its_environment_was_changed(server, model):
    model = with_changed_environment(model)
    with_samples(model, {"data": [{"IN": [3]}]})
    verdict = judge(server, error=RequestError(TRACE, status=500)).judge(model)
    assert (verdict.ok, verdict.failure.kind) == (False, "inference-failed")
    assert [check.id for check in verdict.checks if not check.ok] == ["infer", "files"]


def with_samples(model, content):
    (model.folder / "envpack").mkdir()
    (model.folder / "envpack/smoke.json").write_text(json.dumps(content))


def test_the_users_samples_are_sent_instead_of_ones(server, model):
    with_samples(model, {"data": [{"IN": [3]}, {"IN": [4]}], "validation_data": [{"OUT": [3]}, {"OUT": [4]}]})
    judged = judge(server)
    verdict = judged.judge(model)
    assert (verdict.ok, verdict.samples.right, verdict.samples.sent) == (True, 2, 2)
    assert list(ids(verdict)) == [
        "load", "stub", "libpython", "user-site", "infer", "formats", "expected", "stability",
    ]  # fmt: skip
    assert "sent with the first sample" in next(check for check in verdict.checks if check.id == "infer").evidence
    assert judged._client.sent[0] == ((Tensor("IN", "FP32", (1,), (3.0,)),), {})


@pytest.mark.parametrize(
    ("more", "data", "warned"),
    [
        ({}, [3, 3, 4], True),
        ({}, [3, 3], False),
        ({"validation_data": [{"OUT": [7]}] * 2}, [3, 4], False),
        (None, [], True),
    ],
    ids=["other inputs", "equal inputs", "expected", "generated"],
)
def test_numbers_that_do_not_depend_on_the_inputs_are_a_warning(server, model, monkeypatch, more, data, warned):
    monkeypatch.setattr(Client, "infer", lambda *_, **__: (Tensor("OUT", "FP32", (1,), (7.0,)),))
    if more is not None:
        with_samples(model, {"data": [{"IN": [number]} for number in data], **more})
    verdict = judge(server).judge(model)
    assert verdict.ok
    assert ids(verdict).get("constant") == ("warning" if warned else None)


def test_the_first_sample_of_a_sequence_is_sent_as_a_whole_sequence(server, model):
    with_samples(model, {"data": [[{"IN": [3]}, {"IN": [4]}]]})
    judged = judge(server, config={**CONFIG, "sequence_batching": {}})
    assert judged.judge(model).ok
    assert judged._client.sent[0][1] == {"sequence_id": 1, "sequence_start": True, "sequence_end": True}


def test_wrong_answers_are_a_fault(server, model):
    with_samples(model, {"data": [{"IN": [3]}], "validation_data": [{"OUT": [4]}]})
    verdict = judge(server).judge(model)
    assert (verdict.failure.kind, verdict.samples.right) == ("wrong-answers", 0)


@pytest.mark.timeout(30)
@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir, lambda path: os.symlink("nowhere", path)])
def test_samples_that_are_no_file_are_not_overlooked(server, model, make):
    (model.folder / "envpack").mkdir()
    make(model.folder / "envpack/smoke.json")
    verdict = judge(server).judge(model)
    assert (verdict.failure.kind, verdict.ok) == ("bad-samples", False)
    assert "cannot be read" in verdict.failure.reason


@pytest.mark.parametrize("name", ["a#b", "a%41", "m\u00f6d", "a^b"])
def test_a_model_that_no_request_can_name_is_not_loaded(server, model, name):
    verdict = judge(server).judge(dataclasses.replace(model, name=name))
    assert (verdict.failure.kind, verdict.ok) == ("bad-path", False)
    assert "requests by HTTP cannot name it" in verdict.failure.reason
    assert "loading" not in server.text


def test_a_sample_without_an_answer_ends_the_comparison(server, model):
    """Every other sample would take as long."""
    with_samples(model, {"data": [{"IN": [1]}, {"IN": [2]}, {"IN": [3]}]})

    late = []

    class Hangs(Client):
        def infer(self, model, inputs, **how):
            if inputs[0].data == (1.0,):
                return super().infer(model, inputs, **how)
            late.append(inputs[0].data)
            raise RequestError("no response within 4 s", timed_out=True)

    verdict = Judge(server, Hangs(server, CONFIG), JudgeOptions(5.0, requests=1)).judge(model)
    assert verdict.failure.kind == "inference-timeout"
    assert late == [(2.0,)]


def test_a_sample_that_fails_without_a_word_is_counted(server, model):
    with_samples(model, {"data": [{"IN": [1]}, {"IN": [2]}], "validation_data": [{"OUT": [1]}, {"OUT": [2]}]})

    class Silent(Client):
        def infer(self, model, inputs, **how):
            if inputs[0].data == (2.0,):
                raise RequestError("no reason given", status=400)
            return super().infer(model, inputs, **how)

    verdict = Judge(server, Silent(server, CONFIG), JudgeOptions(5.0, requests=1)).judge(model)
    assert (verdict.failure.kind, verdict.samples.right) == ("wrong-answers", 1)


def test_invalid_samples_are_a_fault_of_their_file(server, model):
    with_samples(model, {"data": []})
    verdict = judge(server).judge(model)
    assert verdict.failure.kind == "bad-samples"
    assert verdict.failure.reason == f"{model.folder}/envpack/smoke.json: invalid samples: data is empty"
    assert "perf_analyzer" in verdict.failure.fix
    assert verdict.checks[-1].status == "failed"


def test_outputs_of_another_type_are_a_fault(server, model):
    config = {**CONFIG, "output": [{"name": "OUT", "data_type": "TYPE_INT32", "dims": [1]}]}
    verdict = judge(server, config=config).judge(model)
    assert (verdict.failure.kind, list(ids(verdict))[-1]) == ("bad-output", "infer")


def test_an_exception_of_the_model_is_shown_with_its_lines(server, model):
    with_samples(model, {"data": [{"IN": [3]}]})
    judged = judge(server, error=RequestError(TRACE, status=500))
    verdict = judged.judge(model)
    failure = verdict.failure
    assert (failure.kind, failure.reason) == ("inference-failed", "ValueError: boom")
    assert failure.details == ("/srv/m/1/model.py:9 in execute",)
    assert verdict.checks[-1].evidence == failure.reason
    assert not judged.stuck


def test_an_exception_without_lines_shows_the_output(server, model):
    server.text = ""
    with_samples(model, {"data": [{"IN": [3]}]})
    judged = judge(server, error=RequestError("ValueError: boom", status=500))
    assert judged.judge(model).failure.details == ("loading m",)


def test_a_model_that_refuses_what_was_made_up_needs_a_sample(server, model):
    verdict = judge(server, error=RequestError(TRACE, status=500)).judge(model)
    assert (verdict.ok, verdict.complete, verdict.failure) == (True, False, None)
    check = verdict.checks[-1]
    assert (check.id, check.status) == ("infer", "unchecked")
    refused = "loads; needs a sample, since it refuses generated inputs: ValueError: boom"
    assert check.evidence == f"{refused}, at /srv/m/1/model.py:9 in execute"
    assert check.fix == "record one: envpack run m -i FILE --save-sample"


@pytest.mark.parametrize(
    "message",
    [
        "NameError: name 'x' is not defined",
        "ModuleNotFoundError: No module named 'torch'",
        "AttributeError: 'TritonPythonModel' object has no attribute 'net'",
        "AttributeError: module 'numpy' has no attribute 'float'",
        "TypeError: TritonPythonModel.execute() takes 1 positional argument but 2 were given",
        "in ensemble 'e', [request id: <id_unknown>] inference input 'IN' data-type is 'FP64', model 's' expects FP32",
        "c_python_backend_utils.TritonModelException: Failed for execute. Model 'stage1' is not ready.",
        "TritonModelException: the execute function has returned from execute without a final response",
    ],
)
def test_what_no_other_input_would_mend_is_the_models_fault(server, model, message):
    verdict = judge(server, error=RequestError(message, status=500)).judge(model)
    assert (verdict.ok, verdict.checks[-1].status) == (False, "failed")


@pytest.mark.parametrize(
    ("message", "fix"),
    [
        (TRACE, "correct the model's code at /srv/m/1/model.py:9"),
        (
            "ValueError: boom",
            "find in execute what answers with this error; compare the samples with the inputs in config.pbtxt",
        ),
    ],
)
def test_with_samples_the_fix_is_about_them(server, model, message, fix):
    with_samples(model, {"data": [{"IN": [3]}]})
    assert judge(server, error=RequestError(message, status=500)).judge(model).failure.fix == fix


def test_a_known_fault_has_its_own_kind_and_fix(server, model):
    failure = (
        judge(server, error=RequestError("OSError: [Errno 24] Too many open files", status=500)).judge(model).failure
    )
    assert failure.kind == "too-many-files"
    assert failure.fix == (
        "close files that the model no longer uses, or raise the server's limit: docker run --ulimit nofile=65536"
    )


def test_a_known_fault_in_the_models_code_is_told_with_its_line(server, model):
    raised = TRACE.replace("ValueError: boom", "PermissionError: [Errno 13] Permission denied: '/a'")
    failure = judge(server, error=RequestError(raised, status=500)).judge(model).failure
    assert failure.fix.startswith("/srv/m/1/model.py:9: the server runs as another user")


def test_a_stub_that_died_during_a_request_is_described(server, model):
    class Dies(Client):
        def infer(self, *_, **__):
            dead = Process(9, "triton_python_b", dead=True, arguments=(), status=11)
            self._server.processes = [STUB, dead]
            raise RequestError("Stub process 'm_0_0' is not healthy.", status=500)

    judged = Judge(server, Dies(server, CONFIG), JudgeOptions(5.0))
    failure = judged.judge(model).failure
    assert failure.reason == "Stub process 'm_0_0' is not healthy: it was ended by SIGSEGV"
    assert failure.kind == "stub-died"
    assert judged.stuck


def test_a_stub_that_was_dead_before_is_not_blamed(server, model):
    server.processes = [STUB, Process(9, "triton_python_b", dead=True, arguments=(), status=11)]
    error = RequestError("Stub process 'm_0_0' is not healthy.", status=500)
    assert judge(server, error=error).judge(model).failure.reason == "Stub process 'm_0_0' is not healthy."


def test_a_request_without_an_answer_blocks_the_server(server, model, monkeypatch):
    monkeypatch.setattr(judging, "abort_and_read_frames", lambda *_: ("/srv/m/1/model.py:5 in execute",))
    judged = judge(server, error=RequestError("no response within 30 s", timed_out=True))
    failure = judged.judge(model).failure
    assert failure.kind == "inference-timeout"
    assert failure.details == ("earlier", "loading m", "/srv/m/1/model.py:5 in execute")[1:]
    assert failure.fix == "find what blocks in /srv/m/1/model.py:5 in execute, or allow more time: --timeout"
    assert judged.stuck
    (model.folder / "1/model.py").write_text("pb_utils.InferenceRequest(model_name='m')")
    failure = judge(server, error=RequestError("no response", timed_out=True)).judge(model).failure
    assert "(a request to itself, or to a model that waits for it, is never answered)" in failure.fix
    (model.folder / "1/model.py").write_text("")
    monkeypatch.setattr(judging, "abort_and_read_frames", lambda *_: ())
    failure = judge(server, error=RequestError("no response", timed_out=True)).judge(model).failure
    assert failure.fix == (
        "find what blocks in execute, which must answer every request, or allow more time: --timeout"
    )


def test_a_server_that_ends_during_a_request_is_a_fault_of_its_own(server, model):
    failure = judge(server, error=RequestError("no response: refused")).judge(model).failure
    assert (failure.kind, failure.reason) == ("server-died", "the server ended during a request")
    assert failure.details == ("loading m",)
