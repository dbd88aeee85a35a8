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
_EXAMPLE = "0" * 64
_QUESTIONS = 8  # at once


@dataclass(frozen=True)
class DigestAddress:
    """An address whose last part contains the digest of what lies there: ``s3://bucket/models/{digest}``."""

    folder: str
    name: str

    def of(self, digest: str) -> Location:
        return parse_location(f"{self.folder}/{self.name.replace(DIGEST, digest)}")

    def newest(self, current: str) -> Objects | None:
        """The publication beside the current one that was published last; ``None`` if there is none."""
        digest = next((digest for _, digest in self._newest_first() if digest != current), "")
        return Objects(self.of(digest)) if digest else None

    def prune(self, keep: int, current: str, progress: Progress) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Remove all publications but the newest and the current one; others see the same order, and remove no other.
        Returns the addresses that were removed, and a caution for each that stays because its record cannot be read.
        """
        removed, cautions = [], []
        for written, objects in self._replaced(max(keep, 1), current):
            try:
                if _removed(objects, written, progress):
                    removed.append(str(objects.location))
            except StorageError as error:
                if error.kind != "store-corrupt":
                    raise
                what = f"{objects.location} stays: {error.message}"
                cautions.append(f"{what}; if nothing uses it, remove it from the store")
        return tuple(removed), tuple(cautions)

    def _replaced(self, keep: int, current: str) -> list[tuple[float, Objects]]:
        """All but the current publication that as many newer ones have replaced, the oldest first.

        One that is incomplete replaces none: to begin a removal, which may be interrupted, writes a record anew. Nor
        does one whose record is damaged, which is read as one without files.
        """
        replaced, newer = [], 0
        for written, digest in self._newest_first():
            objects = Objects(self.of(digest))
            if newer < keep:
                record = PublicationRecord.read(objects, or_damaged=True)
                newer += bool(record.entries) and not record.pending
            elif digest != current:
                replaced.append((written, objects))
        return replaced[::-1]

    def _newest_first(self) -> list[tuple[float, str]]:
        """When each publication was published last, by the store's clock, and its digest."""
        there = Objects(parse_location(self.folder))
        before, after = map(re.escape, self.of(_EXAMPLE).prefix.rpartition("/")[2].split(_EXAMPLE, 1))
        found = (re.fullmatch(f"{before}([0-9a-f]{{64}}){after}", name) for name in there.folders())
        names = {match[1]: match[0] for match in found if match}
        with Pool(_QUESTIONS) as pool:
            asked = {digest: pool.submit(there.head, f"{name}/{RECORD}") for digest, name in names.items()}
            written = [(info.modified, digest) for digest, answer in asked.items() if (info := answer.result())]
        return sorted(written, reverse=True)


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
    address.of(_EXAMPLE)
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
        # Among them are the probes of killed processes; those of processes that run are newer than the record.
        kept = {path.removeprefix(LEASE): info for path, info in present.items() if path.startswith(LEASE)}
        leases = [f"{LEASE}{name}" for name, info in kept.items() if name.isdigit() or info.modified < written]
        # Who finds all files there, and the record as it was, publishes without a lease.
        record.pending |= {path: entry.size for path, entry in record.entries.items()}
        if record.exists and (record.written != written or not record.renew()):
            progress.detail(f"{objects.location} stays: another publication has just ended there")
            return False
        record.remove_unfinished()
        remove(objects, ours)
        objects.delete([RECORD])
    objects.delete(leases)
    objects.remove_folder()
    progress.detail(f"removed {objects.location}")
    return True
