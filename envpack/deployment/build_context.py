"""What is sent to a daemon to build an image from: a tar archive that is made while it is sent."""

from __future__ import annotations

import contextlib
import io
import os
import tarfile
import threading
from collections.abc import Generator, Iterator
from pathlib import Path

_CHUNK = 1 << 20


@contextlib.contextmanager
def context_of(tree: Path, dockerfile: str) -> Iterator[Iterator[bytes]]:
    """The archive, in parts. What is linked in the tree is linked in the archive, and sent once.

    Args:
        tree: the files.
        dockerfile: text of the file that says how to build.
    """
    source, sink = os.pipe()
    writer = _Writer(tree, dockerfile, sink)
    parts = writer.parts(source)
    writer.start()
    try:
        yield parts
    finally:
        parts.close()
        writer.join()


class _Writer(threading.Thread):
    def __init__(self, tree: Path, dockerfile: str, sink: int) -> None:
        super().__init__(name="build context", daemon=True)
        self._tree = tree
        self._dockerfile = dockerfile.encode()
        self._sink = sink
        self._error: OSError | None = None

    def run(self) -> None:
        try:
            with (
                os.fdopen(self._sink, "wb") as sink,
                tarfile.open(fileobj=sink, mode="w|", format=tarfile.PAX_FORMAT) as archive,
            ):
                entry = tarfile.TarInfo("Dockerfile")
                entry.size = len(self._dockerfile)
                archive.addfile(entry, io.BytesIO(self._dockerfile))
                for file in sorted(self._tree.iterdir()):
                    archive.add(file, file.name, filter=_for_everybody)
        except OSError as error:  # a broken pipe, too: the daemon has had enough, and says why
            self._error = error

    def parts(self, source: int) -> Generator[bytes, None, None]:
        with os.fdopen(source, "rb") as pipe:
            while part := pipe.read(_CHUNK):
                yield part
        self.join()
        if self._error is not None:
            raise self._error


def _for_everybody(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    """Of root, and readable for whatever user the server runs as."""
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    entry.mode |= 0o555 if entry.isdir() or entry.mode & 0o100 else 0o444
    return entry
