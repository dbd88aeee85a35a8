"""A token service on 127.0.0.1, as registries of clouds have one: accounts and identity tokens become bearer tokens."""

import base64
import contextlib
import http.server
import json
import time
import urllib.parse

from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from cryptography.x509 import load_pem_x509_certificate

from tests.web import running_server

SERVICE = ISSUER = "models"


class TokenService:
    """Attributes can be changed at any time.

    account: ``"user:password"`` that gets bearer tokens.
    identity: the identity token that gets them as well.
    asked: method and grant of each request so far.
    """

    def __init__(self, key, public):
        self.account, self.identity = "name:word", "refresh-me"
        self.asked = []
        self.key, self.public = key, public
        self.realm = ""
        self._key = serialization.load_pem_private_key(key.read_bytes(), None)
        self._chain = [_base64(load_pem_x509_certificate(public.read_bytes()).public_bytes(_DER), urlsafe=False)]

    def answer(self, method, query, form, authorization):
        """The status and the document for a request."""
        self.asked.append((method, form.get("grant_type", "")))
        basic = f"Basic {base64.b64encode(self.account.encode()).decode()}"
        known = authorization == basic if method == "GET" else form.get("refresh_token") == self.identity
        if not known:
            return 401, {}
        asked = query if method == "GET" else form
        token = self._token(asked["service"], asked.get("scope", ""))
        return 200, {"token": token} if method == "GET" else {"access_token": token}

    def _token(self, service, scope):
        now = int(time.time())
        claims = {
            "iss": ISSUER,
            "sub": "name",
            "aud": service,
            "nbf": now - 60,
            "iat": now,
            "exp": now + 300,
            "jti": "1",
        }
        claims["access"] = [_access(one) for one in scope.split()]
        signed = ".".join(_base64(json.dumps(part).encode()) for part in ({"alg": "ES256", "x5c": self._chain}, claims))
        numbers = decode_dss_signature(self._key.sign(signed.encode(), ec.ECDSA(hashes.SHA256())))
        return f"{signed}.{_base64(b''.join(number.to_bytes(32, 'big') for number in numbers))}"


_DER = serialization.Encoding.DER


def _base64(content, *, urlsafe=True):
    encoded = base64.urlsafe_b64encode(content).rstrip(b"=") if urlsafe else base64.b64encode(content)
    return encoded.decode()


def _access(scope):
    kind, name, actions = scope.split(":")
    return {"type": kind, "name": name, "actions": actions.split(",")}


@contextlib.contextmanager
def token_service(key, public):
    """Run a token service with TLS during the block; yields it. The files hold its key and certificate."""
    service = TokenService(key, public)

    class Handler(http.server.BaseHTTPRequestHandler):
        def log_message(self, *_):
            pass

        def _answer(self):
            query = dict(urllib.parse.parse_qsl(urllib.parse.urlsplit(self.path).query))
            form = dict(urllib.parse.parse_qsl(self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode()))
            status, document = service.answer(self.command, query, form, self.headers["Authorization"])
            self.send_response(status)
            self.end_headers()
            self.wfile.write(json.dumps(document).encode())

        do_GET = do_POST = _answer  # noqa: N815

    with running_server(Handler, (key, public)) as host:
        service.realm = f"https://{host}/token"
        yield service
