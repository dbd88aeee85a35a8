"""The address of an image in a registry: its parts, checked before anything is connected."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass

from envpack.support.errors import UsageError
from envpack.support.redaction import has_secret
from envpack.support.text import printable_line

SCHEME = "oci://"
_EXAMPLE = "oci://registry.example/team/models:1"
_HOST = re.compile(r"[A-Za-z0-9.-]{1,253}(?::[0-9]{1,5})?|\[[0-9a-fA-F:.]{2,45}\](?::[0-9]{1,5})?")
_REPOSITORY = re.compile(r"[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*(?:/[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*)*")
_TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}")
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_DOCKER_HUB = "docker.io"


@dataclass(frozen=True)
class ImageAddress:
    """The address of an image.

    Attributes:
        registry: host, with its port if it has one.
        repository: name of the image in the registry.
        tag: ``""`` if the address has none.
        digest: ``"sha256:…"``, ``""`` if the address has none.
    """

    registry: str
    repository: str
    tag: str = ""
    digest: str = ""

    @property
    def name(self) -> str:
        """The address without tag and digest."""
        return f"{self.registry}/{self.repository}"

    @property
    def reference(self) -> str:
        """What selects the image in its repository: the digest, else the tag."""
        return self.digest or self.tag

    @property
    def host(self) -> str:
        """The host that answers for the registry."""
        return "registry-1.docker.io" if self.registry == _DOCKER_HUB else self.registry

    @property
    def is_local(self) -> bool:
        """Whether the registry runs on this machine, so that it needs no encryption."""
        has_port = ":" in self.registry.rpartition("]")[2]
        return is_loopback(self.registry.rpartition(":")[0] if has_port else self.registry)

    def __str__(self) -> str:
        return f"{self.name}@{self.digest}" if self.digest else f"{self.name}:{self.tag}"


def parse_image_address(text: str, *, tagged: bool = False, pinned: bool = False) -> ImageAddress:
    """Read the address of an image.

    Args:
        text: ``registry/name:tag`` or ``registry/name@sha256:…``, with or without ``oci://``.
        tagged: whether it must have a tag, and no digest.
        pinned: whether it must have a digest.

    Raises:
        UsageError: kind ``bad-image-address``: it has another form, or contains credentials.
    """
    rest = text.removeprefix(SCHEME)
    if has_secret(f"{SCHEME}{rest.partition('@sha256:')[0]}"):
        raise _bad("it contains credentials", text, "remove them; `docker login` stores them")
    rest, at, digest = rest.partition("@")
    registry, slash, path = rest.partition("/")
    repository, _, tag = path.partition(":")
    if not slash or not _HOST.fullmatch(registry) or not _looks_like_host(registry):
        raise _bad("it names no registry", text, f"write {_EXAMPLE}")
    if not _REPOSITORY.fullmatch(repository) or len(repository) > 255:
        raise _bad("the name of an image has lower-case letters, digits, '.', '_', '-' and '/'", text, "correct it")
    if (tag and not _TAG.fullmatch(tag)) or (at and not _DIGEST.fullmatch(digest)):
        raise _bad("its tag or digest is malformed", text, f"write {_EXAMPLE}, or …@sha256: and 64 digits")
    if pinned and not digest:
        raise _bad("it has no digest", text, "add @sha256:…, as `docker buildx imagetools inspect` prints it")
    if tagged and digest:
        raise _bad("it has a digest, which nothing can be written to", text, f"write {_EXAMPLE}")
    if not tag and not digest:
        raise _bad("it has no tag", text, f"write {_EXAMPLE}")
    if registry == _DOCKER_HUB and "/" not in repository:
        repository = f"library/{repository}"
    return ImageAddress(registry, repository, tag, digest)


def is_loopback(host: str) -> bool:
    """Whether a host, without a port, is this machine."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def _looks_like_host(registry: str) -> bool:
    """Whether a first part is a registry, and not the first part of a name on Docker Hub."""
    return "." in registry or ":" in registry or registry == "localhost"


def _bad(reason: str, text: str, hint: str) -> UsageError:
    return UsageError("bad-image-address", f"{printable_line(text)} cannot be used: {reason}", hint)
