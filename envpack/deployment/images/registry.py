"""Reads and writes blobs and manifests of one repository in a registry; every byte is compared with its digest."""

from __future__ import annotations

import contextlib
import functools
import http
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from envpack.deployment.images.accounts import account_at
from envpack.deployment.images.address import ImageAddress
from envpack.deployment.images.connection import (
    TIMEOUT,
    client_class,
    faults_of,
    is_temporary,
    log_in,
    registry_corrupt,
    require_library,
)
from envpack.deployment.images.documents import INDEX, MANIFESTS, Descriptor, digest_of, encoded, parse_index
from envpack.support.certificates import verification_setting
from envpack.support.errors import StorageError, storage_errors
from envpack.support.pool import Report
from envpack.support.processes import raise_if_stopped

_ATTEMPTS = 3
_PAUSE = 0.5  # seconds before the second attempt
_PIECE = 1 << 20
_MOST_PAGES = 100  # of a list of artifacts
_LISTS = {"Accept": INDEX}


@contextlib.contextmanager
def connected(address: ImageAddress) -> Iterator[Registry]:
    require_library(address)
    authenticate = functools.partial(log_in, account=account_at(address.registry))

    with faults_of(address):
        insecure = address.is_local and not _is_encrypted(address)
    made = client_class()(
        address.host, address.repository, authenticate, insecure, tlsverify=verification_setting(), timeout=TIMEOUT
    )
    with made as client:
        yield Registry(address, client)


def _is_encrypted(address: ImageAddress) -> bool:
    import requests

    try:
        requests.head(f"https://{address.host}/v2/", timeout=TIMEOUT, verify=verification_setting())
    except requests.exceptions.SSLError as error:
        return "CERTIFICATE_VERIFY_FAILED" in str(error)  # reported by the first request
    except requests.exceptions.ProxyError:  # a ConnectionError, too, that says nothing about the registry
        raise
    except requests.exceptions.ConnectionError:
        return False
    return True


class Registry:
    """The repository of an image in a registry."""

    def __init__(self, address: ImageAddress, client: Any) -> None:
        self.address = address
        self._client = client

    def manifest(self, reference: str) -> bytes | None:
        answer = self._get(f"manifests/{reference}", {"Accept": ", ".join(MANIFESTS)})
        if answer is None:
            return None
        content: bytes = answer.content
        if reference.startswith("sha256:") and digest_of(content) != reference:
            raise registry_corrupt(self.address, f"the manifest {reference} has another digest")
        return content

    def put_manifest(self, content: bytes, media_type: str, reference: str) -> None:
        """Write a manifest under a tag or its digest, and check that the registry has it."""
        headers = {"Content-Type": media_type}
        self._repeated(lambda: self._client.request("put", f"manifests/{reference}", data=content, headers=headers))
        if self.manifest(reference) == content:
            return
        there = self._get(f"manifests/{digest_of(content)}", {"Accept": media_type})
        if there is not None and there.content == content:
            what, fix = (
                f"another publication to the tag {reference} has just ended",
                "publish again when nothing else writes there",
            )
            raise StorageError("publication-conflict", what, fix, f"oci://{self.address}")
        raise registry_corrupt(self.address, f"{reference} is not the manifest that was just written")

    def has_blob(self, blob: Descriptor) -> bool:
        size = self._repeated(lambda: self._client.blob_size(blob.digest), or_absent=True)
        if size is None:
            return False
        if size != blob.size:
            raise registry_corrupt(self.address, f"the blob {blob.digest} has {size} bytes instead of {blob.size}")
        return True

    def send_blob(self, blob: Descriptor, file: Path, report: Report = lambda _: None) -> None:
        def reported(_digest: str, piece: bytes, _size: int) -> None:
            raise_if_stopped()
            report(len(piece))

        digest = self._repeated(lambda: self._client.push_blob(str(file), reported, check_exists=False))
        if digest != blob.digest or not self.has_blob(blob):
            raise registry_corrupt(self.address, f"the blob {blob.digest} is not there after it was sent")

    def mount_blob(self, blob: Descriptor, source: ImageAddress) -> bool:
        """Let this repository share a blob of another one in the same registry; whether it does now."""
        from dxf.exceptions import DXFMountFailed

        if source.registry != self.address.registry:
            return False
        with faults_of(self.address):
            try:
                self._client.mount_blob(source.repository, blob.digest)
            except DXFMountFailed:
                return False
            except Exception as error:
                if _status_of(error) is None:
                    raise
                return False
        return self.has_blob(blob)

    def save_blob(self, blob: Descriptor, file: Path, report: Report = lambda _: None) -> None:
        """Write the content of a blob to a file, again from the beginning if the connection breaks off."""

        def save() -> None:
            done = 0
            try:
                with storage_errors(file), file.open("wb") as out:
                    for piece in self._pieces(blob):
                        out.write(piece)
                        done += len(piece)
                        report(len(piece))
            except BaseException:
                report(-done)
                raise

        self._repeated(save)

    def read_blob(self, blob: Descriptor, most: int) -> bytes:
        if blob.size > most:
            raise registry_corrupt(self.address, f"the blob {blob.digest} has more than {most} bytes")
        content: bytes = self._repeated(lambda: b"".join(self._pieces(blob)))
        return content

    def _pieces(self, blob: Descriptor) -> Iterator[bytes]:
        """The content of a blob; the last piece follows only if the digest is right."""
        left = blob.size
        for piece in self._client.pull_blob(blob.digest, chunk_size=_PIECE):
            raise_if_stopped()
            left -= len(piece)
            if left < 0:
                raise registry_corrupt(self.address, f"the blob {blob.digest} has more than {blob.size} bytes")
            yield piece
        if left:
            raise registry_corrupt(self.address, f"the blob {blob.digest} ends {left} bytes too early")

    def referrers(self, digest: str) -> tuple[Descriptor, ...]:
        """The artifacts about an image: from the referrers API, or the tag that replaces it where there is none."""
        pages: list[bytes] = []
        first = path = f"referrers/{digest}"
        while path and len(pages) < _MOST_PAGES and (answer := self._get(path, _LISTS)) is not None:
            pages.append(answer.content)
            following = urlsplit(answer.links.get("next", {}).get("url", "")).query
            path = f"{first}?{following}" if following else ""
        if not pages and (content := self.manifest(_referrers_tag(digest))):
            pages.append(content)
        try:
            return tuple(found for page in pages for found, _ in parse_index(page))
        except ValueError as error:
            raise registry_corrupt(self.address, f"the list of artifacts about {digest} is damaged") from error

    def add_referrer(self, digest: str, artifact: Descriptor) -> None:
        """List an artifact about an image, unless the registry does so itself."""
        if self._get(f"referrers/{digest}", _LISTS) is not None:
            return
        listed = self.referrers(digest)
        if artifact.digest in {found.digest for found in listed}:
            return
        manifests = [found.to_json() for found in (*listed, artifact)]
        index = {"schemaVersion": 2, "mediaType": INDEX, "manifests": manifests}
        self.put_manifest(encoded(index), INDEX, _referrers_tag(digest))

    def _get(self, path: str, headers: dict[str, str]) -> Any:
        """The answer to a request; None if there is no such thing."""
        return self._repeated(lambda: self._client.request("get", path, headers=headers), or_absent=True)

    def _repeated(self, request: Callable[[], Any], *, or_absent: bool = False) -> Any:
        """The result of a request, which is repeated if it fails for a reason that may pass; None if that is absent."""
        attempt = 0
        with faults_of(self.address):
            while True:
                attempt += 1
                raise_if_stopped()
                try:
                    return request()
                except Exception as error:
                    if or_absent and _status_of(error) == http.HTTPStatus.NOT_FOUND:
                        return None
                    if attempt == _ATTEMPTS or not is_temporary(error):
                        raise
                    time.sleep(_PAUSE * attempt)


def _referrers_tag(digest: str) -> str:
    return digest.replace(":", "-")


def _status_of(error: BaseException) -> int | None:
    status = getattr(getattr(error, "response", None), "status_code", None)
    return status if isinstance(status, int) else None
