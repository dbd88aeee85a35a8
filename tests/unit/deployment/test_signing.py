"""Signed statements: what a key has signed is read, anything else is refused."""

import base64
import dataclasses
import json
import math
import sys

import pytest
from hypothesis import given

import envpack
from envpack.deployment.signing import (
    Statement,
    Trust,
    check_statement,
    opened,
    parse_statement,
    read_public_key,
    read_signing_key,
    read_trust,
    sign,
    signed_anew,
)
from envpack.support.errors import InputError, UsageError
from tests.hostile import damaged, hostile, read_or_refused, with_one_value_replaced
from tests.signing_keys import FORMATS, write_pair
from tests.tables import every_row

SUBJECTS = {"m/1/model.py": "a" * 64, "m/config.pbtxt": "b" * 64}
PACKAGES = [{"name": "numpy 1", "uri": "https://x/numpy", "sha256": "c" * 64}]
SIGNED = Statement("publication", SUBJECTS, "s3://bucket/models", {"model": "m"}, PACKAGES, 1e9)
STATEMENT = SIGNED.document()
DAY = 86400.0


@pytest.fixture
def pair(tmp_path):
    private, public = write_pair(tmp_path)
    return read_signing_key(private), read_public_key(public)


@pytest.mark.parametrize("form", FORMATS)
def test_what_a_key_signed_its_public_key_verifies(tmp_path, form):
    private, public = write_pair(tmp_path, form=form)
    envelope = sign(STATEMENT, [read_signing_key(private)])
    assert opened(envelope, [read_public_key(public)], "m") == STATEMENT
    assert dataclasses.replace(parse_statement(STATEMENT), dependencies=PACKAGES) == SIGNED
    assert sign(STATEMENT, [read_signing_key(private)]) == envelope


def test_the_envelope_is_dsse_with_an_in_toto_statement(pair):
    document = json.loads(sign(STATEMENT, [pair[0]]))
    assert document["payloadType"] == "application/vnd.in-toto+json"
    statement = json.loads(base64.b64decode(document["payload"]))
    assert statement["_type"] == "https://in-toto.io/Statement/v1"
    assert statement["predicateType"] == "https://slsa.dev/provenance/v1"
    assert statement["subject"][0] == {"name": "m/1/model.py", "digest": {"sha256": "a" * 64}}
    (dependency,) = statement["predicate"]["buildDefinition"]["resolvedDependencies"]
    assert dependency == {"name": "numpy 1", "uri": "https://x/numpy", "digest": {"sha256": "c" * 64}}


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
        pytest.param(
            lambda envelope: envelope["signatures"][0].update(sig=base64.b64encode(bytes(64)).decode()), id="zero"
        ),
        pytest.param(lambda envelope: envelope["signatures"][0].update(keyid="0"), id="key"),
    ],
)
def test_an_altered_envelope_is_refused(pair, alter):
    envelope = json.loads(sign(STATEMENT, [pair[0]]))
    alter(envelope)
    with pytest.raises(InputError) as raised:
        opened(json.dumps(envelope).encode(), [pair[1]], "m")
    assert raised.value.kind == "signature-invalid"


BUILD = STATEMENT["predicate"]["buildDefinition"]


def built(**changes):
    return {"predicate": {**STATEMENT["predicate"], "buildDefinition": {**BUILD, **changes}}}


@every_row(
    ("change", "reason"),
    [
        ({"_type": "other"}, "it is a statement of another kind"),
        ({"predicateType": "other"}, "it is a statement of another kind"),
        ({"predicate": {}}, "it is damaged"),
        ({"subject": []}, "its list of files is damaged"),
        ({"subject": [{"name": "a", "digest": {"sha256": "short"}}]}, "its list of files is damaged"),
        ({"subject": STATEMENT["subject"] * 2}, "its list of files is damaged"),
        ({"subject": [{}]}, "it is damaged"),
        ({"predicate": {**STATEMENT["predicate"], "runDetails": {}}}, "it is damaged"),
        (
            {"predicate": {**STATEMENT["predicate"], "runDetails": {"metadata": {"finishedOn": "yesterday"}}}},
            "Invalid isoformat string: 'yesterday'",
        ),
        (built(externalParameters={}), "it is damaged"),
        (built(externalParameters={"address": 1}), "its list of files is damaged"),
        (built(buildType="other"), "it is a statement about something else than a publication"),
        (
            {"predicate": {**STATEMENT["predicate"], "buildDefinition": {"buildType": BUILD["buildType"]}}},
            "it is damaged",
        ),
    ],
)
def test_a_statement_of_another_kind_is_refused(change, reason):
    with pytest.raises(ValueError, match=r".") as raised:
        parse_statement({**STATEMENT, **change})
    assert str(raised.value) == reason


def refusal(envelope, trust, kind="publication", hint="", **options):
    with pytest.raises(InputError) as raised:
        check_statement(envelope, trust, kind, where="m", **{"now": 1e9, **options})
    error = raised.value
    assert (error.kind, error.where) == ("signature-invalid", "m")
    files = " or ".join(str(key.file) for key in trust.keys)
    assert error.hint == (hint or f"find out who wrote there; sign with the private key that belongs to {files}")
    return error.message.removeprefix("there is no valid signature: ")


def test_each_refusal_says_what_is_wrong(pair):
    trust = Trust((pair[1], pair[1]))
    image = sign(dataclasses.replace(SIGNED, kind="image").document(), [pair[0]])
    assert refusal(image, trust) == "it is about an image, not about the files of a model"
    assert refusal(None, trust) == "the model has none"
    assert refusal(None, trust, "image") == "the image has none"
    assert refusal(sign(STATEMENT | {"_type": "x"}, [pair[0]]), trust) == "it is a statement of another kind"
    assert refusal(b"no JSON", trust) == "its envelope is damaged"
    assert refusal(b"{}", trust) == "its envelope is damaged"
    assert refusal(sign([], [pair[0]]), trust) == "its statement is damaged"
    envelope = json.loads(sign(STATEMENT, [pair[0]]))
    other = json.dumps(envelope | {"payloadType": "text/plain"}).encode()
    assert refusal(other, trust) == "the envelope contains something else than a statement"
    unsigned = json.dumps(envelope | {"signatures": []}).encode()
    assert refusal(unsigned, trust) == "it was altered, or another key signed it"


def test_the_age_of_a_statement_is_limited_from_both_sides(pair):
    envelope = sign(STATEMENT, [pair[0]])
    for trust, now in (
        (Trust((pair[1],), 2 * DAY), 1e9 + 2 * DAY),
        (Trust((pair[1],)), 1e9 + 1000 * DAY),
        (Trust((pair[1],)), 1e9 - 3600),
    ):
        assert check_statement(envelope, trust, "publication", where="m", now=now).time == 1e9
    anew = "publish again with --sign, which signs it anew; or allow a greater age with --max-age"
    assert refusal(envelope, Trust((pair[1],), 1.5 * DAY), hint=anew, now=1e9 + 1.6 * DAY) == (
        "it is 1.6 days old, and 1.5 days are the most"
    )
    clock = "set the clock; if it was that of the publisher, publish again"
    future = "its time is in the future: the clock here or there is wrong"
    assert refusal(envelope, Trust((pair[1],)), hint=clock, now=1e9 - 3601) == future


def test_keys_are_read_from_files_with_an_age_in_days(tmp_path):
    _, public = write_pair(tmp_path)
    assert read_trust([]) is None
    trust = read_trust([public, public], 2)
    assert ([key.file for key in trust.keys], trust.max_age) == ([public, public], 2 * DAY)
    assert read_trust([public]).max_age is None
    assert read_trust([public], 0).max_age == 0


def test_a_package_is_described_as_far_as_it_is_known():
    packages = [{"name": "a 1"}, {"name": "b 1", "uri": "", "sha256": ""}, {"name": "c 1", "uri": "https://x/c"}]
    document = dataclasses.replace(SIGNED, dependencies=packages).document()
    found = document["predicate"]["buildDefinition"]["resolvedDependencies"]
    assert found == [{"name": "a 1"}, {"name": "b 1"}, {"name": "c 1", "uri": "https://x/c"}]
    details = document["predicate"]["runDetails"]
    assert details["metadata"] == {"finishedOn": "2001-09-09T01:46:40Z"}
    assert details["builder"] == {"id": f"urn:envpack:{envpack.__version__}"}
    assert document["predicate"]["buildDefinition"]["externalParameters"] == {
        "model": "m",
        "address": "s3://bucket/models",
    }


def test_a_statement_says_of_what_and_where(pair):
    envelope, trust = sign(STATEMENT, [pair[0]]), Trust((pair[1],), 2 * DAY)
    assert check_statement(envelope, trust, "publication", where="m", address=SIGNED.address, now=1e9 + DAY)
    assert "not about an image" in refusal(envelope, trust, "image")
    assert f"a publication to {SIGNED.address}" in refusal(envelope, trust, address="s3://bucket/others")


def test_one_of_several_keys_and_one_of_several_signatures_are_enough(pair, tmp_path):
    files = write_pair(tmp_path, "new")
    new, new_public = read_signing_key(files[0]), read_public_key(files[1])
    stranger = read_public_key(write_pair(tmp_path, "stranger")[1])
    both, old_only = sign(STATEMENT, [pair[0], new]), sign(STATEMENT, [pair[0]])
    for envelope, keys in ((both, [pair[1]]), (both, [new_public]), (old_only, [new_public, pair[1]])):
        assert check_statement(envelope, Trust(tuple(keys)), "publication", where="m", now=1e9)
    refusal(old_only, Trust((new_public,)))
    refusal(both, Trust((stranger,)))


def test_an_earlier_envelope_is_kept_for_a_day_if_it_says_the_same(pair, tmp_path):
    other = read_signing_key(write_pair(tmp_path, "other")[0])
    keys, earlier = [pair[0]], sign(STATEMENT, [pair[0]])
    later = dataclasses.replace(SIGNED, time=1e9 + DAY / 2)
    assert signed_anew(later, keys, earlier) == earlier
    for change in (
        {"time": 1e9 + DAY},
        {"address": "s3://bucket/others"},
        {"subjects": {**SUBJECTS, "m/2/model.py": "d" * 64}},
        {"parameters": {"model": "n"}},
        {"dependencies": ()},
    ):
        assert signed_anew(dataclasses.replace(later, **change), keys, earlier) != earlier
    assert signed_anew(later, [pair[0], other], earlier) != earlier
    assert signed_anew(later, keys, b"{}") != b"{}"


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
    error = raised.value
    assert (error.kind, error.where) == ("bad-key", str(tmp_path / name))
    assert error.message.startswith("this key cannot be used: it ")
    assert error.hint == "make one with ssh-keygen -t ed25519 -N '' -f KEY; KEY signs, KEY.pub verifies"


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("absent", "it cannot be read: No such file or directory"),
        ("noise", "it is no public key in PEM or OpenSSH format"),
        ("ec.pub", "it is no ed25519 key"),
        ("key", "it is no public key in PEM or OpenSSH format"),
    ],
)
def test_other_public_keys_are_refused(tmp_path, name, words):
    write_pair(tmp_path)
    write_pair(tmp_path, "ec", kind="ec", form="ssh")
    (tmp_path / "noise").write_bytes(bytes(range(256)))
    with pytest.raises(InputError) as raised:
        read_public_key(tmp_path / name)
    assert (raised.value.kind, raised.value.where) == ("bad-key", str(tmp_path / name))
    assert words in raised.value.message


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
        opened(content, [public_key], "m")


@pytest.mark.parametrize("days", [math.nan, math.inf, -1.0])
def test_an_age_must_be_a_number_of_days(days):
    """Nothing is older than NaN days."""
    with pytest.raises(UsageError, match="days are no age"):
        read_trust([], days)
