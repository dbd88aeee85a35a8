"""Reads files that others have written: never a pipe or a device, never more than a limit, never too deeply nested."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import importlib.util
import io
import json
import os
import re
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from envpack.support.errors import Finding, fault, refuse

MOST = 64 << 20  # bytes
_POINTER = b"version https://git-lfs.github.com/"  # begins what git-lfs leaves in place of a file
_LARGEST_POINTER = 1024
_SMALL = 1 << 20  # bytes of a file, or of a part of one, that are read in one piece
_MANY_PARTS = re.compile(r"""(?<![\w."'-])(?:(?:[\w-]++|"[^"\n]*+"|'[^'\n]*+')[ \t]*+\.[ \t]*+){100}""")


@contextlib.contextmanager
def opened(file: Path) -> Iterator[io.BufferedReader]:
    """A regular file, open for reading during the block; nothing else is opened or waited for."""
    # Opening a pipe waits for its other end, unless O_NONBLOCK is given; and some files of the kernel wait for content.
    handle = os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        mode = os.fstat(handle).st_mode
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(file))
        if not stat.S_ISREG(mode):
            raise OSError(errno.EINVAL, "it is not a regular file", str(file))
        with os.fdopen(handle, "rb", closefd=False) as content:
            yield content
    except OSError as error:
        if error.filename is None:
            error.filename = str(file)
        raise
    finally:
        os.close(handle)


def first_endless(files: Iterable[Path]) -> Path | None:
    """The first pipe or device, whose end a program that reads it may never see; None if there is none."""
    return next((file for file in files if _is_endless(file)), None)


def _is_endless(file: Path) -> bool:
    try:
        mode = file.stat().st_mode
        return (stat.S_ISFIFO(mode) or stat.S_ISCHR(mode)) and not file.samefile(os.devnull)
    except (OSError, ValueError):
        return False


def read_bytes(file: Path, *, most: int = MOST) -> bytes:
    found = bytearray()
    with opened(file) as content:
        # read(n) allocates n bytes first, however small the file is.
        while piece := content.read(min(_SMALL, most + 1 - len(found))):
            found += piece
    if piece is None:
        raise OSError(errno.ENODATA, "it has no content yet", str(file))
    if len(found) > most:
        raise OSError(errno.EFBIG, f"it is larger than {most} bytes", str(file))
    return bytes(found)


def read_text(file: Path, *, most: int = MOST, encoding: str = "utf-8", errors: str = "strict") -> str:
    return read_bytes(file, most=most).decode(encoding, errors)


def read_source(file: Path, *, most: int = MOST) -> str:
    """The text of a Python file, in the encoding that it names, with lines that end as everywhere."""
    try:
        return importlib.util.decode_source(read_bytes(file, most=most))
    except SyntaxError as error:
        raise ValueError(str(error)) from error


def parse_json(text: str | bytes) -> Any:
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def parse_toml(text: str) -> dict[str, Any]:
    import tomli  # TOML 1.1, which uv and pixi read, too

    if _MANY_PARTS.search(text):
        raise ValueError("a key has more than 100 parts")
    try:
        return tomli.loads(text.removeprefix("\ufeff"))
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def read_json(file: Path) -> Any:
    return parse_json(read_bytes(file))


def sha256_of(file: Path) -> str:
    with opened(file) as content:
        return digest_of(content)


def digest_of(content: io.FileIO | io.BufferedReader) -> str:
    """SHA-256 of an open file. A small one is read at once: `hashlib.file_digest` allocates a large buffer for each."""
    if os.fstat(content.fileno()).st_size > _SMALL:
        return hashlib.file_digest(content, "sha256").hexdigest()
    return hashlib.sha256(content.read()).hexdigest()


def pointer_finding(file: Path, more: str = "") -> Finding:
    what = f"it is a git-lfs pointer, not the file itself{more}"
    return fault("lfs-pointer", file, what, "fetch the file: `git lfs pull`")


def is_pointer(file: Path) -> bool:
    """Whether a file is a git-lfs pointer, of which nothing else has to be reported."""
    if not file.is_file() or file.stat().st_size > _LARGEST_POINTER or not os.access(file, os.R_OK):
        return False
    with contextlib.suppress(OSError):  # what cannot be read is reported by what has to read it
        return read_bytes(file).startswith(_POINTER)
    return False


def refuse_pointer(file: Path) -> None:
    refuse([pointer_finding(file)] if is_pointer(file) else [])
