"""Verdicts on models that are loaded, on a server of words: loads, versions, processes, backends and environments."""

import dataclasses
import json
from pathlib import Path

import pytest

from envpack.inspection.state import BuildState
from envpack.repository.model import open_model
from envpack.repository.placement import in_model_folder, point_to_environment
from envpack.server.kserve import IndexEntry, RequestError
from envpack.server.tensors import Tensor
from envpack.support.errors import InputError
from envpack.verification import judge as judging
from envpack.verification.checks import process
from envpack.verification.judge import Judge, JudgeOptions
from envpack.verification.loading import LoadResult
from envpack.verification.verdict import CHECKS, Failure, failed, unchecked
from tests.tables import every_row
from tests.unit.verification.words import CONFIG, TRACE, Client, Server, ids, judge, with_samples


def test_a_good_model(server, model):
    verdict = judge(server).judge(model)
    assert (verdict.name, verdict.ok, verdict.failure) == ("m", True, None)
    assert ids(verdict).keys() >= {"load", "stub", "libpython", "user-site", "infer", "formats", "stability"}
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


def test_longer_and_foreign_inputs_are_sent_to_the_newest_version_alone(server, model):
    strings = {"data_type": "TYPE_STRING", "dims": [-1]}
    client = Versions(server)
    client._config = {"input": [{"name": "IN", **strings}], "output": [{"name": "OUT", **strings}]}
    refused = "UnicodeDecodeError: 'ascii' codec can't decode byte 0xc3 in position 5"

    def infer(model, inputs, **options):
        client.sent.append((client.version, inputs[0].data))
        if not inputs[0].data[0].isascii() or len(inputs[0].data) > 1:
            raise RequestError(refused, status=500)
        return (Tensor("OUT", "BYTES", inputs[0].shape, inputs[0].data),)

    client.infer = infer
    verdict = Judge(server, client, JudgeOptions(5.0, requests=1)).judge(model)
    assert (verdict.ok, verdict.failure) == (True, None)
    assert [check.status for check in verdict.checks if check.id in ("lengths", "text")] == ["warning"] * 2
    assert {version for version, data in client.sent if len(data) > 1 or not data[0].isascii()} == {""}


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


OF_THE_SERVER = "failed to load 'm', failed to poll from model repository"
STATE = "load failed for model 'm': version 1 is at UNAVAILABLE state: Internal: "
IN_THE_MODEL = STATE + "{}\n\nAt:\n  /srv/m/1/model.py(9): initialize\n;\n"
# An error of a load, and the kind, reason and fix of the failure.
LOAD_ERRORS = {
    "the server's": (OF_THE_SERVER, "bad-config", OF_THE_SERVER, "correct config.pbtxt"),
    "an exception with its words": (
        IN_THE_MODEL.format("RuntimeError: the consumer failed to poll topic 'a'"),
        *("load-failed", "RuntimeError: the consumer failed to poll topic 'a'"),
        "correct the model's code at /srv/m/1/model.py:9",
    ),
    "an exception about another model": (
        IN_THE_MODEL.format(f"c_python_backend_utils.TritonModelException: {OF_THE_SERVER}"),
        *("load-failed", f"c_python_backend_utils.TritonModelException: {OF_THE_SERVER}"),
        "correct the model's code at /srv/m/1/model.py:9",
    ),
}


@every_row("name", LOAD_ERRORS)
def test_a_configuration_is_wrong_only_if_the_server_cannot_read_it(server, model, name):
    error, *expected = LOAD_ERRORS[name]
    failure = judge(server, load_error=error).judge(model).failure
    assert [failure.kind, failure.reason, failure.fix] == expected


def test_a_load_that_never_ends_blocks_the_server(server, model, monkeypatch):
    failure = Failure("load-timeout", "not loaded after 5 s")
    results = [LoadResult(5.0, failure, stuck=True), LoadResult(1.0, failure)]
    monkeypatch.setattr(judging, "load_model", lambda *_, **__: results.pop(0))
    judged = judge(server)
    assert judged.judge(model).failure == failure
    assert judged.stuck
    judged.judge(model)
    assert judged.stuck


def test_another_server_gets_what_is_fit_to_serve_and_waits_for_nothing(server, model, monkeypatch):
    loaded = []
    judged = judge(server)
    assert judged.judge(model).ok
    monkeypatch.setattr(judging, "load_model", lambda *_, **__: LoadResult(5.0, Failure("x", "never"), stuck=True))
    other = dataclasses.replace(model, name="hangs")
    for _ in range(2):
        judged.judge(other)
    assert judged.stuck == 1, "models are counted, not attempts"
    other_client = Versions(server)
    other_client.load = lambda name, timeout: loaded.append((name, timeout))
    judged.go_on_in(server, other_client)
    assert (loaded, judged.stuck, judged.is_alone) == ([], 0, True)
    (other.folder / "1/model.py").write_text("pb_utils.InferenceRequest(model_name='m')")
    judged.judge(dataclasses.replace(other, name="calls"))
    assert (loaded, judged.is_alone) == ([("m", 5.0)], False)


@pytest.mark.parametrize(("status", "kind"), [(500, "too-many-files"), (0, "server-died")])
def test_a_server_that_cannot_list_what_it_has_loaded_has_not_ended(server, model, status, kind):
    class Unlisted(Client):
        def index(self):
            raise RequestError("failed to open directory /srv/models", status=status)

    failure = Judge(server, Unlisted(server, CONFIG), JudgeOptions(5.0, requests=1)).judge(model).failure
    assert failure.kind == kind
    assert ("failed to open directory" in failure.reason) == (status == 500)


def test_a_model_is_withdrawn_if_the_server_ends_after_its_requests(server, model):
    judged = judge(server)
    verdict = judged.withdraw(judged.judge(model))
    assert (verdict.ok, verdict.failure.kind) == (False, "server-died")
    assert verdict.failure.reason == "the server ended after its requests"
    assert judged.withdraw(verdict) == verdict, "it is not fit to serve any more"


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
    verdict = judged.reject("m", InputError("bad-config", "not a number", "write one", "m/config.pbtxt:3"))
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
    ("content", "kind"),
    [
        (None, "model-file-missing"),
        ("version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 9\n", "lfs-pointer"),
    ],
)
def test_a_model_of_an_absent_backend_that_no_server_can_load_fails(server, tmp_path, content, kind):
    model = foreign(tmp_path / kind)
    file = model.folder / "1/model.onnx"
    file.unlink() if content is None else file.write_text(content)
    verdict = judge(server, load_error=NO_BACKEND).judge(model)
    assert (verdict.ok, verdict.failure.kind) == (False, kind)
    assert str(model.folder / "1") in verdict.failure.reason


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
    client._error = None
    verdict = judged.judge(model)
    assert (verdict.ok, verdict.complete) == (True, False)
    (check,) = (check for check in verdict.checks if check.status == "unchecked")
    assert check.evidence.startswith("not verified: what it answers with far: it calls far, and this server has no")
    (model.folder / "1/model.py").write_text('LABELS = ["near", "far"]')
    (check,) = (check for check in judged.judge(model).checks if check.status == "unchecked")
    assert check.evidence.startswith("not verified: what it answers with far: its code names far, and this server has")


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
    ("check", "kind"), [(known.id, known.kind) for known in CHECKS.values() if known.of != "server" and known.kind]
)
def test_every_check_has_its_kind_of_fault(server, model, monkeypatch, check, kind):
    monkeypatch.setattr(process, "process_checks", lambda _: iter([failed(check, "why", "how")]))
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


def test_what_the_timed_requests_leave_behind_is_counted_for_each_of_them(server, model, monkeypatch):
    counted = []
    monkeypatch.setattr(process, "check_leaks", lambda _, __, requests: counted.append(requests))
    Judge(server, Client(server, CONFIG), JudgeOptions(5.0, requests=3)).judge(model)
    Judge(server, Client(server, CONFIG), JudgeOptions(5.0, requests=0)).judge(model)
    assert counted == [3, 0]
