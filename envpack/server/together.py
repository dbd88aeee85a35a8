"""Requests that reach a server at the same time."""

from __future__ import annotations

import contextlib
import http.client
import time
from collections.abc import Sequence
from urllib.parse import urlsplit

from envpack.server.kserve import Client, InferMessage, RequestError, read_answer
from envpack.server.tensors import Tensor

Answer = tuple[Tensor, ...] | RequestError


def infer_together(client: Client, messages: Sequence[InferMessage], *, timeout: float) -> list[Answer]:
    """Send inference requests on one connection each, so that all are complete within about a millisecond.

    Everything but the last byte of each is sent before; then the last bytes follow. Threads would take longer to send
    their requests than a small model needs to answer one.

    Args:
        client: a client of the server.
        messages: the requests, see `Client.infer_message`.
        timeout: for all answers together, in seconds.

    Returns:
        For each request the output tensors, or why there are none.
    """
    until = time.monotonic() + timeout
    with contextlib.ExitStack() as opened:
        connections = [_sent_but_for_the_end(client, message, timeout, opened) for message in messages]
        for connection, message in zip(connections, messages, strict=True):
            if isinstance(connection, http.client.HTTPConnection):
                with contextlib.suppress(OSError):  # the answer says it
                    connection.send(message.body[-1:])
        return [
            connection if isinstance(connection, RequestError) else _answer(connection, until, timeout)
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


def _answer(connection: http.client.HTTPConnection, until: float, timeout: float) -> Answer:
    try:
        connection.sock.settimeout(max(0.001, until - time.monotonic()))
        response = connection.getresponse()
        return read_answer(response.status, response.read(), dict(response.headers))
    except TimeoutError:
        return RequestError(f"no response within {timeout:g} s", timed_out=True)
    except (OSError, http.client.HTTPException) as error:
        return RequestError(f"no response: {error}")
    except RequestError as error:
        return error
