"""Addresses with the digest of what lies there, and the removal of those that newer publications have replaced."""

from __future__ import annotations

import re
from dataclasses import dataclass

from envpack.deployment.objects.record import RECORD, PublicationRecord
from envpack.deployment.objects.send import LEASE, is_foreign, remove
from envpack.store.claims import EXPIRY, reserved
from envpack.store.location import Location, parse_location
from envpack.store.objects import Objects
from envpack.support.errors import StorageError, UsageError
from envpack.support.pool import Pool
from envpack.support.progress import Progress

DIGEST = "{digest}"
_QUESTIONS = 8  # at once


@dataclass(frozen=True)
class DigestAddress:
    """An address whose last part contains the digest of what lies there: ``s3://bucket/models/{digest}``."""

    folder: str
    name: str

    def of(self, digest: str) -> Location:
        return parse_location(f"{self.folder}/{self.name.replace(DIGEST, digest)}")

    def matches(self, name: str) -> bool:
        before, after = map(re.escape, self.name.split(DIGEST))
        return re.fullmatch(f"{before}[0-9a-f]{{64}}{after}", name) is not None

    def newest(self, current: str) -> Objects | None:
        """The publication beside the current one that was published last; ``None`` if there is none."""
        own = self.name.replace(DIGEST, current)
        name = next((name for _, name in self._newest_first() if name != own), "")
        return Objects(parse_location(f"{self.folder}/{name}")) if name else None

    def prune(self, keep: int, current: str, progress: Progress) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Remove all publications but the newest and the current one; others see the same order, and remove no other.
        Returns the addresses that were removed, and a caution for each that stays because its record cannot be read.
        """
        removed, cautions = [], []
        own = self.name.replace(DIGEST, current)
        for written, name in reversed(self._newest_first()[max(keep, 1) :]):
            if name == own:
                continue
            objects = Objects(parse_location(f"{self.folder}/{name}"))
            try:
                if _removed(objects, written, progress):
                    removed.append(str(objects.location))
            except StorageError as error:
                if error.kind != "store-corrupt":
                    raise
                what = f"{objects.location} stays: {error.message}"
                cautions.append(f"{what}; if nothing uses it, remove it from the store")
        return tuple(removed), tuple(cautions)

    def _newest_first(self) -> list[tuple[float, str]]:
        there = Objects(parse_location(self.folder))
        names = [name for name in there.folders() if self.matches(name)]
        with Pool(_QUESTIONS) as pool:
            asked = [pool.submit(there.head, f"{name}/{RECORD}") for name in names]
            found = [
                (info.modified, name) for name, answer in zip(names, asked, strict=True) if (info := answer.result())
            ]
        return sorted(found, reverse=True)


def parse_digest_address(url: str) -> DigestAddress | None:
    """The address if it has ``{digest}``, else ``None``; other words in braces are refused."""
    words = re.findall(r"\{\w+\}", url)
    if not words:
        return None
    if other := next((word for word in words if word != DIGEST), ""):
        what = f"{url} cannot be used: envpack replaces {DIGEST} alone, and not {other}"
        raise UsageError("bad-store-address", what, f"write a name in its place, or s3://bucket/models/{DIGEST}")
    folder, _, name = url.rstrip("/").rpartition("/")
    if name.count(DIGEST) != 1 or DIGEST in folder:
        what = f"{url} cannot be used: {DIGEST} must stand in it once, in its last part"
        raise UsageError("bad-store-address", what, f"write s3://bucket/models/{DIGEST}")
    address = DigestAddress(folder, name)
    parse_location(folder)  # first, as it was typed
    address.of("0" * 64)
    return address


def _removed(objects: Objects, written: float, progress: Progress) -> bool:
    """Remove a publication and what belongs to it, unless another process publishes there; whether it went."""
    with reserved(objects, LEASE, patience=0, say=lambda _: None, expiry=EXPIRY) as lease:
        if lease is None:
            progress.detail(f"{objects.location} stays: another publication writes there")
            return False
        record = PublicationRecord.read(objects)
        present = {info.path: info for info in objects.list()}
        ours = [path for path in record.known() if path in present and not is_foreign(path, record, present)]
        leases = [path for path in present if path.removeprefix(LEASE).isdigit()]
        # Who finds all files there, and the record as it was, publishes without a lease.
        record.pending |= {path: entry.size for path, entry in record.entries.items()}
        if record.exists and (record.written != written or not record.renew()):
            progress.detail(f"{objects.location} stays: another publication has just ended there")
            return False
        remove(objects, ours)
        objects.delete([RECORD])
    objects.delete(leases)
    progress.detail(f"removed {objects.location}")
    return True
