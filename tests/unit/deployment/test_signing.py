"""Signed statements: what a key has signed is read, anything else is refused."""

import base64
import json
import sys

import pytest
from hypothesis import given

from envpack.deployment.signing import (
    parse_subjects,
    provenance,
    read_public_key,
    read_signing_key,
    sign_statement,
    verify_statement,
)
from envpack.support.errors import InputError, UsageError
from tests.hostile import damaged, hostile, read_or_refused, with_one_value_replaced
from tests.signing_keys import FORMATS, write_pair

SUBJECTS = {"m/1/model.py": "a" * 64, "m/config.pbtxt": "b" * 64}
STATEMENT = provenance(SUBJECTS, {"model": "m"}, [{"name": "numpy 1", "uri": "https://x/numpy", "sha256": "c" * 64}])


@pytest.fixture
def pair(tmp_path):
    private, public = write_pair(tmp_path)
    return read_signing_key(private), read_public_key(public)


@pytest.mark.parametrize("form", FORMATS)
def test_what_a_key_signed_its_public_key_verifies(tmp_path, form):
    private, public = write_pair(tmp_path, form=form)
    envelope = sign_statement(STATEMENT, read_signing_key(private))
    assert verify_statement(envelope, read_public_key(public), "m") == STATEMENT
    assert parse_subjects(STATEMENT) == SUBJECTS
    assert sign_statement(STATEMENT, read_signing_key(private)) == envelope


def test_the_envelope_is_dsse_with_an_in_toto_statement(pair):
    document = json.loads(sign_statement(STATEMENT, pair[0]))
    assert document["payloadType"] == "application/vnd.in-toto+json"
    statement = json.loads(base64.b64decode(document["payload"]))
    assert statement["_type"] == "https://in-toto.io/Statement/v1"
    assert statement["predicateType"] == "https://slsa.dev/provenance/v1"
    assert statement["subject"][0] == {"name": "m/1/model.py", "digest": {"sha256": "a" * 64}}
    (dependency,) = statement["predicate"]["buildDefinition"]["resolvedDependencies"]
    assert dependency == {"name": "numpy 1", "uri": "https://x/numpy", "digest": {"sha256": "c" * 64}}


def test_the_signature_of_another_key_is_refused(pair, tmp_path):
    other = read_signing_key(write_pair(tmp_path, "other")[0])
    with pytest.raises(InputError) as raised:
        verify_statement(sign_statement(STATEMENT, other), pair[1], "m")
    assert (raised.value.kind, raised.value.where) == ("signature-invalid", "m")


def _payload(change):
    def altered(envelope):
        statement = json.loads(base64.b64decode(envelope["payload"]))
        change(statement)
        envelope["payload"] = base64.b64encode(json.dumps(statement).encode()).decode()

    return altered


@pytest.mark.parametrize(
    "alter",
    [
        pytest.param(_payload(lambda statement: statement["subject"].pop()), id="subject removed"),
        pytest.param(_payload(lambda statement: statement["subject"][0].update(name="m/2")), id="name"),
        pytest.param(lambda envelope: envelope.update(payloadType="text/plain"), id="type"),
        pytest.param(lambda envelope: envelope.update(signatures=[]), id="no signature"),
        pytest.param(
            lambda envelope: envelope["signatures"][0].update(sig=base64.b64encode(bytes(64)).decode()), id="zero"
        ),
        pytest.param(lambda envelope: envelope["signatures"][0].update(keyid="0"), id="key"),
    ],
)
def test_an_altered_envelope_is_refused(pair, alter):
    envelope = json.loads(sign_statement(STATEMENT, pair[0]))
    alter(envelope)
    with pytest.raises(InputError) as raised:
        verify_statement(json.dumps(envelope).encode(), pair[1], "m")
    assert raised.value.kind == "signature-invalid"


@pytest.mark.parametrize(
    "change",
    [
        {"_type": "other"},
        {"predicateType": "other"},
        {"predicate": {}},
        {"subject": []},
        {"subject": [{"name": "a", "digest": {"sha256": "short"}}]},
        {"subject": STATEMENT["subject"] * 2},
        {"subject": [{}]},
    ],
)
def test_a_statement_of_another_kind_is_refused(change):
    with pytest.raises(ValueError, match=r"."):
        parse_subjects({**STATEMENT, **change})


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("absent", "cannot be read"),
        ("noise", "PEM or OpenSSH"),
        ("ec", "no ed25519 key"),
        ("locked", "passphrase"),
        ("key.pub", "PEM or OpenSSH"),
    ],
)
def test_other_keys_are_refused(tmp_path, name, words):
    write_pair(tmp_path)
    write_pair(tmp_path, "ec", kind="ec")
    write_pair(tmp_path, "locked", passphrase=b"word")
    (tmp_path / "noise").write_bytes(bytes(range(256)))
    with pytest.raises(InputError, match=words) as raised:
        read_signing_key(tmp_path / name)
    assert raised.value.kind == "bad-key"


@pytest.mark.parametrize("name", ["absent", "noise", "ec.pub", "key"])
def test_other_public_keys_are_refused(tmp_path, name):
    write_pair(tmp_path)
    write_pair(tmp_path, "ec", kind="ec", form="ssh")
    (tmp_path / "noise").write_bytes(bytes(range(256)))
    with pytest.raises(InputError) as raised:
        read_public_key(tmp_path / name)
    assert raised.value.kind == "bad-key"


def test_a_key_is_never_shown(pair):
    assert repr(pair[0]) == "SigningKey()"


def test_without_the_library_the_extra_is_named(tmp_path, monkeypatch):
    private, _ = write_pair(tmp_path)
    monkeypatch.setitem(sys.modules, "securesystemslib.dsse", None)
    with pytest.raises(UsageError) as raised:
        read_signing_key(private)
    assert raised.value.kind == "signing-missing"


@pytest.fixture(scope="module")
def public_key(tmp_path_factory):
    return read_public_key(write_pair(tmp_path_factory.mktemp("keys"))[1])


GOOD = {"payload": "e30=", "payloadType": "application/vnd.in-toto+json", "signatures": [{"keyid": "a", "sig": "AA=="}]}


@hostile
@given(with_one_value_replaced(GOOD).map(json.dumps).map(str.encode) | damaged(json.dumps(GOOD).encode()))
def test_damaged_envelopes(public_key, content):
    with read_or_refused():
        verify_statement(content, public_key, "m")
