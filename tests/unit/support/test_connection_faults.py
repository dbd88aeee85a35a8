"""Why a connection fails, from the texts of real TLS libraries; and the proxy that a request goes through."""

import http.server
import ssl
import threading

import pytest
import requests
from obstore import get as get_object
from obstore.store import HTTPStore

from envpack.support.connection_faults import network_hint, proxy_hint, proxy_of, tls_fault
from envpack.support.uv import run_uv
from tests.registries import certificate
from tests.tables import every_row


@pytest.fixture
def site(tmp_path, monkeypatch):
    """Starts a server with a certificate; returns its address. All clients trust the certificate's authority."""
    started = []

    def start(*, plain=False, asks_client=False, **options):
        key, public = certificate(tmp_path, **{"authority": False} | options)
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), http.server.BaseHTTPRequestHandler)
        if not plain:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(public, key)
            if asks_client:
                context.verify_mode = ssl.CERT_REQUIRED
            server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
        monkeypatch.setattr(server, "handle_error", lambda *_: None)
        monkeypatch.setenv("SSL_CERT_FILE", str(public))
        monkeypatch.setenv("UV_HTTP_RETRIES", "0")
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        started.append((server, thread))
        return f"https://127.0.0.1:{server.server_address[1]}/simple"

    yield start
    for server, thread in started:
        server.shutdown()
        thread.join()
        server.server_close()


def texts_of(address, folder):
    """What the clients that envpack uses say about a server: those of registries, of stores and of indexes."""
    (folder / "requirements.in").write_text("six\n")
    with pytest.raises(requests.RequestException) as openssl:
        requests.get(address, verify=str(folder / "registry.crt"), timeout=60)
    with pytest.raises(Exception, match="Generic") as rustls:
        get_object(HTTPStore(address, retry_config={"max_retries": 0}), "x")
    words = ["pip", "compile", "--no-cache", "--index-url", address, folder / "requirements.in"]
    return {"requests": str(openssl.value), "obstore": str(rustls.value), "uv": run_uv(words).stderr}


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"days": -1}, "its certificate has expired"),
        ({"host": "127.0.0.9"}, "its certificate is for another name"),
        ({"plain": True}, "it does not speak TLS"),
    ],
)
def test_each_library_gives_the_reason_in_its_own_words(site, tmp_path, options, reason):
    texts = texts_of(site(**options), tmp_path)
    found = {name: fault.reason if (fault := tls_fault(text)) else text for name, text in texts.items()}
    assert found == dict.fromkeys(texts, reason)


def test_a_certificate_of_an_authority_is_rejected_by_rustls(site, tmp_path):
    address = site(authority=True)
    (tmp_path / "requirements.in").write_text("six\n")
    said = run_uv(["pip", "compile", "--no-cache", "--index-url", address, tmp_path / "requirements.in"]).stderr
    assert tls_fault(said).reason == "its certificate is that of an authority"


def test_a_certificate_of_the_client_that_is_missing_is_named(site, tmp_path):
    texts = texts_of(site(asks_client=True), tmp_path)
    del texts["requests"]  # sends its request before it reads the alert, and may only see that the connection ended
    assert {tls_fault(text).reason for text in texts.values()} == {"it requires a certificate of the client"}


@every_row(
    ("text", "reason"),
    [
        ("certificate verify failed: unable to get local issuer certificate", "its certificate is not trusted"),
        ("invalid peer certificate: UnknownIssuer", "its certificate is not trusted"),
        ("certificate verify failed: certificate is not yet valid (_ssl.c:1006)", "its certificate is not valid yet"),
        (
            "invalid peer certificate: certificate not valid yet: verification time 1",
            "its certificate is not valid yet",
        ),
        ("[SSL: TLSV13_ALERT_CERTIFICATE_REQUIRED]", "it requires a certificate of the client"),
    ],
)
def test_reasons_of_other_certificates(text, reason):
    assert tls_fault(text).reason == reason


@every_row("text", ["https://index/expired_certificates/", "Request has expired", "Connection refused"])
def test_other_errors_are_none_of_tls(text):
    assert tls_fault(text) is None


@every_row(
    ("url", "variables", "proxy"),
    [
        ("https://index.example/x", {}, ""),
        ("https://index.example/x", {"HTTPS_PROXY": "http://proxy:1"}, "http://proxy:1"),
        ("https://index.example/x", {"https_proxy": "http://a:1", "HTTPS_PROXY": "http://b:1"}, "http://a:1"),
        ("https://index.example/x", {"ALL_PROXY": "http://proxy:1"}, "http://proxy:1"),
        ("https://index.example/x", {"HTTP_PROXY": "http://proxy:1"}, ""),
        ("http://index.example/x", {"HTTP_PROXY": "http://proxy:1"}, "http://proxy:1"),
        ("https://index.example/x", {"HTTPS_PROXY": "http://proxy:1", "NO_PROXY": "a, .example"}, ""),
        ("https://index.example/x", {"HTTPS_PROXY": "http://proxy:1", "no_proxy": "other"}, "http://proxy:1"),
        ("https://index.example/x", {"HTTPS_PROXY": "http://me:p@ss#word@proxy:1"}, "http://***@proxy:1"),
        ("https://index.example/x", {"HTTPS_PROXY": "http://me:p@ss wo/rd@proxy:1"}, "http://***@proxy:1"),
        ("https://10.1.2.3:8443/x", {"HTTPS_PROXY": "http://proxy:1", "NO_PROXY": "10.0.0.0/8"}, ""),
        ("https://10.1.2.3:8443/x", {"HTTPS_PROXY": "http://proxy:1", "NO_PROXY": "11.0.0.0/8"}, "http://proxy:1"),
        ("file:///channel", {"ALL_PROXY": "http://proxy:1"}, ""),
    ],
)
def test_the_proxy_of_an_address(url, variables, proxy):
    assert proxy_of(url, variables) == proxy


@every_row(
    ("text", "proxy", "hint"),
    [
        ("tunnel error: unsuccessful", "http://proxy:1", proxy_hint("the index")),
        ("tunnel error: unsuccessful", "", "check the address and the network"),
        ("HTTP status client error (407 Proxy Authentication Required)", "http://proxy:1", proxy_hint("the index")),
        ("503 Service Unavailable", "http://proxy:1", "check the address and the network"),
        ("certificate has expired", "http://proxy:1", tls_fault("certificate has expired").hint),
    ],
)
def test_what_to_do_about_a_server_that_cannot_be_reached(text, proxy, hint):
    assert network_hint(text, "the index", proxy) == hint
