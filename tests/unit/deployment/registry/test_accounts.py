"""The accounts of registries, from the configuration of docker and its credential helpers."""

import base64
import json
import os
import tempfile
from pathlib import Path

import pytest

from envpack.deployment.images import accounts
from envpack.deployment.images.accounts import Account, account_at
from envpack.deployment.images.address import parse_image_address
from envpack.deployment.images.registry import connected
from envpack.support.errors import InputError, StorageError
from tests.memory_registry import memory_registry
from tests.registries import certificate
from tests.tables import every_row
from tests.unit.deployment.registry.test_client import IMAGE


def log_in(folder, host, **entry):
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps({"auths": {host: entry}}))


def encoded_account(user, password):
    return base64.b64encode(f"{user}:{password}".encode()).decode()


def test_an_account_travels_encrypted_only(tmp_path, monkeypatch):
    key, public = certificate(tmp_path)
    with memory_registry((key, public)) as protected:
        protected.account = ("name", "word")
        protected.manifests["models", "1"] = IMAGE
        address = parse_image_address(f"{protected.host}/models:1")
        with pytest.raises(StorageError, match="its certificate is not trusted"), connected(address) as there:
            there.manifest("1")
        monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(public))
        with pytest.raises(StorageError) as raised, connected(address) as there:
            there.manifest("1")
        assert raised.value.kind == "registry-forbidden"
        log_in(tmp_path / "docker", protected.host, auth=encoded_account("name", "word"))
        with connected(address) as there:
            assert there.manifest("1") == IMAGE


BEARER = 'Bearer realm="http://127.0.0.1:9/token",service="models"'


@every_row(
    ("challenge", "kind", "says"),
    [
        ('Basic realm="models"', "registry-forbidden", "the registry refuses access"),
        (BEARER, "registry-unreachable", "it wants a password, which is only sent over TLS"),
    ],
)
def test_an_identity_token_is_sent_to_token_services_with_tls_only(tmp_path, monkeypatch, challenge, kind, says):
    key, public = certificate(Path(tempfile.mkdtemp(dir=tmp_path)))
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(public))
    monkeypatch.setenv("DOCKER_CONFIG", tempfile.mkdtemp(dir=tmp_path))
    with memory_registry((key, public)) as protected:
        protected.fault = lambda *_: (401, {"WWW-Authenticate": challenge}, b"")
        log_in(Path(os.environ["DOCKER_CONFIG"]), protected.host, identitytoken="t", auth=encoded_account("", ""))
        address = parse_image_address(f"{protected.host}/models:1")
        with pytest.raises(StorageError, match=says) as raised, connected(address) as there:
            there.manifest("1")
        assert raised.value.kind == kind


def test_accounts_that_cannot_be_used_are_named(tmp_path, address):
    cases = {
        "is unusable|it is damaged": {"auth": "no base64!"},
    }
    for number, (reason, entry) in enumerate(cases.items()):
        folder = tmp_path / f"docker{number}"
        log_in(folder, address.registry, **entry)
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("DOCKER_CONFIG", str(folder))
            with pytest.raises(InputError, match=reason) as raised, connected(address):
                pass
        assert raised.value.kind == "bad-docker-config"
        assert "docker login" in raised.value.hint


GOOD = """#!/bin/sh
read registry
echo '{"Username": "me at '$registry'", "Secret": "word"}'
"""


@every_row(
    ("script", "says"),
    [
        ("", "its credential helper docker-credential-own is not on PATH, or not executable"),
        ("#!/bin/sh\nwhile :; do :; done\n", "its credential helper docker-credential-own did not answer within 0.2 s"),
        ("#!/none\n", "its credential helper docker-credential-own cannot be run: No such file or directory"),
        ("#!/bin/sh\nexit 3\n", "its credential helper docker-credential-own ended with status 3"),
        (
            "#!/bin/sh\necho first >&2; echo locked at https://me:secret@vault/ >&2; exit 3\n",
            "its credential helper docker-credential-own ended with status 3: locked at https://***@vault/",
        ),
        *(
            (
                f"#!/bin/sh\necho '{text}'\n",
                "its credential helper docker-credential-own answers with something else than an account",
            )
            for text in ("<html>", "[1]", "{}", "")
        ),
        ("""#!/bin/sh\necho '{"Username": "<token>", "Secret": "t"}'\n""", ("", "", "t")),
        ("#!/bin/sh\necho 'credentials not found in native keychain'; exit 1\n", None),
        (GOOD, ("me at registry.example", "word")),
    ],
)
def test_a_credential_helper_answers_or_is_named(tmp_path, monkeypatch, script, says):
    monkeypatch.setattr(accounts, "_PATIENCE", 0.2 if "while" in script else 60.0)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    (tmp_path / "config.json").write_text('{"credsStore": "own"}')
    helper = tmp_path / "docker-credential-own"
    helper.unlink(missing_ok=True)
    if script:
        helper.write_text(script)
        helper.chmod(0o755)
    if isinstance(says, str):
        with pytest.raises(InputError) as raised:
            account_at("registry.example")
        message = f"docker's config.json cannot be used for registry.example: {says}"
        assert (raised.value.kind, raised.value.message) == ("bad-docker-config", message)
        assert "run `docker login registry.example`" in raised.value.hint
        assert ("repair docker-credential-own" in raised.value.hint) == ("helper" in says)
    else:
        account = account_at("registry.example")
        assert account == (says and Account(*says))


@every_row(
    ("content", "says"),
    [
        (b"[" * 100_000, "it is no JSON document"),
        (b'{"auths":', "it is no JSON document"),
        (b"\xff\xfe", "it is no JSON document"),
        (b"[]", "it is no JSON object"),
        (os.mkfifo, "it cannot be read: it is not a regular file"),
        (os.mkdir, "it cannot be read: Is a directory"),
    ],
)
def test_a_configuration_that_cannot_be_read_is_named(tmp_path, monkeypatch, content, says):
    folder = Path(tempfile.mkdtemp(dir=tmp_path))
    monkeypatch.setenv("DOCKER_CONFIG", str(folder))
    if callable(content):
        content(folder / "config.json")
    else:
        (folder / "config.json").write_bytes(content)
    with pytest.raises(InputError, match=says) as raised:
        account_at("registry.example")
    assert raised.value.kind == "bad-docker-config"
    assert raised.value.hint == f"correct or remove {folder}/config.json"


def test_an_empty_configuration_has_no_account(tmp_path, monkeypatch):
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    (tmp_path / "config.json").write_text("{}")
    assert account_at("registry.example") is None


def test_an_account_is_never_shown():
    assert repr(Account("me", "word")) == "Account()"


def test_an_entry_without_an_account_is_none(tmp_path, address, monkeypatch):
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path / "docker2"))
    assert account_at(address.registry) is None
    log_in(tmp_path / "docker2", address.registry, auth=encoded_account("u", "p"))
    assert (account_at(address.registry).user, account_at(address.registry).password) == ("u", "p")
    assert account_at("registry.example") is None
