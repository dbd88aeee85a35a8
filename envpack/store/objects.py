"""The objects of a store: reads that are bounded, writes that are whole, and errors that a user can act on."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import re
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar

from envpack.store.faults import NO_BUCKET, absent, explained, forbidden
from envpack.store.location import Location, connect, obstore_for, refuse_forked
from envpack.support.errors import StorageError
from envpack.support.links_and_modes import FILE, FOLDER, PROGRAM
from envpack.support.placed_files import STUB_NAME
from envpack.support.pool import interruptible

_Answer = TypeVar("_Answer")
TIMEOUT = 60.0  # seconds for one request with its answer
_HASTY, _PATIENT = 3, 10  # times that a request is repeated: within a second, and within a minute
_PIECE = 1 << 20  # bytes that are handed over at once
CHUNK = 4 << 20  # bytes of one request for a part of a blob
_PART = 8 << 20  # bytes of a part of a multipart upload, or more
_MOST_PARTS = 10_000  # of an object on S3
_PARTS = 4  # that are uploaded at once
_COPY_TIMEOUT = 300.0  # seconds for a store to copy an object itself; S3 copies some 100 MB in a second
_MOST_COPIED = 5 << 30  # bytes of an object that S3 copies
_BUSY = re.compile(r"status code: (?:429|5[0-9]{2})\b")


@dataclass(frozen=True)
class ObjectInfo:
    """An object of a store."""

    path: str  # relative to the store's folder
    size: int  # bytes
    modified: float  # when it was written, in seconds since 1970 by the store's clock
    tag: str = ""  # changes whenever the object is written; ``""`` if the store has none


class Objects:
    """The objects below one location. Its methods may be called from several threads.

    Every method raises `StorageError`: ``store-unreachable``, ``store-forbidden``, ``store-absent`` for a bucket that
    does not exist, and ``disk-full``.
    """

    def __init__(self, location: Location, *, timeout: float = TIMEOUT) -> None:
        self.location = location
        self._timeout = timeout
        self._answered = False

    @cached_property
    def _obstore(self) -> Any:
        """The module obstore, which takes time to import."""
        return obstore_for(self.location)

    @cached_property
    def _hasty(self) -> Any:
        return connect(self.location, self._timeout, _HASTY)

    @cached_property
    def _patient(self) -> Any:
        return connect(self.location, self._timeout, _PATIENT)

    @cached_property
    def _bucket(self) -> Any:
        """All of the bucket, for copies, which take long."""
        return connect(dataclasses.replace(self.location, prefix=""), _COPY_TIMEOUT, _HASTY)

    def _ask(self, request: Callable[[Any], _Answer]) -> _Answer:
        """The answer to a request; Ctrl-C need not wait for it.

        A store that has answered before gets tens of seconds to do so again, as S3 wants when it is busy. An address at
        which nothing is gets less.
        """
        if not self._answered:
            try:
                answer = interruptible(lambda: request(self._hasty))
            except self._obstore.exceptions.BaseError as error:
                if not _BUSY.search(str(error)):
                    raise
            else:
                self._answered = True
                return answer
        self._answered = True
        return interruptible(lambda: request(self._patient))

    def head(self, path: str) -> ObjectInfo | None:
        """What the store says of an object, ``None`` if there is none."""
        with self._errors():
            try:
                return _info(self._ask(lambda store: self._obstore.head(store, path)))
            except FileNotFoundError:
                return None

    def read(self, path: str, most: int) -> tuple[bytes, ObjectInfo] | None:
        """The content of a small object; ``None`` if there is none.

        Raises:
            StorageError: also kind ``store-corrupt``: it is larger than ``most`` bytes.
        """
        with self._errors():
            try:
                return self._ask(lambda store: self._get(store, path, most, {}))
            except FileNotFoundError as error:
                if NO_BUCKET.search(str(error)):
                    raise absent(self.location) from error
                return None

    def read_part(self, path: str, start: int, size: int, of: int) -> bytes:
        """``size`` bytes of an object from ``start`` on.

        ``of`` are the bytes of the object: all of it is requested without a range, which some stores do not answer
        then. Without such an object or part, the error has the kind ``store-corrupt``.
        """
        with self._errors():
            try:
                options = {} if size == of else {"range": (start, start + size)}
                content, _ = self._ask(lambda store: self._get(store, path, size, options))
            except FileNotFoundError as error:
                raise self.corrupt(path, "it is missing") from error
        if len(content) != size:
            raise self.corrupt(path, f"it ends {size - len(content)} bytes too early")
        return content

    def pieces(self, path: str, size: int) -> Iterator[bytes]:
        """The content of an object of a known size; errors as those of `read_part`."""
        for start in range(0, size, CHUNK):
            yield self.read_part(path, start, min(CHUNK, size - start), size)

    def sha256(self, path: str, size: int) -> str:
        """The SHA-256 of an object of a known size, in hexadecimal digits; errors as those of `read_part`."""
        digest = hashlib.sha256()
        for piece in self.pieces(path, size):
            digest.update(piece)
        return digest.hexdigest()

    def create(self, path: str, content: bytes) -> bool:
        """Write an object if there is none; whether it was written."""
        exceptions = self._obstore.exceptions
        with self._writes(path):
            try:
                self._ask(lambda store: self._obstore.put(store, path, content, mode="create", use_multipart=False))
            except (exceptions.AlreadyExistsError, exceptions.PreconditionError):
                return False
        return True

    def write(self, path: str, content: bytes) -> str:
        """Write an object, or replace it; returns its tag."""
        with self._writes(path):
            result = self._ask(lambda store: self._obstore.put(store, path, content, use_multipart=False))
            return _tag(result)

    def replace(self, path: str, content: bytes, tag: str) -> bool:
        """Replace an object unless it was written since it had a tag; whether it was replaced.

        A folder knows no such condition: another process can write between the comparison and the replacement.
        """
        exceptions = self._obstore.exceptions
        with self._writes(path):
            try:
                mode = self._unchanged(path, tag)
                if mode is None:
                    return False
                self._ask(lambda store: self._obstore.put(store, path, content, mode=mode, use_multipart=False))
            except (exceptions.PreconditionError, FileNotFoundError):
                return False
        return True

    def _unchanged(self, path: str, tag: str) -> dict[str, str] | str | None:
        """The condition that an object has a tag, for Google's store its generation; None if it was written since."""
        if self.location.scheme in ("s3", "az"):
            return {"e_tag": tag}
        meta = self._ask(lambda store: self._obstore.head(store, path))
        if _tag(meta) != tag:
            return None
        return {"version": str(meta["version"])} if self.location.scheme == "gs" else "overwrite"

    def upload(self, path: str, content: Iterable[bytes], size: int) -> str:
        """Write a large object of a known size in parts; it appears when it is complete. Returns its tag."""
        with self._writes(path):
            options = {"chunk_size": _part(size), "max_concurrency": _PARTS}
            result = interruptible(lambda: self._obstore.put(self._patient, path, iter(content), **options))
            return _tag(result)

    def copy(self, source: Objects, found: ObjectInfo, path: str) -> str | None:
        """Let the store copy an object of the same bucket to where none is, so that its content is not sent.

        Returns the tag of the copy; ``None`` if the store has no whole copy of exactly that object: this kind of store
        copies nothing, or the object is too large for that, or has been written since it had its tag.
        """
        if self.location.folder is not None or found.size > _MOST_COPIED:
            return None
        keys = (_key(source.location, found.path), _key(self.location, path))
        try:
            interruptible(lambda: self._obstore.copy(self._bucket, *keys, overwrite=True))
            now, copy = source.head(found.path), self.head(path)
        except (self._obstore.exceptions.BaseError, OSError, StorageError):
            return None
        if now is None or copy is None or (now.tag, now.size, copy.size) != (found.tag, found.size, found.size):
            return None
        return copy.tag

    def list(self, prefix: str = "") -> Sequence[ObjectInfo]:
        """The objects below a folder of the store, in no order."""
        found = self._listed(lambda store: [*chain.from_iterable(self._obstore.list(store, prefix or None))])
        return [info for info in map(_info, found) if info.path]  # without the folder, which consoles make an object

    def list_here(self, folder: str = "") -> Sequence[ObjectInfo]:
        """The objects of a folder of the store, without those of the folders in it."""
        found = self._listed(lambda store: self._obstore.list_with_delimiter(store, folder or None)["objects"])
        return [info for info in map(_info, found) if info.path]

    def folders(self) -> Sequence[str]:
        """The names of the folders in the store's folder."""
        return self._listed(
            lambda store: [str(prefix) for prefix in self._obstore.list_with_delimiter(store, None)["common_prefixes"]]
        )

    def _listed(self, request: Callable[[Any], Sequence[_Answer]]) -> Sequence[_Answer]:
        """What a request lists: nothing in a folder that does not exist, which reading does not create."""
        with self._errors():
            try:
                return self._ask(request)
            except FileNotFoundError:
                if self.location.folder is None:
                    raise
                return []

    @contextlib.contextmanager
    def _writes(self, path: str) -> Iterator[None]:
        """Every user can read what is written to a folder, and run a stub, whatever the umask: servers do."""
        with self._errors():
            if self.location.folder is None:
                yield
                return
            file = self.location.folder / path
            above = [self.location.folder / folder for folder in Path(path).parents]
            made = [folder for folder in above if not folder.exists()]
            self.location.folder.mkdir(parents=True, exist_ok=True)
            yield
            modes = dict.fromkeys(made, FOLDER) | {file: PROGRAM if file.name == STUB_NAME else FILE}
            for place, more in modes.items():
                with contextlib.suppress(OSError):  # of another user
                    place.chmod(place.stat().st_mode | more)

    def remove_folder(self) -> None:
        """Remove the folder of a ``file`` location if nothing is left in it."""
        if self.location.folder is not None:
            with contextlib.suppress(OSError):
                self.location.folder.rmdir()

    def delete(self, paths: Sequence[str]) -> None:
        """Remove objects; those that are gone already do not matter."""
        with self._errors():
            try:
                if paths:
                    self._ask(lambda store: self._obstore.delete(store, [*paths]))
            except FileNotFoundError:  # the first that is missing ends the removal of several
                for path in paths if len(paths) > 1 else ():
                    self.delete([path])

    def corrupt(self, path: str, reason: str) -> StorageError:
        """The error for content that cannot be used."""
        fix = "run the command again; if it stays, look at what answers, such as a login, or remove the object"
        return StorageError("store-corrupt", f"{path} in the store cannot be used: {reason}", fix, str(self.location))

    def _get(self, store: Any, path: str, most: int, options: dict[str, Any]) -> tuple[bytes, ObjectInfo]:
        if self.location.folder is not None:
            with contextlib.suppress(OSError):  # the library reports it; a pipe would be waited for without limit
                if not stat.S_ISREG((self.location.folder / path).stat().st_mode):
                    raise self.corrupt(path, "it is no file")
        result = self._obstore.get(store, path, options=options)
        return b"".join(self._bounded(result, path, most)), _info(result.meta)

    def _bounded(self, result: Any, path: str, most: int) -> Iterator[bytes]:
        size = 0
        if result.range[1] - result.range[0] > most:
            raise self.corrupt(path, f"it is larger than the {most} bytes that it may have")
        for piece in result.stream(min_chunk_size=_PIECE):
            size += len(piece)
            if size > most:
                raise self.corrupt(path, f"it is larger than the {most} bytes that it may have")
            yield bytes(piece)

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        refuse_forked()
        exceptions = self._obstore.exceptions
        try:
            yield
        except (exceptions.PermissionDeniedError, exceptions.UnauthenticatedError) as error:
            raise forbidden(self.location) from error
        except (exceptions.BaseError, OSError) as error:
            raise explained(error, self.location) from error


def upload_requests(size: int) -> int:
    """How many requests that write an upload of a number of bytes takes: clouds charge for each."""
    return -(-size // _part(size)) + 2


def _part(size: int) -> int:
    return max(_PART, -(-size // _MOST_PARTS))


def _key(location: Location, path: str) -> str:
    return f"{location.prefix}/{path}" if location.prefix else path


def _info(meta: Any) -> ObjectInfo:
    return ObjectInfo(str(meta["path"]), int(meta["size"]), meta["last_modified"].timestamp(), _tag(meta))


def _tag(answer: Mapping[str, Any]) -> str:
    """A tag as headers have it: Azure, whose tags begin with 0x, leaves the quotes out where it lists objects."""
    tag = str(answer.get("e_tag") or "")
    return f'"{tag}"' if tag.startswith("0x") else tag
