"""Requests that reach a server at the same time."""

from __future__ import annotations

import contextlib
import http.client
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar
from urllib.parse import urlsplit

from envpack.server.kserve import Client, Event, InferMessage, RequestError, read_answer, read_events, unfinished
from envpack.server.tensors import Tensor

Answer = tuple[Tensor, ...] | RequestError
Stream = list[Event] | RequestError
_Found = TypeVar("_Found")
_Read = Callable[[http.client.HTTPResponse, Iterator[bytes]], _Found]


def infer_together(client: Client, messages: Sequence[InferMessage], *, timeout: float) -> list[Answer]:
    """Send inference requests on one connection each, so that all are complete within about a millisecond.

    Everything but the last byte of each is sent before; then the last bytes follow. Threads would take longer to send
    their requests than a small model needs to answer one.
    """
    late = RequestError(f"no response within {timeout:g} s", timed_out=True)
    return _sent(client, messages, timeout, lambda response, _: _tensors(response), late)


def stream_together(client: Client, messages: Sequence[InferMessage], *, timeout: float) -> list[Stream]:
    """As `infer_together`, for a decoupled model: its responses in order, or why the stream is not complete."""

    def read(response: http.client.HTTPResponse, lines: Iterator[bytes]) -> list[Event]:
        try:
            return read_events(response.status, lines, timeout)
        except http.client.HTTPException as error:
            raise RequestError(f"the stream of responses broke off: {error!r}", status=response.status) from error

    return _sent(client, messages, timeout, read, unfinished(0, timeout))


def stream(client: Client, model: str, inputs: Sequence[Tensor]) -> list[Event]:
    (found,) = stream_together(client, [client.stream_message(model, inputs)], timeout=client.timeout)
    if isinstance(found, RequestError):
        raise found
    return found


def _sent(
    client: Client, messages: Sequence[InferMessage], timeout: float, read: _Read[_Found], late: RequestError
) -> list[_Found | RequestError]:
    until = time.monotonic() + timeout
    with contextlib.ExitStack() as opened:
        connections = [_sent_but_for_the_end(client, message, timeout, opened) for message in messages]
        for connection, message in zip(connections, messages, strict=True):
            if isinstance(connection, http.client.HTTPConnection):
                with contextlib.suppress(OSError):  # the answer says it
                    connection.send(message.body[-1:])
        return [
            connection if isinstance(connection, RequestError) else _answer(connection, until, read, late)
            for connection in connections
        ]


def _sent_but_for_the_end(
    client: Client, message: InferMessage, timeout: float, opened: contextlib.ExitStack
) -> http.client.HTTPConnection | RequestError:
    address = urlsplit(client.url)
    connection = http.client.HTTPConnection(address.hostname or "", address.port, timeout=timeout)
    opened.callback(connection.close)
    headers = {**message.headers, "Content-Length": str(len(message.body)), "Connection": "close"}
    try:
        connection.putrequest("POST", address.path + message.path, skip_accept_encoding=True)
        for name, value in headers.items():
            connection.putheader(name, value)
        connection.endheaders(message.body[:-1])
    except OSError as error:
        return RequestError(f"no response: {error}")
    return connection


def _answer(
    connection: http.client.HTTPConnection, until: float, read: _Read[_Found], late: RequestError
) -> _Found | RequestError:
    socket = connection.sock  # the connection gives it to a response that ends with it

    def lines(response: http.client.HTTPResponse) -> Iterator[bytes]:
        while True:
            socket.settimeout(max(0.001, until - time.monotonic()))
            line = response.readline()
            if not line:
                return
            yield line

    try:
        socket.settimeout(max(0.001, until - time.monotonic()))
        with connection.getresponse() as response:
            return read(response, lines(response))
    except TimeoutError:
        return late
    except (OSError, http.client.HTTPException) as error:
        return RequestError(f"no response: {error}")
    except RequestError as error:
        return error


def _tensors(response: http.client.HTTPResponse) -> tuple[Tensor, ...]:
    return read_answer(response.status, response.read(), dict(response.headers))
