"""Keys, DSSE envelopes, and the statements that are signed: in-toto with SLSA provenance.

A signature covers the bytes of a statement and their type. A statement says what lies there, by its digests; what it
was made from; and where and when it was published. Keys are read as `ssh-keygen -t ed25519` and
`openssl genpkey -algorithm ed25519` write them.
"""

from __future__ import annotations

import datetime
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import envpack
from envpack.support.bounded_reading import parse_json, read_bytes
from envpack.support.errors import InputError, UsageError
from envpack.support.installation import install_command
from envpack.support.text import is_sha256

_MOST = 64 << 10  # bytes of a key


@dataclass(frozen=True)
class SigningKey:
    """A private key. Its content is never shown or written."""

    signer: Any = field(repr=False)

    @property
    def public(self) -> PublicKey:
        return PublicKey(self.signer.public_key, Path())


@dataclass(frozen=True)
class PublicKey:
    """The key that signatures are verified with, and the file that it was read from."""

    key: Any
    file: Path


def require_library() -> None:
    try:
        import cryptography  # noqa: F401
        import securesystemslib.dsse  # noqa: F401
    except ImportError:
        what = "signatures need securesystemslib and cryptography, which are not installed"
        raise UsageError("signing-missing", what, install_command("sign")) from None


def read_signing_key(file: Path) -> SigningKey:
    """Read a private key: PKCS #8 or OpenSSH, without a passphrase.

    Raises:
        UsageError: kind ``signing-missing``.
        InputError: kind ``bad-key``: it cannot be read, is encrypted, or is no ed25519 key.
    """
    require_library()
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key, load_ssh_private_key
    from securesystemslib.signer import CryptoSigner  # type: ignore[attr-defined]

    content = _content(file)
    load = load_ssh_private_key if b"BEGIN OPENSSH PRIVATE KEY" in content else load_pem_private_key
    try:
        key = load(content, password=None)
    except TypeError as error:
        raise _bad(file, "it is protected by a passphrase") from error
    except Exception as error:  # the library raises many kinds of errors for damaged keys
        raise _bad(file, "it is no private key in PEM or OpenSSH format, or is protected by a passphrase") from error
    if not isinstance(key, Ed25519PrivateKey):
        raise _bad(file, "it is no ed25519 key")
    return SigningKey(CryptoSigner(key))


def read_public_key(file: Path) -> PublicKey:
    """Read a public key: PEM, or a line as OpenSSH writes it.

    Raises:
        UsageError: kind ``signing-missing``.
        InputError: kind ``bad-key``: it cannot be read, or is no ed25519 key.
    """
    require_library()
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    from cryptography.hazmat.primitives.serialization import load_pem_public_key, load_ssh_public_key
    from securesystemslib.signer import SSlibKey  # type: ignore[attr-defined]

    content = _content(file)
    load = load_pem_public_key if b"-----BEGIN " in content else load_ssh_public_key
    try:
        key = load(content)
    except Exception as error:  # the library raises many kinds of errors for damaged keys
        raise _bad(file, "it is no public key in PEM or OpenSSH format") from error
    if not isinstance(key, Ed25519PublicKey):
        raise _bad(file, "it is no ed25519 key")
    return PublicKey(SSlibKey.from_crypto(key), file)


def _content(file: Path) -> bytes:
    try:
        return read_bytes(file, most=_MOST)
    except OSError as error:
        raise _bad(file, f"it cannot be read: {error.strerror}") from error


def _bad(file: Path, reason: str) -> InputError:
    fix = "make one with ssh-keygen -t ed25519 -N '' -f KEY; KEY signs, KEY.pub verifies"
    return InputError("bad-key", f"this key cannot be used: {reason}", fix, str(file))


PAYLOAD_TYPE = "application/vnd.in-toto+json"


def sign(document: Mapping[str, Any], keys: Sequence[SigningKey]) -> bytes:
    """The envelope of a statement, with a signature of each key. The same statement and keys give the same bytes."""
    from securesystemslib.dsse import Envelope

    payload = json.dumps(document, sort_keys=True, separators=(",", ":")).encode()
    envelope = Envelope(payload, PAYLOAD_TYPE, {})
    for key in keys:
        envelope.sign(key.signer)
    return json.dumps(envelope.to_dict(), sort_keys=True).encode() + b"\n"


def opened(content: bytes, keys: Sequence[PublicKey], where: str) -> dict[str, Any]:
    """The statement in an envelope that one of several keys has signed. Nothing of it is used before."""
    from securesystemslib.dsse import Envelope
    from securesystemslib.exceptions import VerificationError

    try:
        envelope = Envelope.from_dict(parse_json(content))
        if envelope.payload_type != PAYLOAD_TYPE:
            raise signature_invalid(where, "the envelope contains something else than a statement", keys)
        envelope.verify([key.key for key in keys], 1)
        statement = parse_json(envelope.payload)
    except VerificationError as error:
        raise signature_invalid(where, "it was altered, or another key signed it", keys) from error
    except InputError:
        raise
    except Exception as error:  # the library raises many kinds of errors for damaged envelopes
        raise signature_invalid(where, "its envelope is damaged", keys) from error
    if not isinstance(statement, dict):
        raise signature_invalid(where, "its statement is damaged", keys)
    return statement


def signature_invalid(where: str, reason: str, keys: Sequence[PublicKey], fix: str = "") -> InputError:
    names = " or ".join(str(key.file) for key in keys)
    fix = fix or f"find out who wrote there; sign with the private key that belongs to {names}"
    return InputError("signature-invalid", f"there is no valid signature: {reason}", fix, where)


_STATEMENT = "https://in-toto.io/Statement/v1"
_PROVENANCE = "https://slsa.dev/provenance/v1"
_DAY = 86400.0  # seconds
_AHEAD = 3600.0  # seconds by which the clock of a publisher may be ahead

Kind = Literal["publication", "image"]
# SHA-256 of each thing that a statement is about, by its name.
Subjects = Mapping[str, str]


@dataclass(frozen=True)
class Statement:
    """The content of a statement about a publication, which its signers sign."""

    kind: Kind  # about the files of a model, or about an image
    subjects: Subjects
    address: str
    parameters: Mapping[str, Any] = field(default_factory=dict)  # names of the models and the release
    dependencies: Sequence[Mapping[str, str]] = ()  # packages of the environments
    time: float = 0.0  # of the publication, in seconds since 1970

    def document(self) -> dict[str, Any]:
        time = datetime.datetime.fromtimestamp(self.time, datetime.UTC).isoformat(timespec="seconds")
        return {
            "_type": _STATEMENT,
            "subject": [{"name": name, "digest": {"sha256": sha256}} for name, sha256 in sorted(self.subjects.items())],
            "predicateType": _PROVENANCE,
            "predicate": {
                "buildDefinition": {
                    "buildType": f"urn:envpack:{self.kind}:1",
                    "externalParameters": {**self.parameters, "address": self.address},
                    "resolvedDependencies": [_descriptor(dependency) for dependency in self.dependencies],
                },
                "runDetails": {
                    "builder": {"id": f"urn:envpack:{envpack.__version__}"},
                    "metadata": {"finishedOn": time.replace("+00:00", "Z")},
                },
            },
        }


@dataclass(frozen=True)
class Trust:
    """Whose signatures count.

    Attributes:
        keys: one of these must have signed.
        max_age: seconds since the publication, None for any time.
    """

    keys: tuple[PublicKey, ...]
    max_age: float | None = None


def read_trust(files: Sequence[Path], max_days: float | None = None) -> Trust | None:
    """The keys in files, and how many days ago they may have signed; ``None`` without keys.

    Raises:
        UsageError: kind ``signing-missing``, or the age is no number of days.
        InputError: kind ``bad-key``.
    """
    if max_days is not None and not 0 <= max_days < math.inf:
        raise UsageError("usage", f"{max_days:g} days are no age", "give --max-age a number of days")
    if not files:
        return None
    return Trust(tuple(map(read_public_key, files)), None if max_days is None else max_days * _DAY)


def check_statement(
    envelope: bytes | None, trust: Trust, kind: Kind, *, where: str, address: str = "", now: float
) -> Statement:
    """The statement in an envelope, if it is one to trust; an address is compared unless it is empty."""
    if envelope is None:
        raise signature_invalid(where, f"the {'image' if kind == 'image' else 'model'} has none", trust.keys)
    document = opened(envelope, trust.keys, where)
    try:
        statement = parse_statement(document)
    except ValueError as error:
        raise signature_invalid(where, str(error), trust.keys) from error
    if statement.kind != kind:
        raise signature_invalid(where, f"it is about {_ABOUT[statement.kind]}, not about {_ABOUT[kind]}", trust.keys)
    if address and statement.address != address:
        raise signature_invalid(where, f"it belongs to a publication to {statement.address}", trust.keys)
    age = now - statement.time
    if age < -_AHEAD:
        future = "its time is in the future: the clock here or there is wrong"
        raise signature_invalid(
            where, future, trust.keys, "set the clock; if it was that of the publisher, publish again"
        )
    if trust.max_age is not None and age > trust.max_age:
        allowed = f"{trust.max_age / _DAY:g} days are the most"
        fix = "publish again with --sign, which signs it anew; or allow a greater age with --max-age"
        raise signature_invalid(where, f"it is {age / _DAY:.1f} days old, and {allowed}", trust.keys, fix)
    return statement


_ABOUT: Mapping[Kind, str] = {"publication": "the files of a model", "image": "an image"}


def signed_anew(statement: Statement, keys: Sequence[SigningKey], earlier: bytes | None) -> bytes:
    """The envelope of a statement; an earlier one if it says the same, the keys signed it, and it is not a day old."""
    if earlier is not None and all(_says(earlier, statement, key) for key in keys):
        return earlier
    return sign(statement.document(), keys)


def _says(envelope: bytes, statement: Statement, key: SigningKey) -> bool:
    """Whether a key has signed the same within a day before."""
    try:
        found = opened(envelope, [key.public], "")
        time = parse_statement(found).time
    except (InputError, ValueError):
        return False
    found["predicate"]["runDetails"] = statement.document()["predicate"]["runDetails"]
    return found == statement.document() and -_AHEAD < statement.time - time < _DAY


def parse_statement(document: Mapping[str, Any]) -> Statement:
    """Read a statement; raises ValueError for one of another kind."""
    try:
        if document["_type"] != _STATEMENT or document["predicateType"] != _PROVENANCE:
            raise ValueError("it is a statement of another kind")
        build, run = document["predicate"]["buildDefinition"], document["predicate"]["runDetails"]
        kinds: dict[str, Kind] = {f"urn:envpack:{kind}:1": kind for kind in _ABOUT}
        if build["buildType"] not in kinds:
            raise ValueError("it is a statement about something else than a publication")
        subjects = {str(subject["name"]): str(subject["digest"]["sha256"]) for subject in document["subject"]}
        complete = len(subjects) == len(document["subject"]) > 0
        parameters = dict(build["externalParameters"])
        address = parameters.pop("address")
        time = datetime.datetime.fromisoformat(run["metadata"]["finishedOn"]).timestamp()
    except (KeyError, TypeError, AttributeError, OverflowError) as error:
        raise ValueError("it is damaged") from error
    if not complete or not isinstance(address, str) or not all(map(is_sha256, subjects.values())):
        raise ValueError("its list of files is damaged")
    return Statement(kinds[build["buildType"]], subjects, address, parameters, time=time)


def _descriptor(dependency: Mapping[str, str]) -> dict[str, Any]:
    found: dict[str, Any] = {"name": dependency["name"]}
    if dependency.get("uri"):
        found["uri"] = dependency["uri"]
    if dependency.get("sha256"):
        found["digest"] = {"sha256": dependency["sha256"]}
    return found
