"""Reads ed25519 keys, as `ssh-keygen -t ed25519` and `openssl genpkey -algorithm ed25519` write them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from envpack.support.bounded_reading import read_bytes
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
