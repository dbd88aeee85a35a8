"""Requirements files, and the URLs and paths that are written there."""

from __future__ import annotations

import codecs
import contextlib
import os
import re
from pathlib import Path
from urllib.parse import unquote, urlsplit

from envpack.support import bounded_reading
from envpack.support.folders import real_path
from envpack.support.redaction import has_secret
from envpack.support.tables import Location, quote

CREDENTIALS_HINT = "remove the user name, password or token; put it into ~/.netrc or log in with your conda tool"
_MAX_BYTES = 32 << 20
_UTF_16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")


def read_text(path: Path, *, named_at: Location | None = None) -> str:
    location = Location(path)
    try:
        if not path.exists():
            if named_at:
                raise named_at.error(
                    f"there is no file {path.name}", hint="the path is relative to the file that names it"
                )
            raise location.error("requirements file not found", hint="create it, or correct its name in envpack.toml")
        if not path.is_file():
            raise location.error("is not a file", hint="name a file, such as requirements.txt")
        if path.stat().st_size > _MAX_BYTES:
            raise location.error("is larger than 32 MB", hint="no list of requirements is; name another file")
        bounded_reading.refuse_pointer(path)
        return decode(bounded_reading.read_bytes(path, most=_MAX_BYTES))
    except OSError as error:
        raise location.error(f"cannot be read: {error.strerror}", hint="make it readable") from error
    except ValueError as error:
        raise location.error("cannot be read: not UTF-8", hint="it must be a UTF-8 text file") from error


def decode(content: bytes) -> str:
    """The text of a requirements file: UTF-8, or UTF-16 with a byte order mark, which PowerShell writes for ``>``."""
    return content.decode("utf-16" if content.startswith(_UTF_16) else "utf-8-sig")


def is_url(text: str) -> bool:
    """Whether a text begins with a scheme, such as ``https:``."""
    return bool(_SCHEME.match(text))


def is_http(text: str) -> bool:
    try:
        parts = urlsplit(text)
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and bool(parts.netloc and parts.path) and not re.search(r"\s", text)


def local_path(text: str, folder: Path) -> Path | None:
    """The absolute path of a local path or ``file:`` URL; ``None`` for other URLs and for impossible paths."""
    if is_url(text):
        try:
            parts = urlsplit(text)
        except ValueError:
            return None
        if parts.scheme.lower() != "file" or parts.netloc not in ("", "localhost"):
            return None
        text = unquote(parts.path)
    try:
        path = real_path(folder / text)
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            path.stat()  # if this succeeds, later checks of the path raise no error
    except (OSError, RuntimeError, ValueError):  # names too long, circular links, unreadable folders, null bytes
        return None
    return path


def local_file(url: str) -> Path | None:
    """The path in a ``file:`` URL, as it is written there; ``None`` for other URLs."""
    parts = urlsplit(url)
    return Path(unquote(parts.path)) if parts.scheme == "file" else None


def can_read(file: Path) -> bool:
    """Whether this user can read a file; a folder above it may be closed, such as the home of another user."""
    return os.path.isfile(file) and os.access(file, os.R_OK)  # noqa: PTH113 - a Path raises an error then


def file_name(url: str) -> str:
    return unquote(urlsplit(url).path.rpartition("/")[2])


def package_url(text: str, location: Location) -> str:
    """The URL of a package in a lock: an http(s) URL unchanged, a path as ``file:///…``."""
    if has_secret(text):
        raise location.error("the URL of a package contains a password or a token", hint=CREDENTIALS_HINT)
    if is_http(text):
        return text
    path = local_path(text, location.path.parent.absolute())
    if path is None or not text:
        raise location.error(
            f"{quote(text)} is neither an http(s) URL nor a local path of a package",
            hint="lock only packages from an index or a channel",
        )
    return path.as_uri()
