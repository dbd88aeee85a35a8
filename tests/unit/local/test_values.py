"""What envpack and the stub send to each other, byte by byte; stub_src/local/values.h has the other side."""

import re
import socket
import struct
import threading

import pytest

from envpack.local.connection import Connection, Kind
from envpack.local.values import MALFORMED, RawTensor, Reader, Request, Response, Writer
from envpack.stub.recipe import source_folder


def number(*values):
    return struct.pack(f"<{len(values)}q", *values)


def text(value):
    return number(len(value)) + value.encode()


def padded(content):
    return content + bytes(-len(content) % 16)


TYPES = ("BOOL", "UINT8", "UINT16", "UINT32", "UINT64", "INT8", "INT16", "INT32", "INT64")
TYPES += ("FP16", "FP32", "FP64", "BYTES", "BF16")


def written(write):
    content = Writer()
    write(content)
    assert content.size == sum(map(len, content.parts))
    return b"".join(content.parts)


def test_the_stub_has_the_same_kinds_of_messages():
    text = (source_folder() / "stub_src/local/connection.h").read_text(encoding="utf-8")
    declared = text.partition("enum class Kind")[2].partition("};")[0]
    kinds, last = {}, 0
    for name, value in re.findall(r"^  k(\w+)(?: = (\d+))?,", declared, re.MULTILINE):
        last = int(value or last + 1)
        kinds[re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).upper()] = last
    assert kinds == {kind.name: kind.value for kind in Kind}


def test_the_bytes_of_a_request():
    tensors = (RawTensor("A", "INT32", (1, -1), b"1234"), RawTensor("B", "BF16", (), b""))
    request = Request(
        tensors, outputs=frozenset({"Y"}), id="i", correlation_id=9, flags=3, timeout=4, parameters="{}", model="m"
    )
    head = number(5, 5) + text("i") + number(0, 9) + text("m") + number(-1, 3, 4) + text("{}") + text("")
    head += number(1) + text("Y") + number(2)
    first = padded(head + text("A") + number(8, 2, 1, -1, 4)) + b"1234"
    expected = padded(first + text("B") + number(14, 0, 0))
    assert written(lambda content: content.request(5, request)) == expected
    assert Reader(expected).request() == request
    named = Request((), correlation_id="s", version=7)
    content = written(lambda content: content.request(1, named))
    assert content == number(1, 1) + text("") + number(1) + text("s") + text("") + number(7, 0, 0) + text("{}") + (
        text("") + number(0, 0)
    )
    assert Reader(content).request() == named


def test_the_bytes_of_a_response():
    response = Response((RawTensor("Y", "UINT8", (2,), b"\x01\x02"),), parameters='{"p":1}')
    expected = padded(number(0) + text('{"p":1}') + number(1) + text("Y") + number(2, 1, 2, 2)) + b"\x01\x02"
    assert written(lambda content: content.response(response)) == expected
    assert Reader(expected).response() == response
    failed = Response(error="bad", code=3)
    expected = number(1, 3) + text("bad") + text("") + number(0)
    assert written(lambda content: content.response(failed)) == expected
    assert Reader(expected).response() == failed


def test_each_type_has_its_number():
    for expected, name in enumerate(TYPES, start=1):
        tensor = RawTensor("", name, (), b"")
        content = written(lambda content, tensor=tensor: content.tensors((tensor,)))
        assert content == padded(number(1, 0, expected, 0, 0))
        assert Reader(content).tensors() == (tensor,)


def test_other_values_are_read_as_they_were_written():
    def write(content):
        content.number(2**63)
        content.number(-2)
        content.fraction(-0.5)
        content.texts({"a": "b", "é": ""})
        content.text(b"\xff")
        content.failure(None)
        content.failure("why")
        content.number(0)
        content.text("")

    found = Reader(written(write))
    assert (found.number(), found.signed(), found.fraction()) == (2**63, -2, -0.5)
    assert [found.number(), *(found.text() for _ in range(4))] == [2, "a", "b", "é", ""]
    assert (found.text(), found.flag(), found.failure(), found.failure()) == ("\ufffd", False, "why", None)


def test_a_tensor_counts_its_elements_by_its_shape():
    assert [RawTensor("A", "INT8", shape, b"").size for shape in ((), (3,), (2, 3), (2, 0))] == [1, 3, 6, 0]


@pytest.mark.parametrize(
    "content",
    [b"", bytes(7), number(9) + b"short", number(1) + text("A") + number(15, 0, 0), number(1) + text("A") + number(1)],
)
def test_what_no_stub_writes_is_noticed(content):
    with pytest.raises(MALFORMED):
        found = Reader(content)
        found.text() if content[:1] == b"\x09" else found.tensors()


@pytest.fixture
def ends():
    first, second = socket.socketpair()
    pair = Connection(first), Connection(second)
    yield pair
    for end in pair:
        end.close()


def sent(kind, values=0, number=0):
    def send(connection):
        content = Writer()
        for value in range(values):
            content.number(value)
        connection.send(kind, content if values else None, number)

    return send


def test_messages_arrive_whole_and_in_order(ends):
    count = 40_000  # more parts than one call of the kernel takes, and more than its buffer holds
    thread = threading.Thread(target=lambda: [sent(Kind.EXECUTE, count, 7)(ends[0]), sent(Kind.FINALIZE)(ends[0])])
    thread.start()
    first, second = ends[1].receive(), ends[1].receive()
    thread.join()
    assert (first.kind, first.id, second.kind, second.id) == (Kind.EXECUTE, 7, Kind.FINALIZE, 0)
    assert [first.content.number() for _ in range(count)] == list(range(count))


def test_the_end_of_a_connection_is_no_message(ends):
    ends[0].end()
    ends[0].end()  # again
    assert ends[1].receive() is None
    assert ends[0].receive() is None
    with pytest.raises(OSError, match="Broken pipe"):
        ends[0].send(Kind.START)


def test_half_a_message_is_none(ends):
    ends[0]._socket.sendall(struct.pack("<QQQ", Kind.LOG, 0, 10) + b"half")
    ends[0].end()
    assert ends[1].receive() is None


@pytest.mark.parametrize("header", [(Kind.LOG, 0, (1 << 36) + 1), (99, 0, 0)])
def test_a_message_that_no_stub_sends_is_noticed(ends, header):
    ends[0]._socket.sendall(struct.pack("<QQQ", *header))
    with pytest.raises(ValueError, match=r"too large|99"):
        ends[1].receive()
