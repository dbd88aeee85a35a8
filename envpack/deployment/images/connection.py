"""Requests to a registry: within time limits, bounded, encrypted unless they stay on this machine; and their errors."""

from __future__ import annotations

import contextlib
import functools
import re
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from envpack.deployment.images.accounts import Account
from envpack.deployment.images.address import ImageAddress, is_loopback
from envpack.support.certificates import verification_setting
from envpack.support.connection_faults import proxy_hint, proxy_of, through, tls_fault
from envpack.support.errors import StorageError, UsageError
from envpack.support.installation import install_command
from envpack.support.text import one_line, printable_line

if TYPE_CHECKING:
    from dxf import DXF
    from requests import PreparedRequest, RequestException, Response


TIMEOUT = 60.0  # seconds without a byte
_MOST_DOCUMENT = 16 << 20  # bytes of an answer that is no blob
_PIECE = 64 << 10
_LONGEST = 60.0  # seconds of an answer, and
_SLOWEST = 16 << 10  # bytes for each second more


class PlainTextError(Exception):
    """A registry leads to an address on another machine without encryption."""


class AnswerTooLongError(Exception):
    """An answer that should be a small document is too long."""


def require_library(address: ImageAddress) -> None:
    try:
        import dxf  # noqa: F401
    except ImportError:
        what = f"oci://{address} needs python-dxf, which is not installed"
        raise UsageError("registry-client-missing", what, install_command("oci")) from None


@functools.cache
def client_class() -> type[DXF]:
    """The class of clients, made when it is needed, because its library takes time to import."""
    from dxf import DXF
    from requests.adapters import HTTPAdapter

    class Adapter(HTTPAdapter):
        """Sends one request."""

        def send(self, request: PreparedRequest, stream: bool = False, **options: Any) -> Response:  # type: ignore[override]
            url = request.url or ""
            if url.lower().startswith("http:") and not is_loopback(urlsplit(url).hostname or ""):
                raise PlainTextError(url)
            response = super().send(request, stream=True, **options)
            response.raw = _Paced(response.raw)
            if not stream:
                _read_bounded(response)
            return response

    class Client(DXF):
        """A client whose session has these adapters."""

        def __enter__(self) -> Client:
            super().__enter__()
            session: Any = self._sessions[0]
            session.trust_env = True  # proxies and certificates of the user
            session.verify = verification_setting()
            for scheme in ("http://", "https://"):
                session.mount(scheme, Adapter())
            return self

        def request(self, method: str, path: str, **options: Any) -> Response:
            """Send a request about the repository, with an account if the registry wants one."""
            response: Response = self._request(method, path, **options)  # type: ignore[no-untyped-call]
            return response

    return Client


def log_in(client: Any, challenge: Response, account: Account | None) -> None:
    """Get from a registry, which answered 401 with a challenge, what further requests are sent with."""
    from dxf.exceptions import DXFAuthInsecureError, DXFUnauthorizedError

    if account is None or not account.identity_token:
        names = {"username": account.user, "password": account.password} if account else {}
        client.authenticate(response=challenge, **names)
        return
    import www_authenticate  # a dependency of dxf, which knows no identity tokens

    bearer = www_authenticate.parse(challenge.headers["www-authenticate"]).get("bearer")
    if bearer is None:  # it wants a name and a password
        raise DXFUnauthorizedError
    if urlsplit(bearer["realm"]).scheme != "https":
        raise DXFAuthInsecureError
    asked = {name: bearer[name] for name in ("service", "scope") if name in bearer}
    form = {"grant_type": "refresh_token", "client_id": "envpack", "refresh_token": account.identity_token, **asked}
    session = client._sessions[0]  # noqa: SLF001 - it has these adapters
    answer = session.post(bearer["realm"], form, timeout=TIMEOUT, allow_redirects=False)  # the token is for this host
    answer.raise_for_status()
    client.token = answer.json()["access_token"]


class _Paced:
    """The content of an answer, which may not come too slowly; the time limit of a connection is for each packet."""

    def __init__(self, raw: Any) -> None:
        self._raw = raw

    def __getattr__(self, name: str) -> Any:
        return getattr(self._raw, name)

    def stream(self, amount: int, decode_content: bool | None = None) -> Iterator[bytes]:
        from requests.exceptions import RequestException

        begun, received = time.monotonic(), 0
        while piece := self._raw.read1(amount, decode_content=decode_content):
            received += len(piece)
            yield piece
            if time.monotonic() - begun > _LONGEST + received / _SLOWEST:
                self._raw.close()
                raise RequestException("the answer comes too slowly")


def _read_bounded(response: Response) -> None:
    pieces, size = [], 0
    for piece in response.iter_content(_PIECE):
        size += len(piece)
        if size > _MOST_DOCUMENT:
            response.close()
            raise AnswerTooLongError
        pieces.append(piece)
    response._content = b"".join(pieces)  # noqa: SLF001 - as `Response.content` does


_REFUSES = (401, 403)
_TEMPORARY = (408, 429, 500, 502, 503, 504)
_REASONS = (
    (re.compile(r"too slowly"), "it answers too slowly"),
    (re.compile(r"Connection refused"), "it refuses connections"),
    (re.compile(r"NameResolution|Name or service|getaddrinfo|resolve"), "its name cannot be resolved"),
    (re.compile(r"[Tt]imed out|Timeout"), "it does not answer in time"),
    (re.compile(r"Tunnel connection failed: (?P<answer>\d{3}[ \w-]{0,60})"), "it answers {answer}"),
    (re.compile(r"aborted|reset|IncompleteRead|Broken pipe|EOF|prematurely"), "it ends connections too early"),
)


def is_temporary(error: BaseException) -> bool:
    from requests.exceptions import ChunkedEncodingError, ConnectionError as NoConnection, HTTPError, SSLError, Timeout

    if isinstance(error, HTTPError):
        return error.response.status_code in _TEMPORARY
    return isinstance(error, (NoConnection, ChunkedEncodingError, Timeout)) and not isinstance(error, SSLError)


def registry_corrupt(address: ImageAddress, reason: str) -> StorageError:
    fix = "run the command again; if the error stays, report it to those who run the registry"
    return StorageError("registry-corrupt", f"the registry answers wrongly: {reason}", fix, f"oci://{address}")


@contextlib.contextmanager
def faults_of(address: ImageAddress) -> Iterator[None]:
    """Turn errors of the client's libraries into errors for users."""
    from dxf.exceptions import DXFAuthInsecureError, DXFError, DXFUnauthorizedError
    from requests.exceptions import HTTPError, JSONDecodeError, RequestException

    try:
        yield
    except DXFUnauthorizedError as error:
        raise _forbidden(address) from error
    except DXFAuthInsecureError as error:
        raise _unreachable(address, "it wants a password, which is only sent over TLS") from error
    except HTTPError as error:
        answer = error.response
        status, words = (answer.status_code, str(answer.reason)) if answer is not None else (0, "")
        if status in _REFUSES:
            raise _forbidden(address) from error
        raise _unreachable(address, f"it answers {status} {printable_line(words)}".strip()) from error
    except PlainTextError as error:
        raise _unreachable(address, "it leads to an address without encryption") from error
    except AnswerTooLongError as error:
        raise registry_corrupt(address, "an answer is too long") from error
    except RequestException as error:
        if isinstance(error, JSONDecodeError):
            raise registry_corrupt(address, _wrong(error)) from error
        raise _no_answer(address, error) from error
    except (DXFError, ValueError, KeyError, TypeError, AttributeError, AssertionError) as error:
        raise registry_corrupt(address, _wrong(error)) from error


def _no_answer(address: ImageAddress, error: RequestException) -> StorageError:
    """The error for a request without an answer; the proxy is named if it is the cause."""
    from requests.exceptions import InvalidURL, ProxyError, SSLError

    proxy = proxy_of(f"https://{address.host}/")
    if isinstance(error, (ProxyError, InvalidURL)) and proxy:
        reason = f"the proxy {proxy}: {_reason(error)}"
        return _unreachable(address, reason, proxy_hint("the registry"))
    fault = tls_fault(str(error)) if isinstance(error, SSLError) else None
    if fault:
        return _unreachable(address, fault.reason, fault.hint)
    return _unreachable(address, f"{_reason(error)}{through(proxy)}")


def _reason(error: BaseException) -> str:
    text = str(error)
    for pattern, reason in _REASONS:
        if found := pattern.search(text):
            return reason.format(**found.groupdict())
    return one_line(printable_line(text.partition("\n")[0]))


def _wrong(error: BaseException) -> str:
    if isinstance(error, KeyError):
        return f"an answer lacks {printable_line(str(error))}"
    return f"{type(error).__name__} {one_line(printable_line(str(error).partition(chr(10))[0]))}".strip()


def _forbidden(address: ImageAddress) -> StorageError:
    what = "the registry refuses access, or there is no account for it"
    fix = f"run `docker login {address.registry}`, and check that this account may write there"
    return StorageError("registry-forbidden", what, fix, f"oci://{address}")


_CHECK = "check the address and the network, and run the command again: what publish has sent is not sent again"


def _unreachable(address: ImageAddress, reason: str, fix: str = _CHECK) -> StorageError:
    return StorageError("registry-unreachable", f"the registry cannot be used: {reason}", fix, f"oci://{address}")
