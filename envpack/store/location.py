"""Where a store is: the parts of its address, checked before anything is connected."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, cast
from urllib.parse import unquote, urlsplit

from envpack.support.errors import UsageError
from envpack.support.redaction import has_secret
from envpack.support.text import printable_line

Scheme = Literal["file", "s3", "gs", "az"]
SCHEMES: tuple[Scheme, ...] = ("file", "s3", "gs", "az")
_EXAMPLES = "file:///mnt/store, s3://bucket/folder, gs://bucket/folder or az://container/folder"
# Triton's notation for a server other than Amazon's: s3://http://127.0.0.1:9000/bucket/folder
_ENDPOINT = re.compile(r"s3://(?P<endpoint>https?://[^/\s@]+)/(?P<rest>.+)", re.IGNORECASE)
_BUCKET = re.compile(r"[A-Za-z0-9$][A-Za-z0-9._-]{0,254}")
_SEGMENT = re.compile(r"[^\x00-\x1f\x7f]{1,255}")


@dataclass(frozen=True)
class Location:
    """A folder of an object store, or of a file system.

    Attributes:
        url: the address as the user wrote it, without a slash at its end.
        scheme: ``"file"``, ``"s3"``, ``"gs"`` or ``"az"``.
        bucket: bucket or container; ``""`` of ``file``.
        prefix: path in the bucket, without slashes around it; of ``file`` the absolute path of the folder.
        endpoint: address of the S3 service, ``""`` for the one that the environment names.
    """

    url: str
    scheme: Scheme
    bucket: str
    prefix: str
    endpoint: str = ""

    @property
    def folder(self) -> Path | None:
        """The folder of a ``file`` location, ``None`` of others."""
        return Path(self.prefix) if self.scheme == "file" else None

    def __str__(self) -> str:
        return self.url


def parse_location(url: str) -> Location:
    """Read an address.

    Args:
        url: ``file:///folder``, ``s3://bucket/prefix``, ``gs://bucket/prefix``, ``az://container/prefix``, or with the
            address of an S3 service ``s3://http://host:port/bucket/prefix``.

    Raises:
        UsageError: kind ``bad-store-address``: it has another form, or contains credentials.
    """
    if has_secret(url.removeprefix("s3://")) or has_secret(url):
        raise _bad("it contains credentials", url, "remove them; the usual variables and files of the cloud hold them")
    match = _ENDPOINT.fullmatch(url)
    endpoint = match["endpoint"] if match else ""
    try:
        parts = urlsplit(f"s3://{match['rest']}" if match else url)
    except ValueError as error:  # brackets that are no IPv6 address
        raise _bad("it is not the address of a store", url, f"write {_EXAMPLES}") from error
    scheme = parts.scheme.lower()
    if scheme not in SCHEMES or parts.query or parts.fragment:
        raise _bad("it is not the address of a store", url, f"write {_EXAMPLES}")
    if scheme == "file":
        return _folder(url, parts.netloc, parts.path)
    prefix = parts.path.strip("/")
    if not _BUCKET.fullmatch(parts.netloc):
        raise _bad("it names no bucket or container", url, f"write {_EXAMPLES}")
    if prefix and not all(_is_name(segment) for segment in prefix.split("/")):
        raise _bad("its path has an empty part, '.' or '..'", url, f"write {_EXAMPLES}")
    return Location(url.rstrip("/"), cast("Scheme", scheme), parts.netloc, prefix, endpoint)


def server_address(location: Location, variables: Mapping[str, str] | None = None) -> str:
    """The address of a location as Triton reads it."""
    names = os.environ if variables is None else variables
    path = "/".join(part for part in (location.bucket, location.prefix) if part)
    if location.scheme == "file":
        return location.prefix
    if location.scheme == "az":
        return f"as://{names.get('AZURE_STORAGE_ACCOUNT_NAME') or 'ACCOUNT'}/{path}"
    endpoint = location.endpoint or names.get("AWS_ENDPOINT_URL_S3") or names.get("AWS_ENDPOINT_URL") or ""
    if location.scheme == "s3" and endpoint:
        return f"s3://{endpoint.rstrip('/')}/{path}"
    return f"{location.scheme}://{path}"


def _folder(url: str, host: str, path: str) -> Location:
    folder = unquote(path)
    if host not in ("", "localhost") or not folder.startswith("/") or folder.strip("/") == "":
        raise _bad("it names no folder by its absolute path", url, "write file:///mnt/store, with three slashes")
    if not all(_is_name(segment) for segment in folder.strip("/").split("/")):
        raise _bad("its path has an empty part, '.' or '..'", url, "write file:///mnt/store")
    return Location(url.rstrip("/"), "file", "", folder.rstrip("/"))


def _is_name(segment: str) -> bool:
    return segment not in (".", "..") and _SEGMENT.fullmatch(segment) is not None


def _bad(reason: str, url: str, hint: str) -> UsageError:
    return UsageError(f"{printable_line(url)} cannot be used: {reason}", kind="bad-store-address", hint=hint)
