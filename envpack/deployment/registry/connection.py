"""HTTP requests to a registry: within time limits, bounded, and encrypted unless they stay on this machine."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from envpack.deployment.registry.address import ImageAddress, is_loopback
from envpack.support.errors import UsageError
from envpack.support.installation import install_command
from envpack.support.isolation import verification_setting

if TYPE_CHECKING:
    from dxf import DXF
    from requests import PreparedRequest, Response

_MOST_DOCUMENT = 16 << 20  # bytes of an answer that is no blob
_PIECE = 64 << 10


class PlainTextError(Exception):
    """A registry leads to an address on another machine without encryption."""


class AnswerTooLongError(Exception):
    """An answer that should be a small document is too long."""


def require_library(address: ImageAddress) -> None:
    """Check that the extra is installed."""
    try:
        import dxf  # noqa: F401
    except ImportError:
        raise UsageError(
            f"oci://{address} needs python-dxf, which is not installed",
            kind="registry-client-missing",
            hint=install_command("oci"),
        ) from None


@functools.cache
def client_class() -> type[DXF]:
    """The class of clients, made when it is needed, because its library takes time to import."""
    from dxf import DXF
    from requests.adapters import HTTPAdapter

    class Adapter(HTTPAdapter):
        """Sends one request."""

        def send(self, request: PreparedRequest, stream: bool = False, **options: Any) -> Response:  # type: ignore[override]
            url = request.url or ""
            if url.lower().startswith("http:") and not is_loopback(_host_of(url)):
                raise PlainTextError(url)
            response = super().send(request, stream=True, **options)
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


def _read_bounded(response: Response) -> None:
    """Read a whole answer within a limit."""
    pieces, size = [], 0
    for piece in response.iter_content(_PIECE):
        size += len(piece)
        if size > _MOST_DOCUMENT:
            response.close()
            raise AnswerTooLongError
        pieces.append(piece)
    response._content = b"".join(pieces)  # noqa: SLF001 - as `Response.content` does


def _host_of(url: str) -> str:
    from urllib.parse import urlsplit

    return urlsplit(url).hostname or ""
