"""Signs statements about files, and verifies them: in-toto statements in DSSE envelopes, ed25519."""

from __future__ import annotations

from typing import TYPE_CHECKING

from envpack.support.lazy_imports import lazy_imports

if TYPE_CHECKING:
    from envpack.signing.envelope import (
        sign_statement as sign_statement,
        signature_invalid as signature_invalid,
        verify_statement as verify_statement,
    )
    from envpack.signing.keys import (
        PublicKey as PublicKey,
        SigningKey as SigningKey,
        read_public_key as read_public_key,
        read_signing_key as read_signing_key,
    )
    from envpack.signing.statement import (
        Subjects as Subjects,
        parse_subjects as parse_subjects,
        provenance as provenance,
    )

__getattr__, __all__ = lazy_imports(__name__, __file__)
