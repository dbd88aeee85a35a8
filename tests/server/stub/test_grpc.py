"""What only clients of gRPC see: cancelled requests, and error codes by name."""

import textwrap

import grpc
import pytest
from tritonclient.grpc import service_pb2, service_pb2_grpc

from tests.waiting import soon

CODES = {
    "UNKNOWN": grpc.StatusCode.UNKNOWN,
    "INTERNAL": grpc.StatusCode.INTERNAL,
    "NOT_FOUND": grpc.StatusCode.NOT_FOUND,
    "INVALID_ARG": grpc.StatusCode.INVALID_ARGUMENT,
    "UNAVAILABLE": grpc.StatusCode.UNAVAILABLE,
    "UNSUPPORTED": grpc.StatusCode.UNIMPLEMENTED,
    "ALREADY_EXISTS": grpc.StatusCode.ALREADY_EXISTS,
    "CANCELLED": grpc.StatusCode.CANCELLED,
}
# Only a request whose cancellation is never seen reaches the limit.
UNTIL_CANCELLED = (
    "import pathlib, time\n"
    "self.seen = [request.is_cancelled()]\n"
    "pathlib.Path({started!r}).touch()\n"
    "until = time.monotonic() + 60\n"
    "while not {who}.is_cancelled() and time.monotonic() < until:\n    time.sleep(0.01)\n"
    "self.seen.append({who}.is_cancelled())\n"
)


@pytest.fixture
def stub(served):
    with grpc.insecure_channel(f"127.0.0.1:{served.grpc_port}") as channel:
        yield service_pb2_grpc.GRPCInferenceServiceStub(channel)


def request(model, code):
    content = code.encode()
    message = service_pb2.ModelInferRequest(
        model_name=model, raw_input_contents=[len(content).to_bytes(4, "little") + content]
    )
    message.inputs.add(name="CODE", datatype="BYTES", shape=[1])
    return message


def seen(served, model="script"):
    """What the model has noted, once it has noted both."""
    noted = []

    def both():
        noted[:] = served.evaluate("self.seen") if model == "script" else served.stream(NOTED)[0]
        return len(noted) == 2

    soon(both)
    return noted


NOTED = "request.get_response_sender().send(reply(self.seen), flags=1)"


@pytest.mark.parametrize("who", ["request", "request.get_response_sender()"])
def test_a_model_sees_that_its_request_is_cancelled(served, stub, who, tmp_path):
    started = tmp_path / "started"
    code = UNTIL_CANCELLED.format(who=who, started=str(started)) + "return [reply('too late')]"
    call = stub.ModelInfer.future(request("script", code))
    assert soon(started.exists)
    call.cancel()
    assert seen(served) == [False, True]


def test_a_decoupled_model_sees_that_its_stream_is_cancelled(served, stub, tmp_path):
    started = tmp_path / "started"
    sender = "request.get_response_sender()"
    later = UNTIL_CANCELLED.format(who=sender, started=str(started)) + f"{sender}.send(flags=1)"
    code = f"def later():\n{textwrap.indent(later, '    ')}\nimport threading\nthreading.Thread(target=later).start()"
    call = stub.ModelStreamInfer(iter([request("stream", code)]))
    assert soon(started.exists)
    call.cancel()
    assert seen(served, "stream") == [False, True]


def test_responses_that_threads_send_at_once_arrive_whole(stub):
    code = (
        "import threading\n"
        "sender = request.get_response_sender()\n"
        "def send(): sender.send(reply('x' * 99))\n"
        "threads = [threading.Thread(target=send) for _ in range(40)]\n"
        "for thread in threads: thread.start()\n"
        "for thread in threads: thread.join()\n"
        "sender.send(flags=1)"
    )
    answers = list(stub.ModelStreamInfer(iter([request("stream", code)]), timeout=20))
    contents = [answer.infer_response.raw_output_contents[0][4:] for answer in answers]
    assert contents == [b'"' + 99 * b"x" + b'"'] * 40


@pytest.mark.parametrize("code", CODES)
def test_an_error_keeps_its_code(stub, code):
    code_to_run = f"return [pb_utils.InferenceResponse(error=pb_utils.TritonError('no', pb_utils.TritonError.{code}))]"
    with pytest.raises(grpc.RpcError) as caught:
        stub.ModelInfer(request("script", code_to_run), timeout=20)
    assert (caught.value.code(), caught.value.details()) == (CODES[code], "no")
