"""Signatures: DSSE envelopes of in-toto statements, signed with ed25519 keys.

A statement lists which files, by their digests, were made from what (SLSA provenance). The signature covers its bytes
and their type. Keys are read as `ssh-keygen -t ed25519` and `openssl genpkey -algorithm ed25519` write them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import envpack
from envpack.support.bounded_reading import parse_json, read_bytes
from envpack.support.errors import InputError, UsageError
from envpack.support.installation import install_command

_MOST = 64 << 10  # bytes of a key


@dataclass(frozen=True)
class SigningKey:
    """A private key. Its content is never shown or written."""

    signer: Any

    def __repr__(self) -> str:
        return "SigningKey()"


@dataclass(frozen=True)
class PublicKey:
    """The key that signatures are verified with, and the file that it was read from."""

    key: Any
    file: Path


def require_library() -> None:
    """Check that the extra is installed."""
    try:
        import cryptography
        import securesystemslib.dsse  # noqa: F401
    except ImportError:
        raise UsageError(
            "signatures need securesystemslib and cryptography, which are not installed",
            kind="signing-missing",
            hint=install_command("sign"),
        ) from None
    del cryptography


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
    load = load_ssh_public_key if content.lstrip().startswith(b"ssh-") else load_pem_public_key
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
    return InputError(
        f"this key cannot be used: {reason}",
        kind="bad-key",
        where=str(file),
        hint="make one with ssh-keygen -t ed25519 -N '' -f KEY; KEY signs, KEY.pub verifies",
    )


_STATEMENT = "https://in-toto.io/Statement/v1"
_PROVENANCE = "https://slsa.dev/provenance/v1"
_BUILD = "urn:envpack:publication:1"
_SHA256 = re.compile(r"[0-9a-f]{64}")

# SHA-256 of each file, by its name.
Subjects = Mapping[str, str]


def provenance(
    subjects: Subjects, parameters: Mapping[str, Any], dependencies: Sequence[Mapping[str, str]]
) -> dict[str, Any]:
    """A statement about files."""
    return {
        "_type": _STATEMENT,
        "subject": [{"name": name, "digest": {"sha256": sha256}} for name, sha256 in sorted(subjects.items())],
        "predicateType": _PROVENANCE,
        "predicate": {
            "buildDefinition": {
                "buildType": _BUILD,
                "externalParameters": dict(parameters),
                "resolvedDependencies": [_descriptor(dependency) for dependency in dependencies],
            },
            "runDetails": {"builder": {"id": f"urn:envpack:{envpack.__version__}"}},
        },
    }


def parse_subjects(statement: Mapping[str, Any]) -> Subjects:
    """The files of a statement."""
    try:
        if statement["_type"] != _STATEMENT or statement["predicateType"] != _PROVENANCE:
            raise ValueError("it is a statement of another kind")
        if statement["predicate"]["buildDefinition"]["buildType"] != _BUILD:
            raise ValueError("it is a statement about something else than a publication")
        found = {str(subject["name"]): str(subject["digest"]["sha256"]) for subject in statement["subject"]}
        complete = len(found) == len(statement["subject"]) > 0
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError("it is damaged") from error
    if not complete or not all(_SHA256.fullmatch(sha256) for sha256 in found.values()):
        raise ValueError("its list of files is damaged")
    return found


def _descriptor(dependency: Mapping[str, str]) -> dict[str, Any]:
    found: dict[str, Any] = {"name": dependency["name"]}
    if dependency.get("uri"):
        found["uri"] = dependency["uri"]
    if dependency.get("sha256"):
        found["digest"] = {"sha256": dependency["sha256"]}
    return found


PAYLOAD_TYPE = "application/vnd.in-toto+json"


def sign_statement(statement: dict[str, Any], key: SigningKey) -> bytes:
    """The envelope of a statement. The same statement and key give the same bytes."""
    from securesystemslib.dsse import Envelope

    payload = json.dumps(statement, sort_keys=True, separators=(",", ":")).encode()
    envelope = Envelope(payload, PAYLOAD_TYPE, {})
    envelope.sign(key.signer)
    return json.dumps(envelope.to_dict(), sort_keys=True).encode() + b"\n"


def verify_statement(content: bytes, key: PublicKey, where: str) -> dict[str, Any]:
    """The statement in an envelope that a key has signed. Nothing of it is used before."""
    from securesystemslib.dsse import Envelope
    from securesystemslib.exceptions import VerificationError

    try:
        envelope = Envelope.from_dict(parse_json(content))
        if envelope.payload_type != PAYLOAD_TYPE:
            raise signature_invalid(where, "the envelope contains something else than a statement", key)
        envelope.verify([key.key], 1)
        statement = parse_json(envelope.payload)
    except VerificationError as error:
        raise signature_invalid(where, "it was altered, or another key signed it", key) from error
    except InputError:
        raise
    except Exception as error:  # the library raises many kinds of errors for damaged envelopes
        raise signature_invalid(where, "its envelope is damaged", key) from error
    if not isinstance(statement, dict):
        raise signature_invalid(where, "its statement is damaged", key)
    return statement


def signature_invalid(where: str, reason: str, key: PublicKey) -> InputError:
    """The error for content that a key did not sign."""
    return InputError(
        f"there is no valid signature: {reason}",
        kind="signature-invalid",
        where=where,
        hint=f"find out who wrote there; sign with the private key that belongs to {key.file}",
    )
