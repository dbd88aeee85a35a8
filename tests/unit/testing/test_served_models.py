"""Models for tests on a real server, as far as this needs no server: what is sent, and what is read from its log."""

import contextlib
import json
import struct
import sys
import time
from concurrent import futures

import grpc
import pytest
from tritonclient.grpc import service_pb2, service_pb2_grpc

from envpack.local.values import RawTensor, Request
from envpack.server.interface import Process
from envpack.server.kserve import RequestError
from envpack.server.tensors import Tensor
from envpack.settings.project import open_project
from envpack.support.errors import UsageError
from envpack.support.installation import install_beside
from envpack.support.progress import NoProgress
from envpack.testing import ModelError, served_models as module
from envpack.testing.served_models import ServedModels, stream_by_grpc
from envpack.verification.loading import LoadResult
from envpack.verification.verdict import Failure

CALLS = 'import triton_python_backend_utils as pb_utils\nr = pb_utils.InferenceRequest(model_name="one")\n'
INPUT = RawTensor("IN", "INT32", (1,), struct.pack("<i", 5))


class Server:
    url = "http://127.0.0.1:1"

    def __init__(self):
        self.output, self.port = "", 0

    def log(self, since=0):
        return self.output[since:]

    def log_size(self):
        return len(self.output)

    poll_seconds = 0.0

    def stop(self, *, force):
        self.killed = force

    def other_ports(self):
        return (self.port,)

    def ended(self):
        return False

    def children(self):
        return ()

    def unreadable(self, places):
        return ""

    def server_path(self, path):
        return str(path)


class Client:
    """Notes what is asked."""

    def __init__(self, url, *, timeout):
        assert (url, timeout) == (Server.url, 60)
        self.loads, self.asked, self.errors, self.configs = [], [], {}, 0

    def load(self, server, client, model, *, timeout, ignore_dead):
        assert (client, timeout, ignore_dead) == (self, 60, frozenset())
        self.loads.append(model.name)
        reason = self.errors.get(model.name)
        return LoadResult(1.0, Failure("load-failed", reason, ("m.py:3 in f",)) if reason else None)

    def unload(self, model):
        self.loads.append(f"unload {model}")

    def config(self, model):
        self.configs += 1
        return {"name": model}

    def infer_message(self, model, inputs, **options):
        self.asked.append((model, inputs, options))
        return options["request_id"]

    def answer(self, request_id):
        if request_id == "late":
            return RequestError("no response within 60 s", timed_out=True)
        if request_id == "bad":
            return RequestError("rejected", status=400)
        return (Tensor("OUT", "INT32", (1,), (7,)),)


@pytest.fixture
def models(tmp_path, monkeypatch):
    for name in ("one", "calls"):
        (tmp_path / name / "1").mkdir(parents=True)
        (tmp_path / name / "1/model.py").write_text(CALLS if name == "calls" else "")
    (tmp_path / "one/1/helper.py").touch()
    server, started = Server(), []

    class Runtime:
        release, image = "24.10", ""

        @contextlib.contextmanager
        def start(self, repository):
            assert (repository / "one/1").samefile(tmp_path / "one/1")
            yield server
            started.append("stopped")

    monkeypatch.setattr(module.ServedRepository, "_is_complete", lambda *_: True)
    monkeypatch.setattr(module, "Client", Client)
    monkeypatch.setattr(module, "dead_stubs", lambda server: ())
    monkeypatch.setattr(module, "load_model", lambda server, client, *a, **o: client.load(server, client, *a, **o))
    monkeypatch.setattr(module, "infer_together", lambda client, ids, *, timeout: list(map(client.answer, ids)))
    monkeypatch.setattr(module, "_QUIET_SECONDS", 0)
    found = ServedModels(Runtime(), open_project(tmp_path), timeout=60, progress=NoProgress())
    found.server = server
    yield found
    found.close()
    assert set(started) == {"stopped"}
    assert server.killed


def answered(models, *requests):
    """The tensors of each answer, or its error."""
    return [response.error or response.outputs for (response,) in models.infer(requests)]


def test_models_that_a_model_calls_are_loaded_before_it(models):
    models.load("calls")
    models.load("calls")
    assert models._client.loads == ["one", "calls"]
    models.forget("calls")
    models.forget("absent")
    models.load("calls")
    assert models._client.loads == ["one", "calls", "calls"]


def test_an_error_of_a_called_model_is_one_of_its_tests_only(models, tmp_path):
    models._client.errors["one"] = "ValueError: boom"
    models.load("calls")
    with pytest.raises(ModelError, match="^ValueError: boom\nm.py:3 in f$"):
        models.load("one")
    del models._client.errors["one"]
    models.load("one")
    assert models._client.loads == ["one", "calls", "one", "one"]


def test_the_configuration_is_that_of_the_server_until_the_model_changes(models):
    assert [models.config("one"), models.config("one")] == [{"name": "one"}] * 2
    assert models._client.configs == 1
    models.forget("one")
    models.config("one")
    assert models._client.configs == 2


def test_a_request_is_sent_as_a_client_sends_it(models):
    asked = Request(
        (INPUT,), model="one", id="x", parameters='{"a":1}', outputs=frozenset({"B", "A"}), correlation_id=4, flags=1
    )
    assert answered(models, asked) == [(RawTensor("OUT", "INT32", (1,), struct.pack("<i", 7)),)]
    assert models._client.asked == [
        (
            "one",
            (Tensor("IN", "INT32", (1,), (5,)),),
            {
                "binary": True,
                "parameters": {"a": 1, "sequence_id": 4, "sequence_start": True, "sequence_end": False},
                "request_id": "x",
                "outputs": ["A", "B"],
            },
        )
    ]
    models.infer([Request((INPUT,), model="one", correlation_id="s", flags=2)])
    assert models._client.asked[1][2]["parameters"] == {
        "sequence_id": "s", "sequence_start": False, "sequence_end": True,
    }  # fmt: skip
    good, bad = answered(models, Request((INPUT,), model="one"), Request((INPUT,), model="one", id="bad"))
    assert (good[0].name, bad) == ("OUT", "rejected")
    assert models._client.asked[-1][2]["parameters"] == {}


def test_a_model_that_takes_too_long_is_ended_and_the_line_that_ran_is_named(models, monkeypatch):
    ended = []
    monkeypatch.setattr(module, "abort_and_read_frames", lambda server, model: ended.append(model.name) or ("m.py:3",))
    (error,) = answered(models, Request((INPUT,), model="one", id="late"))
    assert error.startswith("no response within 60 s; m.py:3 was running; --timeout, in pytest --env")
    assert answered(models, Request((INPUT,), model="one")) == [error], "nothing is sent to it any more"
    models.forget("one")  # its source has changed
    late = answered(models, *(Request((INPUT,), model="one", id=name) for name in ("late", "", "late")))
    assert [isinstance(answer, str) for answer in late] == [True, False, True]
    assert ended == ["one"] * 2  # once for each time that requests are sent


def test_a_server_that_ended_is_started_again_for_the_next_model(models, monkeypatch):
    models.load("one")
    models.config("one")
    client, ended = models._client, [True]
    monkeypatch.setattr(models.server, "ended", lambda: bool(ended) and ended.pop())
    models.load("one")
    assert models._client is not client
    assert models._client.loads == ["one"], "it has to be loaded again"
    assert models.server.killed
    models.config("one")
    assert models._client.configs == 1, "and may have another configuration"


def test_a_server_that_ends_during_a_request_shows_its_last_lines(models, tmp_path, monkeypatch):
    models.load("one")
    monkeypatch.setattr(models._client, "answer", lambda _: RequestError("connection refused"))
    monkeypatch.setattr(models, "load", lambda model: None)
    assert answered(models, Request((INPUT,), model="one")) == ["connection refused"]
    models.server.output = f"terminated in {models._repository.folder}/one/1/model.py\n"
    monkeypatch.setattr(models.server, "ended", lambda: True)
    (text,) = answered(models, Request((INPUT,), model="one"))
    assert text == f"the server ended; its last lines:\nterminated in {tmp_path}/one/1/model.py"
    monkeypatch.setattr(models._client, "answer", lambda _: RequestError("rejected", status=500))
    assert answered(models, Request((INPUT,), model="one")) == ["rejected"], "it has answered"
    monkeypatch.setattr(models.server, "ended", lambda: False)


def test_a_server_that_ends_before_the_first_request_or_a_stream_is_an_error_of_the_model(models, monkeypatch):
    """Its end is known a moment after its connections have ended."""
    asked, request = [], Request((INPUT,), model="one")
    said = "the server ended; its last lines:\nterminated"
    models.load("one")
    models.server.output = "terminated\n"
    monkeypatch.setattr(models, "load", lambda model: None)
    monkeypatch.setattr(models.server, "ended", lambda: asked.append(1) or len(asked) > 3)
    monkeypatch.setattr(models._client, "config", lambda _: (_ for _ in ()).throw(RequestError("connection refused")))
    with pytest.raises(ModelError, match=said):
        models.config("one")
    asked.clear()
    monkeypatch.setattr(models.server, "other_ports", lambda: ())
    assert [response.error for response in models.stream(request)] == [said]
    monkeypatch.setattr(models.server, "ended", lambda: False)


def test_a_configuration_is_that_of_a_model_that_is_loaded(models, monkeypatch):
    """The server may have been started again since a test got the model."""
    models.load("one")
    models._loaded.clear()
    assert (models.config("one"), models._client.loads) == ({"name": "one"}, ["one", "one"])


def test_an_output_whose_shape_does_not_hold_its_elements_is_an_error(models, monkeypatch):
    """As a server sends one that its reshape does not fit."""
    monkeypatch.setattr(models._client, "answer", lambda _: (Tensor("Y", "FP32", (1, 0), (1.0,)),))
    monkeypatch.setattr(models, "load", lambda model: None)
    (text,) = answered(models, Request((INPUT,), model="one"))
    assert text == "the output Y has 1 elements, and the shape [1, 0]: its reshape in config.pbtxt does not fit it"


def test_a_load_that_never_ends_is_given_up_with_its_server(models, monkeypatch):
    failure, client = Failure("load-timeout", "not loaded after 60 s", (), "fix it"), models._client
    monkeypatch.setattr(module, "load_model", lambda *a, **o: LoadResult(60.0, failure, stuck=True))
    with pytest.raises(ModelError, match="not loaded after 60 s") as raised:
        models.load("one")
    assert (raised.value.fix, models._client is client) == ("fix it", False)
    monkeypatch.setattr(module, "load_model", lambda *a, **o: LoadResult(1.0, None))
    with pytest.raises(ModelError, match="not loaded after 60 s"):
        models.load("one")
    models.forget("one")
    models.load("one")


def test_what_fails_in_a_stream_ends_it_as_a_response(models, service, monkeypatch):
    monkeypatch.setattr(module, "abort_and_read_frames", lambda server, model: ())
    models.server.port = service.port
    *good, bad = models.stream(Request((INPUT,), model="one", id="fail boom"))
    assert (len(good), bad.error) == (3, "boom")
    monkeypatch.setattr(models, "_timeout", 0.3)
    models.forget("one")
    models._loaded.add("one")
    *good, bad = models.stream(Request((INPUT,), model="one", id="hang"))
    assert (len(good), bad.error.partition(";")[0]) == (
        3,
        "3 responses came within 0.3 s, and none with the final flag",
    )


def test_a_server_that_does_not_start_leaves_no_folder(tmp_path, monkeypatch):
    folders = []

    class Runtime:
        def start(self, repository):
            folders.append(repository)
            raise UsageError("usage", "no", "start one")

    (tmp_path / "models").mkdir()
    with pytest.raises(UsageError):
        ServedModels(Runtime(), open_project(tmp_path / "models"), timeout=60, progress=NoProgress())
    assert folders[0].parent.parent.exists()
    assert not folders[0].parent.exists()


def test_a_server_can_be_ended_at_once(models):
    models.load("one")
    models.kill()
    assert models.server.killed
    models.close()
    assert models._client.loads == ["one"], "nothing is unloaded that was killed"


def test_models_are_unloaded_at_the_end_which_finalizes_them(models, monkeypatch):
    monkeypatch.setattr(module, "_FINALIZE_SECONDS", 60)
    running, ended = (Process(7, "stub", dead, ()) for dead in (False, True))  # a server reads no status of a dead one
    children, waited = [[running], [running, ended]], []
    monkeypatch.setattr(models.server, "children", lambda: children.pop(0) if children else [ended])
    monkeypatch.setattr(module.time, "sleep", waited.append)
    models.load("one")
    models.close()
    assert models._client.loads == ["one", "unload one"]
    assert waited == [models.server.poll_seconds] * 2


def test_the_lines_that_a_model_logged(models):
    before = models.position()
    for line in (
        'I1125 13:06:24.127303 28553 model.py:7] "quoted \\"text\\""',
        "W1125 13:06:24.127303 28553 helper.py:7] plain text",
        "E1125 13:06:24.127303 28553 other.py:7] of another model",
        "I1125 13:06:24.127303 28553 model.py:7] envpack-stub {}",
        'I1125 13:06:24.127303 28553 model.py:7] "half',
        "\r 50%\r100%I1125 13:06:24.127303 28553 model.py:7] after a progress bar",
        "printed by the model",
    ):
        models.server.output += f"{line}\n"
    assert models.logged("one", before) == ['quoted "text"', "plain text", '"half', "after a progress bar"]
    assert models.logged("one", models.position()) == []
    models.server.output += f"printed by {models._repository.folder}/one\n"
    assert models.printed(before).splitlines()[-1] == f"printed by {models._repository._project.repository}/one"


# Streams


class Service(service_pb2_grpc.GRPCInferenceServiceServicer):
    """Answers each request with as many responses as its id says; the last one may be an error."""

    def __init__(self):
        self.seen = []

    def ModelStreamInfer(self, requests, context):  # noqa: N802 - the name of the protocol
        for request in requests:
            self.seen.append(request)
            if request.id == "refuse":
                context.abort(grpc.StatusCode.UNAVAILABLE, "shutting down")
            for number in range(3):
                answer = service_pb2.ModelInferResponse(
                    model_name=request.model_name, model_version="1", raw_output_contents=[struct.pack("<i", number)]
                )
                answer.outputs.add(name="OUT", datatype="INT32", shape=[1])
                yield service_pb2.ModelStreamInferResponse(infer_response=answer)
            if request.id == "hang":
                while context.is_active():
                    time.sleep(0.01)
            if request.id.startswith("fail"):
                failed = service_pb2.ModelInferResponse(id=request.id, model_name=request.model_name)
                text = request.id.removeprefix("fail").strip()
                yield service_pb2.ModelStreamInferResponse(error_message=text, infer_response=failed)


@pytest.fixture
def service():
    found, server = Service(), grpc.server(futures.ThreadPoolExecutor(2))
    service_pb2_grpc.add_GRPCInferenceServiceServicer_to_server(found, server)
    port = server.add_insecure_port("127.0.0.1:0")
    found.port, found.other_ports = port, lambda: (port,)
    server.start()
    yield found
    server.stop(None).wait()


def test_a_stream_carries_shapes_and_types(service, models):
    models.server.port = service.port
    asked = Request((INPUT,), model="one", id="x", outputs=frozenset({"B", "A"}), parameters=json.dumps(
        {"flag": True, "count": 3, "share": 0.5, "text": "é"}
    ))  # fmt: skip
    found = list(models.stream(asked))
    tensors = [(RawTensor("OUT", "INT32", (1,), struct.pack("<i", number)),) for number in range(3)]
    assert [response.outputs for response in found] == tensors
    (seen,) = service.seen
    assert (seen.model_name, seen.id, list(seen.raw_input_contents)) == ("one", "x", [INPUT.content])
    assert [(entry.name, entry.datatype, list(entry.shape)) for entry in seen.inputs] == [("IN", "INT32", [1])]
    assert [entry.name for entry in seen.outputs] == ["A", "B"]
    values = {name: value.WhichOneof("parameter_choice") for name, value in seen.parameters.items()}
    assert values == {"flag": "bool_param", "count": "int64_param", "share": "double_param", "text": "string_param"}
    assert (seen.parameters["count"].int64_param, seen.parameters["text"].string_param) == (3, "é")
    assert models._client.loads == ["one"]


def test_an_error_in_a_stream_follows_its_responses(service):
    found = []
    with pytest.raises(ModelError, match="^boom$"):
        found.extend(stream_by_grpc(service, Request((INPUT,), model="one", id="fail boom"), {}, 60))
    with pytest.raises(ModelError, match="^no reason given$"):
        list(stream_by_grpc(service, Request((INPUT,), model="one", id="fail"), {}, 60))
    responses = stream_by_grpc(service, Request((INPUT,), model="one", id="fail boom"), {}, 60)
    assert len([next(responses) for _ in range(3)]) == 3
    responses.close()
    with pytest.raises(RequestError, match="^shutting down$") as raised:
        list(stream_by_grpc(service, Request((INPUT,), model="one", id="refuse"), {}, 60))
    assert raised.value.connection_lost


def test_a_stream_without_end_has_a_limit(service):
    found = []
    with pytest.raises(RequestError, match=r"^3 responses came within 0\.5 s, and none with the final flag$") as raised:
        found.extend(stream_by_grpc(service, Request((INPUT,), model="one", id="hang"), {}, 0.5))
    assert (len(found), raised.value.timed_out) == (3, True)


def test_a_server_without_grpc_is_named():
    with pytest.raises(UsageError, match="needs gRPC, which a server in a container does not offer here"):
        list(stream_by_grpc(object(), Request((INPUT,), model="one"), {}, 60))


def test_without_the_client_the_package_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "tritonclient.grpc", None)
    with pytest.raises(UsageError, match=r"stream\(\) of model 'one' on a real server needs gRPC") as raised:
        list(stream_by_grpc(Server(), Request((INPUT,), model="one"), {}, 60))
    assert (raised.value.kind, raised.value.hint) == (
        "grpc-missing",
        f"{install_beside('tritonclient[grpc]')}, or run the tests with --local",
    )
