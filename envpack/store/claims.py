"""Claims: who makes the content of a key, so that two machines do not build the same thing at once.

A claim is the object ``claims/KIND/KEY/N`` with a random name of its owner, made by create-if-absent. The owner writes
it again from time to time. If the store's clock says that the newest claim of a key was not written for longer than it
lasts, its owner is dead, and the next machine creates claim ``N+1``. No claim is ever taken from a living owner by
removing or replacing it, so create-if-absent is all that a store must be able to do.

Records decide what is valid, not claims: if two machines build the same key after all, the first record stays.
"""

from __future__ import annotations

import contextlib
import json
import re
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from envpack.store.objects import ObjectInfo, Objects
from envpack.store.records import RecordKind
from envpack.support.errors import StorageError
from envpack.support.processes import raise_if_stopped

EXPIRY = 60.0  # seconds without a sign of life after which a claim does not count
_PAUSE = 1.0  # seconds between two looks at a claim
_NUMBER = re.compile(r"[0-9]{1,9}")


class StoreClock:
    """The time by the store's clock, which may differ from this machine's."""

    def __init__(self, written: ObjectInfo) -> None:
        """Start with an object that was written just now."""
        self._offset = written.modified - time.monotonic()

    def now(self) -> float:
        """Seconds since 1970."""
        return self._offset + time.monotonic()


def probe(objects: Objects) -> tuple[bool, StoreClock]:
    """Find out whether a store honours create-if-absent, and what time it is there.

    Returns:
        Whether a second creation of the same object is refused, and the store's clock.
    """
    path = f"probes/{uuid.uuid4().hex}"
    objects.write(path, b"first")
    try:
        refuses = not _created_again(objects, path)
        written = objects.head(path)
    finally:
        with contextlib.suppress(StorageError):  # a probe that stays is in nobody's way
            objects.delete([path])
    return refuses, StoreClock(written or ObjectInfo(path, 0, time.time()))


def _created_again(objects: Objects, path: str) -> bool:
    try:
        return objects.create(path, b"second")
    except StorageError as error:
        if error.kind == "store-unreachable":  # it rejects the condition itself
            return True
        raise


class Claim:
    """A key that this process works on until the block of `claimed` ends."""

    def __init__(self, objects: Objects, folder: str, number: int, owner: str, expiry: float) -> None:
        self._objects, self._folder, self._number = objects, folder, number
        self._content = json.dumps({"owner": owner}).encode()
        self._ended = threading.Event()
        self._renewer = threading.Thread(target=self._renew, args=(expiry / 3,), daemon=True)
        self._renewer.start()

    def release(self) -> None:
        """Give the key back."""
        self._ended.set()
        self._renewer.join()
        with contextlib.suppress(StorageError):  # then it expires
            numbers = [number for number in (self._number - 1, self._number) if number]
            self._objects.delete([f"{self._folder}/{number}" for number in numbers])

    def _renew(self, pause: float) -> None:
        while not self._ended.wait(pause):
            with contextlib.suppress(StorageError):  # the next time, or it expires
                self._objects.write(f"{self._folder}/{self._number}", self._content)


@contextmanager
def claimed(
    objects: Objects,
    kind: RecordKind,
    key: str,
    *,
    clock: StoreClock,
    is_made: Callable[[], bool],
    waiting: Callable[[], object],
    expiry: float = EXPIRY,
) -> Iterator[bool]:
    """Wait until this process may make the content of a key, or until another one has made it.

    Yields:
        Whether this process has to make it: false if there is a record now.
    """
    folder, owner, reported = f"claims/{kind}/{key}", uuid.uuid4().hex, False
    claim = None
    while claim is None:
        newest, number = _newest(objects, folder)
        expired = newest is None or clock.now() - newest.modified > expiry
        if expired and objects.create(f"{folder}/{number + 1}", json.dumps({"owner": owner}).encode()):
            claim = Claim(objects, folder, number + 1, owner, expiry)
            break
        if not reported:
            waiting()
        reported = True
        raise_if_stopped()
        time.sleep(min(_PAUSE, expiry / 5))
        if is_made():
            yield False
            return
    try:
        yield not is_made()
    finally:
        claim.release()


def live_claims(objects: Objects, clock: StoreClock, expiry: float = EXPIRY) -> int:
    """How many keys are being worked on."""
    return sum(clock.now() - claim.modified <= expiry for claim in objects.list("claims"))


def _newest(objects: Objects, folder: str) -> tuple[ObjectInfo | None, int]:
    """The newest claim and its number; 0 if there is none."""
    numbered = {
        int(claim.path.rpartition("/")[2]): claim
        for claim in objects.list(folder)
        if _NUMBER.fullmatch(claim.path.rpartition("/")[2])
    }
    number = max(numbered, default=0)
    return numbered.get(number), number
