"""Asks a credential helper of docker for an account, with a limit: it may wait for a person to unlock a key ring."""

from __future__ import annotations

import shutil
import subprocess

from envpack.support.bounded_reading import parse_json
from envpack.support.isolation import users_environment
from envpack.support.processes import run

_PATIENCE = 120.0  # seconds
_NOT_FOUND = "credentials not found"  # begins what helpers print for a registry without an account


class HelperError(Exception):
    """A credential helper gives no answer; the text is the reason, in one line."""


def account_of_helper(name: object, registry: str) -> dict[str, str] | None:
    """What a helper has for a registry, as an entry of docker's config.json; None if it has no account.

    Raises:
        HelperError: it is not there, fails or waits.
        ValueError, TypeError, KeyError: its answer is damaged.
    """
    program = f"docker-credential-{name}"
    found = shutil.which(program)
    if found is None:
        raise HelperError(f"its credential helper {program} is not on PATH")
    try:
        ended = run([found, "get"], env=users_environment(), timeout=_PATIENCE, text=registry)
    except subprocess.TimeoutExpired:
        raise HelperError(f"its credential helper {program} did not answer within {_PATIENCE:g} s") from None
    except OSError as error:
        raise HelperError(f"its credential helper {program} cannot be run: {error.strerror}") from error
    if ended.returncode:
        if _NOT_FOUND in ended.stdout + ended.stderr:
            return None
        raise HelperError(f"its credential helper {program} ended with status {ended.returncode}")
    answer = parse_json(ended.stdout)
    user, secret = str(answer["Username"]), str(answer["Secret"])
    if user == "<token>":
        return {"identitytoken": secret}
    return {"username": user, "password": secret} if user or secret else None
