"""Requests and streams that are sent together, to a server of the test on 127.0.0.1."""

import http.client
import json
import socket
import threading
from contextlib import ExitStack, contextmanager

import pytest

from envpack.server import kserve
from envpack.server.kserve import Client, RequestError
from envpack.server.tensors import Tensor
from envpack.server.together import infer_together, stream_together

LIMIT = 20  # seconds; only a broken feature reaches it


def request_of(number):
    return Client("http://127.0.0.1:1").infer_message("m", [Tensor("X", "INT32", (1,), (number,))], binary=False)


@contextmanager
def server(count, answer):
    """A server for so many connections, which yields its address. It answers when the requests of all are complete."""
    listener = socket.create_server(("127.0.0.1", 0))
    opened = ExitStack()

    def serve():
        connections = [opened.enter_context(listener.accept()[0]) for _ in range(count)]
        bodies = [b""] * count
        for number, connection in enumerate(connections):
            while not is_complete(bodies[number]):
                bodies[number] += connection.recv(65536)
        for body, connection in zip(bodies, connections, strict=True):
            document = json.loads(body.partition(b"\r\n\r\n")[2])
            text, ends = answer(document["X"] if "X" in document else document["inputs"][0]["data"][0])
            connection.sendall(text)
            if ends:
                connection.close()

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    with listener, opened:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        thread.join(LIMIT)


def is_complete(received):
    head, found, body = received.partition(b"\r\n\r\n")
    if not found:
        return False
    length = next(int(line.split(b":")[1]) for line in head.splitlines() if line.lower().startswith(b"content-length"))
    return len(body) >= length


def response(status, document):
    body = json.dumps(document).encode()
    return f"HTTP/1.1 {status} X\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode() + body, True


def doubled(number):
    return response(200, {"outputs": [{"name": "Y", "datatype": "INT32", "shape": [1], "data": [2 * number]}]})


def test_each_request_gets_its_answer():
    with server(5, doubled) as url:
        answers = infer_together(Client(url), [request_of(number) for number in range(5)], timeout=LIMIT)
    assert [answer[0].data for answer in answers] == [(0,), (2,), (4,), (6,), (8,)]


def test_the_last_byte_of_each_is_sent_after_the_rest_of_all(monkeypatch):
    sent, send = [], http.client.HTTPConnection.send
    monkeypatch.setattr(http.client.HTTPConnection, "send", lambda self, data: (sent.append(data), send(self, data))[1])
    messages = [request_of(number) for number in range(5)]
    with server(5, doubled) as url:
        infer_together(Client(url), messages, timeout=LIMIT)
    assert sent[-5:] == [message.body[-1:] for message in messages]
    assert b"".join(sent[:-5]).count(b"POST ") == 5


def test_an_error_is_the_answer_to_its_request_alone():
    def refuse_one(number):
        return response(400, {"error": "not one"}) if number == 1 else doubled(number)

    with server(3, refuse_one) as url:
        first, second, third = infer_together(Client(url), [request_of(n) for n in range(3)], timeout=LIMIT)
    assert (first[0].data, third[0].data) == ((0,), (4,))
    assert (second.message, second.status, second.timed_out) == ("not one", 400, False)


def test_the_limit_is_for_all_answers_together():
    with server(2, lambda _: (b"", False)) as url:
        answers = infer_together(Client(url), [request_of(n) for n in range(2)], timeout=0.5)
    assert [(answer.timed_out, answer.message) for answer in answers] == [(True, "no response within 0.5 s")] * 2


@pytest.mark.parametrize("text", [b"", b"nonsense\r\n\r\n"])
def test_what_is_no_answer_is_an_error_without_a_status(text):
    with server(1, lambda _: (text, True)) as url:
        (answer,) = infer_together(Client(url), [request_of(1)], timeout=LIMIT)
    assert (answer.status, answer.timed_out) == (0, False)
    assert answer.message.startswith("no response: ")


def test_nobody_listens():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    (answer,) = infer_together(Client(f"http://127.0.0.1:{port}"), [request_of(1)], timeout=LIMIT)
    assert isinstance(answer, RequestError)
    assert answer.status == 0


# Streams


def stream_of(number):
    return Client("http://127.0.0.1:1").stream_message("m", [Tensor("X", "INT32", (1,), (number,))])


def streamed(*lines, ends=True, status=200):
    """A response in chunks, which ends, or leaves the client waiting."""
    chunks = b"".join(f"{len(line) + 2:x}\r\n".encode() + line + b"\n\n\r\n" for line in lines)
    head = f"HTTP/1.1 {status} X\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n".encode()
    return head + chunks + (b"0\r\n\r\n" if ends else b""), ends


def stream(answer, *, timeout=LIMIT):
    with server(1, lambda _: answer) as url:
        (found,) = stream_together(Client(url), [stream_of(1)], timeout=timeout)
    return found


def test_each_request_gets_its_stream():
    def count(number):
        return streamed(*(json.dumps({"Y": n}).encode().join((b"data: ", b"")) for n in range(number)))

    with server(3, count) as url:
        found = stream_together(Client(url), [stream_of(number) for number in (2, 0, 1)], timeout=LIMIT)
    assert found == [[{"Y": 0}, {"Y": 1}], [], [{"Y": 0}]]


# What a server sends, and the error: its text, HTTP status, and number of responses of a stream without end.
BAD_STREAMS = {
    "silence": ((b"", False), "0 responses came within 0.3 s, and none with the final flag", 0, 0),
    "no end": (
        streamed(b'data: {"Y": 1}', ends=False),
        "1 response came within 0.3 s, and none with the final flag",
        0,
        1,
    ),
    "an error": (streamed(b'data: {"Y": 1}', b'data: {"error": "boom"}'), "boom", 200, None),
    "an error at once": (streamed(b'data: {"error":"boom"}', status=400), "boom", 400, None),
    "an error without a text": (streamed(b'data: {"error": ""}'), "no reason given", 200, None),
    "no JSON": (streamed(b"data: {"), "the response is malformed: ", 200, None),
    "no object": (streamed(b"data: 1"), "the response is malformed: it is no JSON object", 200, None),
    "a broken chunk": ((streamed()[0][:-5] + b"5\r\nab", True), "the stream of responses broke off: ", 200, None),
}


@pytest.mark.parametrize("name", BAD_STREAMS)
def test_a_stream_that_does_not_end_as_it_should_is_an_error(name):
    answer, text, status, count = BAD_STREAMS[name]
    found = stream(answer, timeout=LIMIT if answer[1] else 0.3)
    assert isinstance(found, RequestError)
    assert found.message.startswith(text)
    assert (found.status, found.streamed, found.timed_out) == (status, count, count is not None)


def test_a_stream_has_a_limit_of_responses(monkeypatch):
    monkeypatch.setattr(kserve, "_MOST_EVENTS", 3)
    found = stream(streamed(*[b'data: {"Y": "\xff"}'] * 9))
    assert (found.streamed, found.timed_out) == (4, True)
