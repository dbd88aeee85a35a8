"""DSSE envelopes: a statement with a signature that covers its bytes and their type."""

from __future__ import annotations

import json
from typing import Any

from envpack.deployment.signing.keys import PublicKey, SigningKey
from envpack.support.bounded_reading import parse_json
from envpack.support.errors import InputError

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
