"""Accounts of registries, as docker stores them: in its config.json, or in a credential helper that it names."""

from __future__ import annotations

import binascii
import os
import shutil
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from envpack.support.bounded_reading import parse_json, read_json
from envpack.support.errors import InputError
from envpack.support.processes import how_ended, run
from envpack.support.redaction import redact
from envpack.support.text import one_line, printable_line

_PATIENCE = 120.0  # seconds
_NOT_FOUND = "credentials not found"  # begins what helpers print for a registry without an account


def _of_helper(name: object, registry: str, asked: str) -> dict[str, str] | None:
    """What a helper has for a registry, as an entry of docker's config.json; None if it has no account."""
    program = f"docker-credential-{name}"
    fix = f"install or repair {program}, or remove it from config.json and run `docker login {registry}`"

    def failed(reason: str) -> InputError:
        return _bad(registry, f"its credential helper {program} {reason}", fix)

    found = shutil.which(program)
    if found is None:
        raise failed("is not on PATH, or not executable")
    try:
        # It is the user's own program, which may need any of the user's variables.
        ended = run([found, "get"], env=os.environ, timeout=_PATIENCE, text=asked)
    except subprocess.TimeoutExpired:
        raise failed(f"did not answer within {_PATIENCE:g} s") from None
    except OSError as error:
        raise failed(f"cannot be run: {error.strerror}") from error
    if ended.returncode:
        if _NOT_FOUND in ended.stdout + ended.stderr:
            return None
        said = one_line(redact(printable_line(ended.stderr.strip().rpartition("\n")[2])))
        raise failed(f"ended {how_ended(ended.returncode)}{f': {said}' if said else ''}")
    try:
        answer = parse_json(ended.stdout)
        user, secret = str(answer["Username"]), str(answer["Secret"])
    except (ValueError, TypeError, KeyError) as error:
        raise failed("answers with something else than an account") from error
    if user == "<token>":
        return {"identitytoken": secret}
    return {"username": user, "password": secret} if user or secret else None


@dataclass(frozen=True)
class Account:
    """A user name and its password, or a token for which the registry gives others. They are never shown."""

    user: str = field(default="", repr=False)
    password: str = field(default="", repr=False)
    identity_token: str = field(default="", repr=False)


def account_at(registry: str) -> Account | None:
    """The account that `docker login` stored in config.json below ``DOCKER_CONFIG`` or ``~/.docker``."""
    import docker.auth
    import docker.errors

    try:
        config = docker.auth.load_config(config_dict=_read_config(registry))
        helper = config.get_credential_store(registry)
        asked = docker.auth.INDEX_URL if registry == docker.auth.INDEX_NAME else registry
        found: dict[str, Any] | None = _of_helper(helper, registry, asked) if helper else None
        if found is None:
            entries = docker.auth.AuthConfig({"auths": config.auths})  # without helpers, which have been asked
            found = entries.resolve_authconfig(registry)
    except docker.errors.DockerException as error:
        raise _bad(registry, "its content is unusable") from error
    except (ValueError, TypeError, AttributeError, KeyError, RecursionError, binascii.Error) as error:
        raise _bad(registry, "it is damaged") from error
    if not found:
        return None
    lower = {name.lower(): value for name, value in found.items()}
    if isinstance(token := lower.get("identitytoken"), str) and token:
        return Account(identity_token=token)
    if not isinstance(lower.get("username"), str) or not isinstance(lower.get("password"), str):
        return None
    return Account(lower["username"], lower["password"])


def _read_config(registry: str) -> dict[str, Any] | None:
    """The content of config.json. Docker's library passes over a damaged one, and waits for one that is a pipe."""
    import docker.utils.config

    named = docker.utils.config.find_config_file()
    if named is None or Path(named).name != "config.json":
        return None
    fix = f"correct or remove {named}"
    try:
        content = read_json(Path(named))
    except OSError as error:
        raise _bad(registry, f"it cannot be read: {error.strerror}", fix) from error
    except ValueError as error:
        raise _bad(registry, "it is no JSON document", fix) from error
    if not isinstance(content, dict):
        raise _bad(registry, "it is no JSON object", fix)
    return content


def _bad(registry: str, reason: str, fix: str = "") -> InputError:
    login = f"run `docker login {registry}` with a user name and a password or access token, or correct config.json"
    return InputError(
        "bad-docker-config", f"docker's config.json cannot be used for {registry}: {reason}", fix or login
    )
