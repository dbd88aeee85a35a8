"""The network of a company: a proxy, which may replace certificates by those of an authority of its own."""

import contextlib
import datetime
import select
import socket
import socketserver
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

_PIECE = 1 << 16
_SECONDS = 60.0


class Authority:
    """Issues certificates that only those trust who have its own, ``certificate``, in their store."""

    def __init__(self, folder: Path) -> None:
        self.certificate = folder / "company.crt"
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "Authority of a company")])
        constraints = x509.BasicConstraints(ca=True, path_length=0)
        own = self._sign(self._name, self._key.public_key(), constraints)
        self.certificate.write_bytes(own.public_bytes(serialization.Encoding.PEM))
        self._contexts: dict[str, ssl.SSLContext] = {}
        self._lock = threading.Lock()

    def context(self, host: str) -> ssl.SSLContext:
        """The context of a server with a certificate for a host."""
        with self._lock:
            if host not in self._contexts:
                self._contexts[host] = self._new_context(host)
            return self._contexts[host]

    def _new_context(self, host: str) -> ssl.SSLContext:
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, host[:64])])
        signed = self._sign(subject, key.public_key(), x509.SubjectAlternativeName([x509.DNSName(host)]))
        private = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        file = self._folder / f"{host}.pem"
        file.write_bytes(private + signed.public_bytes(serialization.Encoding.PEM))
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(file)
        return context

    def _sign(self, subject: x509.Name, key: ec.EllipticCurvePublicKey, *more: x509.ExtensionType) -> x509.Certificate:
        now = datetime.datetime.now(datetime.UTC)
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(days=1))
            .not_valid_after(now + datetime.timedelta(days=7))
        )
        for extension in more:
            builder = builder.add_extension(extension, critical=isinstance(extension, x509.BasicConstraints))
        return builder.sign(self._key, hashes.SHA256())


class _Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    authority: Authority | None
    hosts: set[str]


class _Handler(socketserver.StreamRequestHandler):
    server: _Server

    def handle(self) -> None:
        words = self.rfile.readline(_PIECE).split()
        while self.rfile.readline(_PIECE).strip():
            pass
        if len(words) != 3 or words[0] != b"CONNECT":
            self.wfile.write(b"HTTP/1.1 405 Method Not Allowed\r\nContent-Length: 0\r\n\r\n")
            return
        host, _, port = words[1].decode("ascii").rpartition(":")
        self.server.hosts.add(host)
        with contextlib.suppress(OSError), socket.create_connection((host, int(port)), _SECONDS) as there:
            self.wfile.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
            if self.server.authority is None:
                _relay(self.connection, there)
                return
            with (
                self.server.authority.context(host).wrap_socket(self.connection, server_side=True) as client,
                ssl.create_default_context().wrap_socket(there, server_hostname=host) as server,
            ):
                _relay(client, server)


def _relay(one: socket.socket, other: socket.socket) -> None:
    """Pass on what both sides send until one of them has finished."""
    to = {one: other, other: one}
    while True:
        ready = [side for side in to if isinstance(side, ssl.SSLSocket) and side.pending()]
        ready = ready or select.select(list(to), [], [], _SECONDS)[0]
        if not ready:
            return
        for side in ready:
            piece = side.recv(_PIECE)
            if not piece:
                return
            to[side].sendall(piece)


@contextlib.contextmanager
def proxy(authority: Authority | None = None) -> Iterator[tuple[str, set[str]]]:
    """Run a proxy during the block; yields its address and the hosts that were reached through it, which grow."""
    with _Server(("127.0.0.1", 0), _Handler) as server:
        server.authority, server.hosts = authority, set()
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}", server.hosts
        finally:
            server.shutdown()
            thread.join()
