"""Streams of responses from a real server: with shapes and types they come by gRPC only."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from envpack.local import RawTensor, Request
from envpack.server import Server, unfinished
from envpack.support.errors import UsageError
from envpack.testing.models import ModelError

Outputs = tuple[RawTensor, ...]

__tracebackhide__ = True  # pytest shows the line of the test instead
# The server binds a free port.
GRPC_ARGUMENTS = ("--allow-grpc=true", "--grpc-address=127.0.0.1", "--grpc-port=0")


def stream_by_grpc(
    server: Server, request: Request, parameters: Mapping[str, object], timeout: float
) -> Iterator[Outputs]:
    """Send a request and yield the outputs of each response; closing the iterator cancels the request."""
    other_ports = getattr(server, "other_ports", None)
    if other_ports is None:
        raise UsageError(
            "grpc-missing",
            f"stream() of model {request.model!r} needs gRPC, which a server in a container does not offer here",
            "install a server on this machine, or run the tests with --local",
        )
    try:
        import grpc
        from tritonclient.grpc import service_pb2, service_pb2_grpc
    except ImportError as error:
        raise UsageError(
            "grpc-missing",
            f"stream() of model {request.model!r} on a real server needs gRPC: {error}",
            "pip install 'tritonclient[grpc]', or run the tests with --local",
        ) from None
    (port,) = other_ports()
    message = service_pb2.ModelInferRequest(
        model_name=request.model,
        id=request.id,
        raw_input_contents=[bytes(tensor.content) for tensor in request.inputs],
    )
    for tensor in request.inputs:
        message.inputs.add(name=tensor.name, datatype=tensor.datatype, shape=tensor.shape)
    for name in sorted(request.outputs):
        message.outputs.add(name=name)
    for name, value in parameters.items():
        _set(message.parameters[name], value)
    with grpc.insecure_channel(f"127.0.0.1:{port}", options=[("grpc.max_receive_message_length", -1)]) as channel:
        call = service_pb2_grpc.GRPCInferenceServiceStub(channel).ModelStreamInfer(iter([message]), timeout=timeout)
        count = 0
        try:
            for answer in call:
                # The message of an error can be empty; only a response names the version of its model.
                if answer.error_message or not answer.infer_response.model_version:
                    raise ModelError(answer.error_message)
                count += 1
                yield _outputs(answer.infer_response)
        except grpc.RpcError as error:
            if error.code() == grpc.StatusCode.DEADLINE_EXCEEDED:
                raise unfinished(count, timeout) from None
            raise ModelError(str(error.details())) from None
        finally:
            call.cancel()


def _set(parameter: Any, value: object) -> None:
    kinds = {bool: "bool_param", int: "int64_param", float: "double_param"}
    setattr(parameter, kinds.get(type(value), "string_param"), value)


def _outputs(response: Any) -> Outputs:
    return tuple(
        RawTensor(output.name, output.datatype, tuple(output.shape), content)
        for output, content in zip(response.outputs, response.raw_output_contents, strict=True)
    )
