"""Removal of user names, passwords and tokens from addresses; no other module does this."""

from __future__ import annotations

import re
from urllib.parse import urlsplit, urlunsplit

_USER = re.compile(r"//[^/\s@]*@")  # https://user:password@host
_CONDA_TOKEN = re.compile(r"/t/[^/\s]+/")  # the tokens of conda servers
_QUERY_VALUE = re.compile(r"([?&][^=&#\s]+)=[^&#\s]+")  # signed URLs


def redact(text: str) -> str:
    """Replace user names, passwords, tokens and the values of query parameters in a text by ``***``."""
    text = _CONDA_TOKEN.sub("/t/***/", _USER.sub("//***@", text))
    return _QUERY_VALUE.sub(r"\1=***", text)


def has_secret(url: str) -> bool:
    """Whether a URL carries a user name, a password or a token of a conda server."""
    return bool(_USER.search(url) or _CONDA_TOKEN.search(url))


def public_url(url: str) -> str:
    """A URL without user name and password; everything else stays, so it can be opened."""
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))
