"""What only clients of gRPC see: cancelled requests, and error codes by name."""

import time

import grpc
import pytest
from tritonclient.grpc import service_pb2, service_pb2_grpc

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
UNTIL_CANCELLED = (
    "import time\n"
    "self.seen = [request.is_cancelled()]\n"
    "until = time.monotonic() + 20\n"
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
    for _ in range(100):
        noted = served.evaluate("self.seen") if model == "script" else served.stream(NOTED)[0]
        if len(noted) == 2:
            return noted
        time.sleep(0.1)
    return noted


NOTED = "request.get_response_sender().send(reply(self.seen), flags=1)"


@pytest.mark.parametrize("who", ["request", "request.get_response_sender()"])
def test_a_model_sees_that_its_request_is_cancelled(served, stub, who):
    call = stub.ModelInfer.future(request("script", UNTIL_CANCELLED.format(who=who) + "return [reply('too late')]"))
    time.sleep(0.5)
    call.cancel()
    assert seen(served) == [False, True]


def test_a_decoupled_model_sees_that_its_stream_is_cancelled(served, stub):
    sender = "request.get_response_sender()"
    code = "def later():\n" + "".join(
        f"    {line}\n" for line in (UNTIL_CANCELLED.format(who=sender) + f"{sender}.send(flags=1)").splitlines()
    )
    code += "import threading\nthreading.Thread(target=later).start()"
    call = stub.ModelStreamInfer(iter([request("stream", code)]))
    time.sleep(0.5)
    call.cancel()
    assert seen(served, "stream") == [False, True]


@pytest.mark.parametrize("code", CODES)
def test_an_error_keeps_its_code(stub, code):
    code_to_run = f"return [pb_utils.InferenceResponse(error=pb_utils.TritonError('no', pb_utils.TritonError.{code}))]"
    with pytest.raises(grpc.RpcError) as caught:
        stub.ModelInfer(request("script", code_to_run), timeout=20)
    assert (caught.value.code(), caught.value.details()) == (CODES[code], "no")
