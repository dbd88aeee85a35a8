"""Places: a line of a requirements file, and the URLs and paths written there."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import unquote, urlsplit

from envpack.support.errors import InputError
from envpack.support.redaction import has_secret, redact

CREDENTIALS_HINT = "remove the user name, password or token; put it into ~/.netrc or log in with your conda tool"
_MAX_QUOTE = 120  # characters
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")


@dataclass(frozen=True)
class Location:
    """A line of a file.

    Attributes:
        path: the file.
        line: counted from 1, 0 if the format does not provide it.
    """

    path: Path
    line: int = 0

    def at(self, line: int) -> Location:
        """Another line of the same file."""
        return replace(self, line=line)

    def error(self, message: str, *, hint: str) -> InputError:
        """An error (kind ``bad-requirements``) about this line, for the caller to raise."""
        return InputError(message, kind="bad-requirements", where=str(self), hint=hint)

    def __str__(self) -> str:
        return f"{self.path}:{self.line}" if self.line else str(self.path)


def quote(text: str) -> str:
    """A user's text for an error message: in quotes, on one line, cut to 120 characters, without secrets."""
    text = redact(text)
    return repr(text if len(text) <= _MAX_QUOTE else f"{text[:_MAX_QUOTE]}…")


def is_url(text: str) -> bool:
    """Whether a text begins with a scheme, such as ``https:``."""
    return bool(_SCHEME.match(text))


def is_http(text: str) -> bool:
    """Whether a text is an http or https URL with a host and a path."""
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
        path = (folder / text).resolve()
        path.exists()  # if this succeeds, later checks of the path raise no error
    except (OSError, RuntimeError, ValueError):  # names too long, circular links, unreadable folders, null bytes
        return None
    return path


def file_name(url: str) -> str:
    """The last part of a URL's path, decoded."""
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
            "a package has neither an http(s) URL nor a local path",
            hint="lock only packages from an index or a channel",
        )
    return path.as_uri()
