"""Pairs of keys for tests, in the formats that people have."""

from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)

FORMATS = {
    "pem": (PrivateFormat.PKCS8, Encoding.PEM, PublicFormat.SubjectPublicKeyInfo),
    "ssh": (PrivateFormat.OpenSSH, Encoding.OpenSSH, PublicFormat.OpenSSH),
}


def write_pair(folder, name="key", form="pem", *, kind="ed25519", passphrase=b""):
    """Write a private key and its public key; returns both files."""
    private, encoding, public = FORMATS[form]
    key = Ed25519PrivateKey.generate() if kind == "ed25519" else generate_private_key(SECP256R1())
    encryption = BestAvailableEncryption(passphrase) if passphrase else NoEncryption()
    files = folder / name, folder / f"{name}.pub"
    files[0].write_bytes(key.private_bytes(Encoding.PEM, private, encryption))
    files[1].write_bytes(key.public_key().public_bytes(encoding, public))
    return files
