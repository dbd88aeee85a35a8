"""Keys and DSSE envelopes. A signature covers the bytes of a statement and their type.

Keys are read as `ssh-keygen -t ed25519` and `openssl genpkey -algorithm ed25519` write them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from envpack.support.bounded_reading import parse_json, read_bytes
from envpack.support.errors import InputError, UsageError
from envpack.support.installation import install_command

_MOST = 64 << 10  # bytes of a key


@dataclass(frozen=True)
class SigningKey:
    """A private key. Its content is never shown or written."""

    signer: Any

    @property
    def public(self) -> PublicKey:
        """Its public key."""
        return PublicKey(self.signer.public_key, Path())

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
        what = "signatures need securesystemslib and cryptography, which are not installed"
        raise UsageError("signing-missing", what, install_command("sign")) from None
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


def signature_invalid(where: str, reason: str, keys: Sequence[PublicKey]) -> InputError:
    """The error for content that none of several keys signed."""
    names = " or ".join(str(key.file) for key in keys)
    fix = f"find out who wrote there; sign with the private key that belongs to {names}"
    return InputError("signature-invalid", f"there is no valid signature: {reason}", fix, where)
