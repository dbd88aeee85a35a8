import http.server
import json
import struct
import threading

import pytest

from envpack.server.kserve import Client, RequestError
from envpack.server.tensors import Tensor


class Handler(http.server.BaseHTTPRequestHandler):
    """Returns the inputs of /infer as outputs, and stores the request."""

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.seen.append((self.path, dict(self.headers), body))
        status, headers, answer = self.server.answer(self.headers, body)
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(answer))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *args):
        pass


@pytest.fixture
def fake():
    server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
    server.seen = []
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def client(fake):
    return Client(f"http://127.0.0.1:{fake.server_port}", timeout=5)


def test_json_inference(fake, client):
    output = {"name": "OUT", "datatype": "BYTES", "shape": [1], "data": ["é"]}
    fake.answer = lambda headers, body: (200, {}, json.dumps({"outputs": [output]}).encode())
    assert client.infer("m", [Tensor("IN", "FP32", (2,), (1.0, 2.0))]) == (
        Tensor("OUT", "BYTES", (1,), ("é".encode(),)),
    )
    path, headers, body = fake.seen[0]
    assert path == "/v2/models/m/infer"
    assert headers["Connection"] == "close"
    assert json.loads(body)["inputs"][0]["data"] == [1.0, 2.0]


@pytest.mark.parametrize(
    "tensor",
    [
        Tensor("IN", "FP16", (1,), (1.0,)),
        Tensor("IN", "BYTES", (1,), (b"\xff",)),
        Tensor("IN", "INT8", (10000,), (1,) * 10000),
    ],
)
def test_binary_for_tensors_that_json_cannot_represent_or_that_are_large(fake, client, tensor):
    def answer(headers, body):
        length = int(headers["Inference-Header-Content-Length"])
        sent = json.loads(body[:length])
        assert sent["parameters"]["binary_data_output"] is True
        head = json.dumps({"outputs": [{**sent["inputs"][0], "name": "OUT"}]}).encode()
        return 200, {"Inference-Header-Content-Length": str(len(head))}, head + body[length:]

    fake.answer = answer
    (got,) = client.infer("m", [tensor])
    assert got == Tensor("OUT", tensor.datatype, tensor.shape, tensor.data)


@pytest.mark.parametrize("binary", [True, False])
def test_outputs_that_a_request_names_have_the_form_of_all(client, binary):
    """A server sends them as JSON unless each says otherwise."""
    message = client.infer_message("m", [Tensor("IN", "FP32", (1,), (1.0,))], binary=binary, outputs=["OUT"])
    described, _ = json.JSONDecoder().raw_decode(message.body.decode("latin-1"))
    assert described["outputs"] == [{"name": "OUT", "parameters": {"binary_data": binary}}]


def test_a_truncated_response_is_an_error(fake, client):
    output = {"name": "OUT", "datatype": "FP32", "shape": [1], "parameters": {"binary_data_size": 4}}
    head = json.dumps({"outputs": [output]}).encode()
    fake.answer = lambda h, b: (200, {"Inference-Header-Content-Length": str(len(head))}, head + struct.pack("<H", 1))
    with pytest.raises(RequestError, match="malformed"):
        client.infer("m", [Tensor("IN", "FP32", (1,), (1.0,))])


def test_the_servers_message_is_kept(fake, client):
    fake.answer = lambda headers, body: (400, {}, b'{"error": "no such model"}')
    with pytest.raises(RequestError, match="no such model") as caught:
        client.load("m", timeout=1)
    assert caught.value.status == 400


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b'{"outputs":[{"name":"Y"}]}\0\0\x80?{"error":"expected a single response, got 2"}', "expected a single res"),
        (b'<html>{"error": in words}</html>', "<html>"),
        (b"[1]", r"\[1\]"),
    ],
)
def test_an_error_behind_a_response_is_the_message_and_what_is_none_is_kept(fake, client, body, said):
    fake.answer = lambda headers, _: (400, {}, body)
    with pytest.raises(RequestError, match=f"^{said}"):
        client.infer("m", [Tensor("IN", "FP32", (1,), (1.0,))])


def test_no_server():
    client = Client("http://127.0.0.1:1", timeout=1)
    assert not client.live()
    with pytest.raises(RequestError, match="no response"):
        client.index()
