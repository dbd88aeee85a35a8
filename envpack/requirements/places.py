"""Where packages are: URLs and paths of a requirements file as absolute URLs that hold no secret."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import unquote, urlsplit

from envpack.requirements.problem import Location
from envpack.support.redaction import has_secret

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
CREDENTIALS_HINT = "remove the user name, password or token; ~/.netrc or the login of your conda tool keeps it"


def is_url(text: str) -> bool:
    """Whether a text begins with a scheme, such as ``https:``; a path does not."""
    return bool(_SCHEME.match(text))


def path_of(text: str, folder: Path) -> Path | None:
    """The local file that a path or a ``file:`` URL names, absolute.

    ``None`` stands for any other URL, and for what no file system can have.

    Args:
        text: the path or URL.
        folder: where a relative path counts from.

    """
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
        path.exists()  # later questions raise no errors if this one does not
    except (OSError, RuntimeError, ValueError):  # names too long, links in a circle, folders of others, zeros
        return None
    return path


def is_http(text: str) -> bool:
    """Whether a text is a URL of http or https that names a host and a path."""
    try:
        parts = urlsplit(text)
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and bool(parts.netloc and parts.path) and not re.search(r"\s", text)


def file_name(url: str) -> str:
    """The last part of a URL's path, decoded."""
    return unquote(urlsplit(url).path.rpartition("/")[2])


def package_url(text: str, spot: Location) -> str:
    """The URL of a package in a lock: as it is there, or ``file:///…`` of a path, which counts from the lock.

    Raises:
        InputError: it has another scheme, or a password.

    """
    if has_secret(text):
        raise spot.error("the URL of a package carries a password or a token", hint=CREDENTIALS_HINT)
    if is_http(text):
        return text
    path = path_of(text, spot.path.parent.absolute())
    if path is None or not text:
        raise spot.error(
            "a package is neither at http(s) nor a local file", hint="lock packages of an index or a channel only"
        )
    return path.as_uri()
