"""What a registry that cannot be used is said to do, with its address and a remedy; and which faults may pass."""

import pytest
import requests
from dxf.exceptions import DXFAuthInsecureError, DXFDigestMismatchError, DXFUnauthorizedError

from envpack.deployment.images import connection as module
from envpack.deployment.images.address import parse_image_address
from envpack.deployment.images.connection import (
    AnswerTooLongError,
    PlainTextError,
    faults_of,
    is_temporary,
    registry_corrupt,
)
from envpack.deployment.images.registry import connected
from envpack.support.connection_faults import UNTRUSTED, proxy_hint, tls_fault
from envpack.support.errors import StorageError
from tests.tables import every_row

ADDRESS = parse_image_address("oci://registry.example/team/models:1")
NETWORK = "check the address and the network, and run the command again: what publish has sent is not sent again"
WRONG = "run the command again; if the error stays, report it to those who run the registry"
LOGIN = "run `docker login registry.example`, and check that this account may write there"
FORBIDDEN = "the registry refuses access, or there is no account for it"


def http_error(status, reason="x"):
    response = requests.Response()
    response.status_code, response.reason = status, reason
    return requests.HTTPError(response=response)


def unusable(reason):
    return "registry-unreachable", f"the registry cannot be used: {reason}", NETWORK


def of_tls(fault):
    return "registry-unreachable", f"the registry cannot be used: {fault.reason}", fault.hint


def corrupt(reason):
    return "registry-corrupt", f"the registry answers wrongly: {reason}", WRONG


@every_row(
    ("error", "expected"),
    [
        (DXFUnauthorizedError(), ("registry-forbidden", FORBIDDEN, LOGIN)),
        (http_error(401), ("registry-forbidden", FORBIDDEN, LOGIN)),
        (http_error(403), ("registry-forbidden", FORBIDDEN, LOGIN)),
        (DXFAuthInsecureError(), unusable("it wants a password, which is only sent over TLS")),
        (http_error(500, "Server Error"), unusable("it answers 500 Server Error")),
        (http_error(404, ""), unusable("it answers 404")),
        (http_error(404, None), unusable("it answers 404 None")),
        (requests.HTTPError(), unusable("it answers 0")),
        (PlainTextError("http://other"), unusable("it leads to an address without encryption")),
        (AnswerTooLongError(), corrupt("an answer is too long")),
        (KeyError("layers"), corrupt("an answer lacks 'layers'")),
        (ValueError("odd\nsecond"), corrupt("ValueError odd")),
        (AssertionError(), corrupt("AssertionError")),
        (DXFDigestMismatchError("a", "b"), corrupt("DXFDigestMismatchError expected digest b, got a")),
        (requests.exceptions.Timeout("Read timed out."), unusable("it does not answer in time")),
        (requests.exceptions.ConnectionError("reset by peer"), unusable("it ends connections too early")),
        (requests.exceptions.ConnectionError("Connection aborted."), unusable("it ends connections too early")),
        (requests.exceptions.ConnectionError("x Connection refused x"), unusable("it refuses connections")),
        (requests.exceptions.ConnectionError("NameResolutionError"), unusable("its name cannot be resolved")),
        (requests.exceptions.SSLError("CERTIFICATE_VERIFY_FAILED x"), of_tls(UNTRUSTED)),
        (requests.exceptions.SSLError("[SSL: WRONG_VERSION_NUMBER]"), of_tls(tls_fault("WRONG_VERSION_NUMBER"))),
        (requests.exceptions.ConnectionError("something\nelse"), unusable("something")),
        (
            requests.exceptions.JSONDecodeError("no JSON", "", 0),
            corrupt("JSONDecodeError no JSON: line 1 column 1 (char 0)"),
        ),
        (requests.RequestException("the answer comes too slowly"), unusable("it answers too slowly")),
        (requests.exceptions.InvalidURL("odd \x1b[31m"), unusable("odd \\x1b[31m")),
    ],
)
def test_each_error_of_the_libraries_is_one_line_with_a_remedy(error, expected):
    with pytest.raises(StorageError) as raised, faults_of(ADDRESS):
        raise error
    found = raised.value
    assert (found.kind, found.message, found.hint) == expected
    assert found.where == "oci://registry.example/team/models:1"


@every_row(
    ("error", "expected"),
    [
        (
            requests.exceptions.ProxyError("x OSError('Tunnel connection failed: 407 Proxy Authentication Required')"),
            "the proxy http://***@proxy.example:3128: it answers 407 Proxy Authentication Required",
        ),
        (
            requests.exceptions.ProxyError("x [Errno 111] Connection refused"),
            "the proxy http://***@proxy.example:3128: it refuses connections",
        ),
        (
            requests.exceptions.InvalidURL("Failed to parse: x"),
            "the proxy http://***@proxy.example:3128: Failed to parse: x",
        ),
        (
            requests.exceptions.ConnectionError("Connection aborted."),
            "it ends connections too early through the proxy http://***@proxy.example:3128",
        ),
    ],
)
def test_a_proxy_is_named_where_it_fails(monkeypatch, error, expected):
    monkeypatch.setenv("https_proxy", "http://me:p@ss#word@proxy.example:3128")
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(StorageError) as raised, faults_of(ADDRESS):
        raise error
    assert raised.value.message == f"the registry cannot be used: {expected}"
    assert raised.value.hint == (proxy_hint("the registry") if expected.startswith("the proxy") else NETWORK)
    monkeypatch.setenv("no_proxy", "registry.example")
    with pytest.raises(StorageError) as raised, faults_of(ADDRESS):
        raise error
    assert "proxy.example" not in raised.value.message


def test_a_proxy_in_front_of_a_registry_of_this_machine_is_named(monkeypatch):
    for name in ("https_proxy", "ALL_PROXY", "all_proxy", "NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:9")
    with pytest.raises(StorageError) as raised, connected(parse_image_address("oci://127.0.0.1:10/models:1")):
        pass
    assert raised.value.message.endswith("the proxy http://127.0.0.1:9: it refuses connections")


def test_an_error_of_envpack_itself_is_left_alone():
    own = registry_corrupt(ADDRESS, "x")
    with pytest.raises(StorageError) as raised, faults_of(ADDRESS):
        raise own
    assert raised.value is own


@every_row(
    ("error", "expected"),
    [
        *((http_error(status), True) for status in (408, 429, 500, 502, 503, 504)),
        *((http_error(status), False) for status in (400, 401, 404, 501)),
        (requests.exceptions.ConnectionError(), True),
        (requests.exceptions.ChunkedEncodingError(), True),
        (requests.exceptions.Timeout(), True),
        (requests.exceptions.SSLError(), False),
        (requests.exceptions.InvalidURL(), False),
        (ValueError(), False),
    ],
)
def test_faults_that_may_pass_are_those_of_the_moment(error, expected):
    assert is_temporary(error) is expected


class Raw:
    """The content of an answer, in pieces that take a second each."""

    def __init__(self, pieces, clock):
        self.pieces, self.clock, self.closed = [*pieces], clock, False

    def read1(self, amount, decode_content):
        assert (amount, decode_content) == (7, True)
        self.clock[0] += 1
        return self.pieces.pop(0) if self.pieces else b""

    def close(self):
        self.closed = True


@pytest.mark.parametrize(("size", "comes"), [(2, True), (1, False)])
def test_an_answer_has_a_minute_and_a_second_for_each_so_many_bytes(monkeypatch, size, comes):
    clock = [0.0]
    monkeypatch.setattr(module, "_LONGEST", 3.0)
    monkeypatch.setattr(module, "_SLOWEST", 2)
    monkeypatch.setattr(module.time, "monotonic", lambda: clock[0])
    raw = Raw([b"x" * size] * 10, clock)
    paced = module._Paced(raw)
    if comes:
        assert b"".join(paced.stream(7, decode_content=True)) == b"x" * 20
        assert not raw.closed
        return
    with pytest.raises(requests.RequestException, match="^the answer comes too slowly$"):
        list(paced.stream(7, decode_content=True))
    assert raw.closed
    assert len(raw.pieces) == 10 - 7, "after 7 s: 3 s, and 3.5 s for 7 bytes"
    assert paced.closed, "all else is that of the answer"


@pytest.mark.parametrize(("most", "fits"), [(5, True), (4, False)])
def test_a_document_is_read_up_to_a_limit(monkeypatch, most, fits):
    class Answer:
        ended = False

        def iter_content(self, size):
            return iter([b"12", b"345"])

        def close(self):
            self.ended = True

    monkeypatch.setattr(module, "_MOST_DOCUMENT", most)
    answer = Answer()
    if fits:
        module._read_bounded(answer)
        assert (answer._content, answer.ended) == (b"12345", False)
    else:
        with pytest.raises(AnswerTooLongError):
            module._read_bounded(answer)
        assert answer.ended
