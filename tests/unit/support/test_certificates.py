"""The authorities that this machine trusts."""

import os
import tempfile
from pathlib import Path

import pytest

from envpack.support.certificates import (
    _CHOSEN,
    _OF_REQUESTS,
    check_authorities,
    trusted_certificates,
    verification_setting,
)
from envpack.support.errors import InputError
from tests.tables import every_row


def test_authorities_are_those_that_the_user_names_else_those_of_the_machine(tmp_path, monkeypatch):
    for name in (*_CHOSEN, *_OF_REQUESTS):
        monkeypatch.delenv(name, raising=False)
    own, named, chosen = (str(tmp_path / f"{name}.pem") for name in ("own", "named", "chosen"))
    for file in (own, named, chosen):
        Path(file).write_text("-----BEGIN CERTIFICATE-----")
    monkeypatch.setattr("envpack.support.certificates._BUNDLES", (tmp_path / "none", Path(own)))
    monkeypatch.setenv("UV_SYSTEM_CERTS", "1")
    assert (trusted_certificates(), verification_setting()) == (own, own)
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", named)
    assert (trusted_certificates(), verification_setting()) == (named, named)
    monkeypatch.setenv("SSL_CERT_FILE", chosen)
    assert (trusted_certificates(), verification_setting()) == (chosen, named)
    monkeypatch.delenv("REQUESTS_CA_BUNDLE")
    assert (trusted_certificates(), verification_setting()) == (chosen, chosen)
    monkeypatch.delenv("SSL_CERT_FILE")
    monkeypatch.setenv("SSL_CERT_DIR", f"{tmp_path}:/nonexistent")
    assert (trusted_certificates(), verification_setting()) == ("", str(tmp_path))


def test_authorities_that_cannot_be_read_are_named(tmp_path):
    (tmp_path / "good.pem").write_bytes(b"# \xe9\n-----BEGIN CERTIFICATE-----")
    (tmp_path / "other.der").write_bytes(b"\x30\x82")
    (tmp_path / "empty").mkdir()
    folders = f"{tmp_path}/empty:{tmp_path}"
    for usable in ({}, {"SSL_CERT_FILE": f"{tmp_path}/good.pem"}, {"SSL_CERT_FILE": "/x", "SSL_CERT_DIR": folders}):
        check_authorities(usable)
    for name in ("none.pem", "other.der", "empty", ""):
        with pytest.raises(InputError) as caught:
            check_authorities({"SSL_CERT_FILE": f"{tmp_path}/{name}", "SSL_CERT_DIR": "/nonexistent"})
        assert (caught.value.kind, caught.value.where) == ("bad-certificates", f"{tmp_path}/{name}")


@every_row("name", [*_CHOSEN, *_OF_REQUESTS])
@every_row("below", ["", "/authorities.pem"])
def test_a_closed_folder_of_authorities_is_named(name, below, monkeypatch):
    for other in (*_CHOSEN, *_OF_REQUESTS):
        monkeypatch.delenv(other, raising=False)
    with tempfile.TemporaryDirectory() as folder:
        monkeypatch.setenv(name, folder + below)
        Path(folder, "authorities.pem").write_text("-----BEGIN CERTIFICATE-----")
        Path(folder).chmod(0)
        user = os.geteuid()
        os.seteuid(65534) if user == 0 else None  # whom modes bind
        try:
            with pytest.raises(InputError) as caught:
                verification_setting()
        finally:
            os.seteuid(user)
            Path(folder).chmod(0o755)
    assert (caught.value.kind, caught.value.where) == ("bad-certificates", folder + below)
