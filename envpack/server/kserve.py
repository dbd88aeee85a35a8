"""A client of Triton's HTTP interface (KServe v2 and the model repository extension)."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from envpack.server.log import stated
from envpack.server.tensors import BINARY_ONLY, Tensor, Value, decode, encode
from envpack.support.bounded_reading import parse_json
from envpack.support.certificates import trusted_certificates
from envpack.support.text import counted

_LARGE = 64 * 1024
_CONTROL_SECONDS = 30.0
_MOST_EVENTS = 100_000  # of a stream
_HEADER_LENGTH = "Inference-Header-Content-Length"

Event = dict[str, Any]


class RequestError(Exception):
    """The server rejected a request, or no response was received. The message is never blank."""

    def __init__(self, message: str, *, status: int = 0, timed_out: bool = False, streamed: int | None = None) -> None:
        self.message = stated(message)
        super().__init__(self.message)
        self.status = status
        self.timed_out = timed_out
        self.streamed = streamed
        # Of a request after one that was answered: what is special about it, and how many items it has.
        self.sent, self.items = "", 0

    @property
    def connection_lost(self) -> bool:
        """Whether the server has neither answered nor let the time pass: it has ended."""
        return not (self.status or self.timed_out)


@dataclass(frozen=True)
class InferMessage:
    """An inference request as it is sent: the path below the server's address, headers and body."""

    path: str
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True)
class IndexEntry:
    """A model in the repository index."""

    name: str
    state: str  # READY, LOADING, UNAVAILABLE, …; empty for a model that was never loaded
    reason: str  # why it is unavailable
    version: str = ""


class Client:
    """HTTP client of one server.

    Every connection is closed after use, because an open connection delays the server's stop by up to
    ``--exit-timeout-secs``. Proxies and other settings of the environment are ignored.
    """

    def __init__(self, url: str, *, timeout: float = 30.0, version: str = "") -> None:
        import requests

        self.url = url  # without a trailing slash
        self.timeout = timeout  # default limit in seconds for a response
        self._version = version
        self._session = requests.Session()
        self._session.trust_env = False
        self._session.verify = trusted_certificates() or True
        self._session.headers["Connection"] = "close"

    def of_version(self, version: str) -> Client:
        return Client(self.url, timeout=self.timeout, version=version)

    def live(self) -> bool:
        try:
            self._send("GET", "/v2/health/live", timeout=2.0)
        except RequestError:
            return False
        return True

    def server_version(self) -> str:
        return str(self._json("GET", "/v2").get("version", ""))

    def index(self) -> tuple[IndexEntry, ...]:
        entries = _parsed(self._send("POST", "/v2/repository/index", timeout=self._control_timeout).content)
        try:
            return tuple(
                IndexEntry(e["name"], e.get("state", ""), e.get("reason", ""), e.get("version", "")) for e in entries
            )
        except (AttributeError, KeyError, TypeError) as error:
            raise RequestError(f"the response is malformed: {error}", status=200) from error

    def load(self, model: str, *, timeout: float) -> None:
        """Load a model; returns when it is loaded, raises `RequestError` if it fails or takes ``timeout`` seconds."""
        self._send("POST", f"/v2/repository/models/{model}/load", timeout=timeout)

    def unload(self, model: str) -> None:
        """Request that the server unload a model; unloading continues after this call returns."""
        self._send("POST", f"/v2/repository/models/{model}/unload", timeout=self._control_timeout)

    def config(self, model: str) -> dict[str, Any]:
        return self._json("GET", f"{self._path(model)}/config")

    def statistics(self, model: str) -> dict[str, Any]:
        return self._json("GET", f"{self._path(model)}/stats")

    def infer(
        self,
        model: str,
        inputs: Sequence[Tensor],
        *,
        binary: bool | None = None,
        parameters: Mapping[str, object] | None = None,
    ) -> tuple[Tensor, ...]:
        message = self.infer_message(model, inputs, binary=binary, parameters=parameters)
        response = self._send("POST", message.path, body=message.body, headers=message.headers)
        return read_answer(response.status_code, response.content, response.headers)

    def infer_message(
        self,
        model: str,
        inputs: Sequence[Tensor],
        *,
        binary: bool | None = None,
        parameters: Mapping[str, object] | None = None,
        request_id: str = "",
        outputs: Sequence[str] = (),
    ) -> InferMessage:
        if binary is None:
            binary = any(needs_binary(tensor) for tensor in inputs)
        described, tail = _request(inputs, binary, parameters or {})
        if request_id:
            described["id"] = request_id
        if outputs:
            # A server applies binary_data_output to the outputs of requests that name none.
            described["outputs"] = [{"name": name, "parameters": {"binary_data": binary}} for name in outputs]
        header = json.dumps(described).encode()
        headers = {_HEADER_LENGTH: str(len(header))} if binary else {"Content-Type": "application/json"}
        return InferMessage(f"{self._path(model)}/infer", headers, header + tail)

    def stream_message(self, model: str, inputs: Sequence[Tensor]) -> InferMessage:
        """A request to a decoupled model, which can send any number of responses; see `stream_together`."""
        body: dict[str, object] = {}
        for tensor in inputs:
            values = [item.decode("utf-8") if isinstance(item, bytes) else item for item in tensor.data]
            body[tensor.name] = values[0] if len(values) == 1 else values
        headers = {"Content-Type": "application/json"}
        return InferMessage(f"{self._path(model)}/generate_stream", headers, json.dumps(body).encode())

    @property
    def _control_timeout(self) -> float:
        """The time limit for what the server answers itself, however little time a model may take."""
        return max(self.timeout, _CONTROL_SECONDS)

    def _path(self, model: str) -> str:
        return f"/v2/models/{model}/versions/{self._version}" if self._version else f"/v2/models/{model}"

    def _json(self, method: str, path: str) -> dict[str, Any]:
        value = _parsed(self._send(method, path, timeout=self._control_timeout).content)
        return value if isinstance(value, dict) else {}

    def _send(
        self,
        method: str,
        path: str,
        *,
        body: bytes = b"",
        headers: Mapping[str, str] | None = None,
        timeout: float | None = None,
    ) -> Any:
        import requests

        try:
            response = self._session.request(
                method, self.url + path, data=body, headers=headers, timeout=timeout or self.timeout
            )
        except requests.Timeout as error:
            raise RequestError(f"no response within {timeout or self.timeout:g} s", timed_out=True) from error
        except requests.RequestException as error:
            raise RequestError(f"no response: {error}") from error
        if not response.ok:
            raise RequestError(_error_text(response.content), status=response.status_code)
        return response


def read_answer(status: int, content: bytes, headers: Mapping[str, str]) -> tuple[Tensor, ...]:
    if status >= 400:
        raise RequestError(_error_text(content), status=status)
    try:
        return _outputs(content, int(headers.get(_HEADER_LENGTH, len(content))))
    except (AttributeError, ValueError, KeyError, TypeError) as error:
        raise RequestError(f"the response is malformed: {error}", status=200) from error


def read_events(status: int, lines: Iterable[bytes], timeout: float) -> list[Event]:
    """The responses in a stream that `Client.stream_message` asks for, one dictionary of outputs for each."""
    if status >= 400:
        raise RequestError(_error_text(b"".join(lines).removeprefix(b"data: ")), status=status)
    events: list[Event] = []
    try:
        for line in lines:
            if line.startswith(b"data:"):
                events.append(_event(line, status))
            if len(events) > _MOST_EVENTS:
                break
        else:
            return events
    except TimeoutError:
        pass
    raise unfinished(len(events), timeout)


def unfinished(count: int, timeout: float) -> RequestError:
    came = f"{counted(count, 'response')} came within {timeout:g} s"
    return RequestError(f"{came}, and none with the final flag", timed_out=True, streamed=count)


def _event(line: bytes, status: int) -> Event:
    event = _parsed(line.removeprefix(b"data:"))
    if not isinstance(event, dict):
        raise RequestError("the response is malformed: it is no JSON object", status=status)
    if "error" in event:
        raise RequestError(str(event["error"]), status=status)
    return event


def _parsed(content: bytes) -> Any:
    """The value in a response of the server; bytes of a model that are no text are replaced."""
    try:
        return parse_json(content.decode("utf-8", "replace"))
    except ValueError as error:
        raise RequestError(f"the response is malformed: {error}", status=200) from error


def needs_binary(tensor: Tensor) -> bool:
    """Whether a tensor is larger than 64 KiB or has a type that JSON cannot represent."""
    if tensor.datatype == "BYTES":
        return sum(len(i) for i in tensor.data if isinstance(i, bytes)) > _LARGE or not all(map(is_text, tensor.data))
    return tensor.datatype in BINARY_ONLY or len(tensor.data) * 8 > _LARGE


def is_text(item: Value) -> bool:
    """Whether JSON can represent a string of a tensor."""
    try:
        return not isinstance(item, bytes) or item.decode("utf-8") is not None
    except UnicodeDecodeError:
        return False


def _request(
    inputs: Sequence[Tensor], binary: bool, parameters: Mapping[str, object]
) -> tuple[dict[str, object], bytes]:
    described = []
    tail = b""
    for tensor in inputs:
        entry: dict[str, object] = {"name": tensor.name, "datatype": tensor.datatype, "shape": list(tensor.shape)}
        if binary:
            raw = encode(tensor.datatype, tensor.data)
            entry["parameters"] = {"binary_data_size": len(raw)}
            tail += raw
        else:
            entry["data"] = [item.decode("utf-8") if isinstance(item, bytes) else item for item in tensor.data]
        described.append(entry)
    return {"inputs": described, "parameters": {**parameters, "binary_data_output": binary}}, tail


def _outputs(content: bytes, header_length: int) -> tuple[Tensor, ...]:
    tensors = []
    at = header_length
    for output in parse_json(content[:header_length])["outputs"]:
        size = output.get("parameters", {}).get("binary_data_size")
        if size is None:
            data = tuple(item.encode() if isinstance(item, str) else item for item in output["data"])
        else:
            data = decode(output["datatype"], content[at : at + size])
            at += size
        tensors.append(Tensor(output["name"], output["datatype"], tuple(output["shape"]), data))
    return tuple(tensors)


def _error_text(content: bytes) -> str:
    """What a server says in an error, which it appends to a response that it has written already."""
    text = content.decode("utf-8", "replace")
    for document in (text, text[max(text.rfind('{"error":'), 0) :]):
        with contextlib.suppress(ValueError):
            value = parse_json(document)
            return str(value["error"]) if isinstance(value, dict) and "error" in value else text
    return text
