"""Claims: who works on a key, or on an address, so that two machines do not write the same thing at once.

A claim is an object whose name ends with a number, made by create-if-absent. The owner writes it again from time to
time, and replaces its content at the end; a claim that has ended stays, so that no number is used twice, and nothing
that an owner sends late reaches the claim of its successor. A claim is over if it has ended, or if by the store's clock
it was not written for longer than it lasts, or is from the future. The next machine then creates the next number.
Create-if-absent is all that a store must be able to do.

Records decide what is valid, not claims: if two machines build the same key after all, the first record stays.
"""

from __future__ import annotations

import contextlib
import re
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from envpack.store.objects import ObjectInfo, Objects
from envpack.store.records import RecordKind
from envpack.support.errors import StorageError
from envpack.support.processes import raise_if_stopped

EXPIRY = 60.0  # seconds without a sign of life after which a claim is over
_TICK = 1.0  # seconds: object stores note times without fractions
_PAUSE = 1.0  # seconds between two looks at a claim
_LONGEST_END = 5.0  # seconds for the last requests, so that Ctrl-C does not wait for a store that answers no more
ENDED = b"-"  # the content of a claim that was released; not every service takes an empty object
_NUMBER = re.compile(r"[0-9]{1,9}")
_PROBES = "probes/"


class StoreClock:
    """The time by the store's clock, which may differ from this machine's."""

    def __init__(self, written: ObjectInfo) -> None:
        """Start with an object that was written just now."""
        self._offset = written.modified - time.monotonic()

    def now(self) -> float:
        """Seconds since 1970."""
        return self._offset + time.monotonic()


def probe(objects: Objects, stem: str = _PROBES) -> tuple[bool, StoreClock]:
    """Find out whether a store honours create-if-absent, and what time it is there."""
    path = f"{stem}{uuid.uuid4().hex}"
    objects.write(path, b"first")
    try:
        refuses = not _created_again(objects, path)
        written = objects.head(path)
    finally:
        _briefly(lambda: objects.delete([path]))  # a probe that stays blocks no other machine
    return refuses, StoreClock(written or ObjectInfo(path, 0, time.time()))


def _briefly(requests: Callable[[], object]) -> None:
    """Send requests whose failure does no harm, and wait for them a few seconds only."""

    def send() -> None:
        with contextlib.suppress(StorageError):
            requests()

    thread = threading.Thread(target=send, daemon=True)
    thread.start()
    thread.join(_LONGEST_END)


def _created_again(objects: Objects, path: str) -> bool:
    try:
        return objects.create(path, b"second")
    except StorageError as error:
        if error.kind == "store-unreachable":  # it rejects the condition itself
            return True
        raise


class Claim:
    """What this process works on until it releases the claim, or has shown no sign of life for too long."""

    def __init__(
        self, objects: Objects, path: str, owner: bytes, earlier: Sequence[str], begun: float, expiry: float
    ) -> None:
        """Keep a claim that was created by a request that began at a time of `_uptime`."""
        self._objects, self._path, self._owner, self._earlier = objects, path, owner, earlier
        self._written, self._expiry = begun, expiry
        self._must_expire = False
        self._ended = threading.Event()
        self._renewer = threading.Thread(target=self._renew, daemon=True)
        self._renewer.start()

    @property
    def held(self) -> bool:
        """Whether no other machine can have begun the same work."""
        return self.held_for(0)

    def held_for(self, seconds: float) -> bool:
        """Whether no other machine can begin the same work for some time, in which a request may be on the way."""
        return _uptime() + seconds - self._written < self._expiry

    def let_expire(self) -> None:
        """Never release it, because a request may still be on its way."""
        self._must_expire = True

    def release(self) -> None:
        """Let others begin at once; if the store does not answer in some seconds, they wait until the claim expires."""
        self._ended.set()
        _briefly(self._release)

    def _release(self) -> None:
        self._renewer.join()
        if self.held and not self._must_expire:
            self._objects.write(self._path, ENDED)
            self._objects.delete(self._earlier)

    def _renew(self) -> None:
        while not self._ended.wait(self._expiry / 3) and self.held:
            begun = _uptime()
            with contextlib.suppress(StorageError):  # the next time, or it expires
                self._objects.write(self._path, self._owner)
                self._written = begun


def take(objects: Objects, stem: str, clock: StoreClock, expiry: float = EXPIRY) -> Claim | None:
    """Claim what a stem stands for, ``None`` while another machine works on it."""
    begun, found = _uptime(), _claims(objects, stem)
    number = max(found, default=0)
    if number and _is_live(found[number], clock, expiry):
        return None
    path, owner = f"{stem}{number + 1}", uuid.uuid4().hex.encode()
    if not objects.create(path, owner):
        there = objects.read(path, len(owner))
        if there is None or there[0] != owner:  # else the answer was lost, and the request repeated
            return None
    # Meanwhile, others may have worked and removed all claims up to this number.
    if max(_claims(objects, stem), default=0) > number + 1:
        objects.delete([path])
        return None
    return Claim(objects, path, owner, [info.path for info in found.values()], begun, expiry)


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
    """Wait for the turn to make the content of a key; yields false if another process has made it."""
    reported = False
    while (claim := take(objects, f"claims/{kind}/{key}/", clock, expiry)) is None:
        if not reported:
            waiting()
        reported = True
        _pause(expiry)
        if is_made():
            yield False
            return
    try:
        yield not is_made()
    finally:
        claim.release()


@contextmanager
def reserved(
    objects: Objects, stem: str, *, patience: float, say: Callable[[str], object], expiry: float = EXPIRY
) -> Iterator[Claim | None]:
    """Wait until no other machine works on what a stem stands for, and work on it during the block.

    Yields the claim, ``None`` if others work on it after ``patience`` seconds. The claim of a machine that gives no
    sign of life for ``expiry`` seconds is over.
    """
    refuses, clock = probe(objects, f"{stem}probe-")
    if not refuses:
        say(f"{objects.location} ignores conditional writes, so that two machines may write there at once")
    limit, claim = time.monotonic() + patience, take(objects, stem, clock, expiry)
    if claim is None:
        say(f"another machine writes to {objects.location}; wait for it, at most {patience:.0f} s")
    while claim is None and time.monotonic() < limit:
        _pause(expiry)
        claim = take(objects, stem, clock, expiry)
    try:
        yield claim
    finally:
        if claim:
            claim.release()


def _pause(expiry: float) -> None:
    raise_if_stopped()
    time.sleep(min(_PAUSE, expiry / 5))


PRUNE = "claims/prune/all/"  # the claim of who removes blobs
PRUNE_EXPIRY = 300.0  # seconds; longer than that of others, because a removal may be on the way for long
_LONGEST_PRUNE = 600.0  # seconds to wait for it


def live_claims(objects: Objects, clock: StoreClock, expiry: float = EXPIRY) -> int:
    claims = (claim for claim in objects.list("claims") if not claim.path.startswith(PRUNE))
    return sum(_is_live(claim, clock, expiry) for claim in claims)


def prunes(objects: Objects, clock: StoreClock) -> Mapping[int, bool]:
    """The latest prunes of a store: whether each is still going on. One that was killed goes on until it expires."""
    return {number: _is_live(claim, clock, PRUNE_EXPIRY) for number, claim in _claims(objects, PRUNE).items()}


def pruned_since(objects: Objects, before: Mapping[int, bool], clock: StoreClock) -> bool:
    """Whether blobs may have been removed since `prunes` was looked at. It waits until nobody removes any."""
    limit = time.monotonic() + _LONGEST_PRUNE
    while any((latest := prunes(objects, clock)).values()):
        if time.monotonic() > limit:
            what = f"another machine has pruned the store for {_LONGEST_PRUNE / 60:.0f} minutes"
            fix = "run the command again when that has ended"
            raise StorageError("store-unreachable", what, fix, str(objects.location))
        _pause(PRUNE_EXPIRY)
    return latest != before


def _is_live(claim: ObjectInfo, clock: StoreClock, expiry: float) -> bool:
    # One from the future was written before the clock was set back: its owner would have written it again.
    return claim.size > len(ENDED) and abs(clock.now() - claim.modified) <= expiry + _TICK


def _claims(objects: Objects, stem: str) -> dict[int, ObjectInfo]:
    folder = stem.rpartition("/")[0]
    found = ((info.path.removeprefix(stem), info) for info in objects.list_here(folder) if info.path.startswith(stem))
    return {int(number): info for number, info in found if _NUMBER.fullmatch(number)}


def _uptime() -> float:
    """Seconds, also those in which this machine was suspended."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)
