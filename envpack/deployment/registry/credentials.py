"""The user's account at a registry, from docker's config.json and the credential helpers that it names."""

from __future__ import annotations

import binascii
from dataclasses import dataclass
from typing import Any

from envpack.support.errors import InputError


@dataclass(frozen=True)
class Account:
    """A user name and its password. They are never shown."""

    user: str
    password: str

    def __repr__(self) -> str:
        return "Account()"


def account_at(registry: str) -> Account | None:
    """The account that `docker login` stored for a registry; None if there is none.

    The folder of config.json is ``DOCKER_CONFIG``, or ``~/.docker``.
    """
    import docker.auth
    import docker.credentials.errors
    import docker.errors

    try:
        found: dict[str, Any] | None = docker.auth.load_config().resolve_authconfig(registry)
    except (docker.errors.DockerException, docker.credentials.errors.StoreError) as error:
        raise _bad(registry, "its content or a credential helper is unusable") from error
    except (ValueError, TypeError, AttributeError, KeyError, binascii.Error) as error:
        raise _bad(registry, "it is damaged") from error
    if not found:
        return None
    lower = {name.lower(): value for name, value in found.items()}
    if lower.get("identitytoken"):
        raise _bad(registry, "it has an identity token, which is not supported")
    if not isinstance(lower.get("username"), str) or not isinstance(lower.get("password"), str):
        return None
    return Account(lower["username"], lower["password"])


def _bad(registry: str, reason: str) -> InputError:
    return InputError(
        f"docker's config.json cannot be used for {registry}: {reason}",
        kind="bad-docker-config",
        hint=f"run `docker login {registry}` with a user name and a password or access token",
    )
