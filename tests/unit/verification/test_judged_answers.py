"""Verdicts on what models answer, on a server of words: samples, streams, errors, and requests without an answer."""

import dataclasses
import os

import pytest

from envpack.repository.model import open_model
from envpack.repository.placement import in_model_folder, point_to_environment
from envpack.server.interface import Process
from envpack.server.kserve import RequestError, unfinished
from envpack.server.tensors import Tensor
from envpack.support.errors import InputError
from envpack.verification import answers, versions
from envpack.verification.checks import concurrency
from envpack.verification.judge import Judge, JudgeOptions
from tests.unit.verification.words import CONFIG, STUB, TRACE, Client, ids, judge, with_samples

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
        (0, (), f"{versions._SEND_FINAL}, or allow more time: --timeout"),
        (2, (), f"{versions._SEND_FINAL}, or allow more time: --timeout"),
        (2, ("m.py:5 in f",), f"{versions._SEND_FINAL}, or allow more time: --timeout; m.py:5 in f was running"),
        (0, ("m.py:5 in f",), "find what blocks in m.py:5 in f, or allow more time: --timeout"),
    ],
)
def test_a_stream_without_its_final_flag_is_the_cause(server, model, monkeypatch, count, frames, fix):
    def unended(*_):
        raise unfinished(count, 5)

    streaming(monkeypatch, unended)
    monkeypatch.setattr(versions, "abort_and_read_frames", lambda *_: frames)
    judged = judge(server, config=DECOUPLED)
    failure = judged.judge(model).failure
    assert (failure.kind, failure.fix) == ("inference-timeout", fix)
    assert failure.reason.startswith(f"{count} responses came within 5 s, and none with the final flag")
    assert judged.stuck


def test_the_users_samples_are_sent_instead_of_ones(server, model):
    with_samples(model, {"data": [{"IN": [3]}, {"IN": [4]}], "validation_data": [{"OUT": [3]}, {"OUT": [4]}]})
    judged = judge(server)
    verdict = judged.judge(model)
    assert (verdict.ok, verdict.samples.right, verdict.samples.sent) == (True, 2, 2)
    assert ids(verdict).keys() >= {"infer", "formats", "expected"}
    assert "sent with the first sample" in next(check for check in verdict.checks if check.id == "infer").evidence
    assert judged.client.sent[0] == ((Tensor("IN", "FP32", (1,), (3.0,)),), {})


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


def test_the_first_sample_of_a_sequence_is_sent_as_a_whole_sequence(server, model, monkeypatch):
    monkeypatch.setattr(concurrency, "check_together", lambda *_: None)
    with_samples(model, {"data": [[{"IN": [3]}, {"IN": [4]}]]})
    judged = judge(server, config={**CONFIG, "sequence_batching": {}})
    assert judged.judge(model).ok
    assert judged.client.sent[0][1] == {"sequence_id": 1, "sequence_start": True, "sequence_end": True}


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


def test_an_environment_at_a_path_that_a_shell_splits_is_not_loaded(server, model):
    """The path counts that the server finds behind links, in a container another than here."""
    point_to_environment(model, in_model_folder("env"))
    model = open_model(model.folder)
    server.server_path = lambda path: f"/srv/my {path.name}"
    assert "bad-path" not in str(judge(server).judge(model)), "an archive is unpacked elsewhere"
    (model.folder / "env").mkdir()
    server.text = ""
    failure = judge(server).judge(model).failure
    what = "links lead to '/srv/my env', which contains ' ', and servers pass it to a shell unquoted"
    assert (failure.kind, failure.reason, "--format tar.gz" in failure.fix) == ("bad-path", what, True)
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


def test_only_an_error_is_put_down_to_a_model_whose_backend_the_server_lacks(server, model):
    """A model that may call an unverified one, and answers all the same, is verified."""
    (model.folder / "1/model.py").write_text(
        "import triton_python_backend_utils as p\np.InferenceRequest(model_name='net')"
    )
    statuses = []
    for error in (None, RequestError("ValueError: boom", status=500)):
        judged = judge(server, error=error)
        judged._missing._unloaded["net"] = "onnxruntime"
        statuses.append(ids(judged.judge(model))["infer"])
    assert statuses == ["ok", "unchecked"]


def test_the_error_of_a_model_that_calls_an_unfit_one_is_put_down_to_that(server, model):
    (model.folder / "1/model.py").write_text(
        "import triton_python_backend_utils as p\np.InferenceRequest(model_name='net')"
    )
    (model.folder.parent / "net/1").mkdir(parents=True)
    (model.folder.parent / "net/1/model.py").touch()
    judged = judge(server, error=RequestError("AttributeError: 'NoneType' object has no attribute 'x'", status=500))
    judged.reject("net", InputError("bad-config", "dims are missing", "add dims"))
    check = judged.judge(model).checks[-1]
    assert (check.id, check.status, check.fix) == ("infer", "unchecked", "correct net first")
    assert check.evidence.startswith("it calls net, which is not fit to serve; its answer: AttributeError: 'NoneType'")
    judged = judge(server, error=RequestError("no response within 5 s", timed_out=True))
    judged.reject("net", InputError("bad-config", "dims are missing", "add dims"))
    assert judged.judge(model).failure.kind == "inference-timeout", "it is no answer"


@pytest.mark.parametrize("away", ["unfit", "without a backend"])
def test_the_error_of_a_model_that_sends_no_requests_is_its_own_whatever_its_strings_name(server, model, away):
    (model.folder / "1/model.py").write_text("SERVICES = ['net', 'other']")
    (model.folder.parent / "net/1").mkdir(parents=True)
    (model.folder.parent / "net/1/model.py").touch()
    judged = judge(server, error=RequestError("JSONDecodeError: Expecting value: line 1", status=500))
    if away == "unfit":
        judged.reject("net", InputError("bad-config", "dims are missing", "add dims"))
    else:
        judged._missing._unloaded["net"] = "onnxruntime"
    check = judged.judge(model).checks[-1]
    assert "net" not in check.evidence + check.fix
    assert "JSONDecodeError" in check.evidence


def test_a_model_of_the_repository_that_only_the_request_names_has_to_be_verified_with_its_caller(server, model):
    (model.folder.parent / "net/1").mkdir(parents=True)
    (model.folder.parent / "net/1/model.py").touch()
    found = {}
    for name in ("net", "other"):
        error = RequestError(f"TritonModelException: Model {name} - Error: Model '{name}' is not ready.", status=500)
        found[name] = judge(server, error=error).judge(model).checks[-1]
    assert (found["net"].status, found["net"].fix) == ("unchecked", f"verify both: envpack verify {model.name} net")
    assert found["net"].evidence.startswith("it calls net, which is not verified with it; its answer: Triton")
    assert found["other"].fix != found["net"].fix, "no model of the repository has that name"
    (model.folder / "1/model.py").write_text("p.InferenceRequest(model_name='net')")  # so both are verified: a circle
    error = RequestError("Model 'net' is not ready.", status=500)
    check = judge(server, error=error).judge(model).checks[-1]
    assert (check.status, check.fix) == ("unchecked", f"send it requests with both loaded: envpack run {model.name}")
    assert check.evidence.startswith("it calls net, which needs it and is verified later; its answer: Model")


@pytest.mark.parametrize(("first", "ok"), [("ValueError: boom", True), ("MemoryError", False)])
def test_too_little_memory_is_a_fault_unless_plain_inputs_were_only_refused(server, model, first, ok):
    messages = iter([first])

    class Eating(Client):
        def infer(self, *_, **__):
            raise RequestError(next(messages, "MemoryError"), status=500)

    verdict = Judge(server, Eating(server, CONFIG), JudgeOptions(5.0, requests=1)).judge(model)
    assert (verdict.ok, verdict.complete) == (ok, not ok)


def test_an_error_that_only_two_items_in_one_request_get_says_so(server, model):
    class OneByOne(Client):
        def infer(self, model, inputs, **how):
            if inputs[0].shape[0] == 2:
                raise RequestError(TRACE, status=500)
            return super().infer(model, inputs, **how)

    config = {**CONFIG, "max_batch_size": 8}
    failure = Judge(server, OneByOne(server, config), JudgeOptions(5.0, requests=1)).judge(model).failure
    assert (failure.kind, failure.reason) == (
        "inference-failed",
        "sent with two items in one request: ValueError: boom",
    )
    assert failure.fix == (
        "correct the model's code at /srv/m/1/model.py:9, or set max_batch_size to the number of items that it takes"
    )


def test_an_error_without_the_optional_inputs_is_not_put_down_to_the_number_of_items(server, model):
    class Needing(Client):
        def infer(self, model, inputs, **how):
            if len(inputs) == 1:
                raise RequestError(TRACE, status=500)
            return super().infer(model, inputs[:1], **how)

    config = {**CONFIG, "input": [*CONFIG["input"], {**CONFIG["input"][0], "name": "MORE", "optional": True}]}
    failure = Judge(server, Needing(server, config), JudgeOptions(5.0, requests=1)).judge(model).failure
    assert failure.reason == "sent without the optional inputs: ValueError: boom"
    assert failure.fix == "correct the model's code at /srv/m/1/model.py:9"


MISSING = "FileNotFoundError: [Errno 2] No such file or directory: '/srv/{}'"
NO_HOST = "requests.exceptions.ConnectionError: HTTPSConnectionPool(host='a.b', port=443): Failed to resolve 'a.b'"


@pytest.mark.parametrize(
    ("message", "is_fault"),
    [
        (MISSING.format("words.txt"), True),
        (NO_HOST, True),
        ("Error of the request: ConnectError: [Errno -2] Name or service not known", True),
        ("Error when running inference: Failed for execute the inference request. Model 'x' is not ready.", True),
        ("c_python_backend_utils.TritonModelException: Failed for execute. Model 'stage1' is not ready.", True),
        ("Request timeout expired", True),
        ("c_python_backend_utils.TritonModelException: Failed for execute. Model '{}' is not ready.", False),
        (MISSING.format("{}"), False),
        ("ValueError: boom", False),
    ],
    ids=[
        "file of the model",
        "host",
        "host in the model's words",
        "model in its words",
        "model",
        "policy of the queue",
        "model that the input names",
        "file that the input names",
        "refusal",
    ],
)
def test_what_is_missing_for_inputs_without_anything_in_common_is_the_models_fault(server, model, message, is_fault):
    class Missing(Client):
        def infer(self, _, inputs, **__):
            raise RequestError(message.format(inputs[0].data[0]), status=500)

    verdict = Judge(server, Missing(server, CONFIG), JudgeOptions(5.0, requests=1)).judge(model)
    assert verdict.ok is not is_fault


@pytest.mark.parametrize(
    "message",
    [
        "NameError: name 'x' is not defined",
        "RecursionError: maximum recursion depth exceeded",
        "SystemExit: 4\n\nAt:\n  /srv/m/1/model.py(9): execute\n",
        "ModuleNotFoundError: No module named 'torch'",
        "AttributeError: 'TritonPythonModel' object has no attribute 'net'",
        "AttributeError: module 'numpy' has no attribute 'float'",
        "TypeError: TritonPythonModel.execute() takes 1 positional argument but 2 were given",
        "in ensemble 'e', [request id: <id_unknown>] inference input 'IN' data-type is 'FP64', model 's' expects FP32",
        "c_python_backend_utils.TritonModelException: Failed for execute. Model 'stage1' is not ready.",
        "Python model 'm_0_0' has returned from execute without a final response, which the final flag marks",
        "Expected a list in the execute return, found type '<class 'generator'>'.",
        "RuntimeError: Task got bad yield: <c_python_backend_utils.InferenceResponse object at 0x7f>\n\nAt:\n /m.py(3)",
    ],
)
def test_what_no_other_input_would_mend_is_the_models_fault(server, model, message):
    verdict = judge(server, error=RequestError(message, status=500)).judge(model)
    assert (verdict.ok, verdict.checks[-1].status) == (False, "failed")


@pytest.mark.parametrize(
    ("message", "fix"),
    [
        (TRACE, "/srv/m/1/model.py:9"),
        ("ValueError: boom", "find in execute what answers with this error; compare the samples"),
    ],
)
def test_with_samples_the_fix_is_about_them(server, model, message, fix):
    with_samples(model, {"data": [{"IN": [3]}]})
    assert fix in judge(server, error=RequestError(message, status=500)).judge(model).failure.fix


def test_a_known_fault_has_its_own_kind_and_fix(server, model):
    error = RequestError("OSError: [Errno 24] Too many open files", status=500)
    failure = judge(server, error=error).judge(model).failure
    assert (failure.kind, "--ulimit nofile=" in failure.fix) == ("too-many-files", True)


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
    assert failure.reason == "Stub process 'm_0_0' is not healthy: it ended by SIGSEGV"
    assert failure.kind == "stub-died"
    assert failure.fix.endswith(
        "; if no client sends such a request as was generated here, record a sample: "
        "envpack run m -i FILE --save-sample"
    )
    assert judged.stuck
    with_samples(model, {"data": [{"IN": [3]}]})
    assert "record" not in Judge(server, Dies(server, CONFIG), JudgeOptions(5.0)).judge(model).failure.fix


def test_a_model_that_calls_something_else_unhealthy_has_not_died(server, model):
    judged = judge(server, error=RequestError("the upstream 'tokenizer' is not healthy", status=500))
    assert judged.judge(model).ok  # it refuses what was made up
    with_samples(model, {"data": [{"IN": [3]}]})
    failure = judged.judge(model).failure
    assert (failure.kind, failure.reason) == ("inference-failed", "the upstream 'tokenizer' is not healthy")
    assert not judged.stuck


def test_a_stub_that_was_dead_before_is_not_blamed(server, model):
    server.processes = [STUB, Process(9, "triton_python_b", dead=True, arguments=(), status=11)]
    error = RequestError("Stub process 'm_0_0' is not healthy.", status=500)
    assert judge(server, error=error).judge(model).failure.reason == "Stub process 'm_0_0' is not healthy."


def test_a_request_without_an_answer_blocks_the_server(server, model, monkeypatch):
    monkeypatch.setattr(versions, "abort_and_read_frames", lambda *_: ("/srv/m/1/model.py:5 in execute",))
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
    monkeypatch.setattr(versions, "abort_and_read_frames", lambda *_: ())
    failure = judge(server, error=RequestError("no response", timed_out=True)).judge(model).failure
    assert failure.fix == (
        "find what blocks in execute, or return a list with one InferenceResponse per request from execute: None is no"
        " response, or allow more time: --timeout"
    )


def test_an_execute_that_forgets_to_return_is_named_also_if_the_stub_does_not_say_so(server, model, monkeypatch):
    """The release's own stub waits for a response sender then, and writes no frames when it is ended."""
    monkeypatch.setattr(versions, "abort_and_read_frames", lambda *_: ())
    code = "class TritonPythonModel:\n    def execute(self, requests):\n        [answer(one) for one in requests]\n"
    (model.folder / "1/model.py").write_text(code)
    failure = judge(server, error=RequestError("no response within 30 s", timed_out=True)).judge(model).failure
    assert failure.fix == "return a list with one InferenceResponse per request from execute, which returns nothing"


def test_a_server_that_ends_during_a_request_is_a_fault_of_its_own(server, model):
    failure = judge(server, error=RequestError("no response: refused")).judge(model).failure
    assert (failure.kind, failure.reason) == ("server-died", "the server ended during a request")
    assert failure.details == ("loading m",)
