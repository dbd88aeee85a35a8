"""Removal of user names, passwords and tokens from addresses; no other module does this.

What is a secret in an address:

- everything before the last ``@`` of its authority, as in https://url.spec.whatwg.org; an authority that cannot be one,
  since a password with ``/``, ``?`` or ``#`` was not encoded, goes up to the last ``@`` of the address;
- the token of a conda server, ``/t/TOKEN/``;
- the values of query parameters that sign a request or authorise it;
- the path below a host that ``ENVPACK_SECRET_HOSTS`` lists, for indexes that have a token there.
"""

from __future__ import annotations

import os
import re

_HOSTS_VARIABLE = "ENVPACK_SECRET_HOSTS"
_ADDRESS = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]{0,30}://)(?P<rest>[^\s\"'<>`]+)")
_CONDA_TOKEN = re.compile(r"/t/[^/\s]+(?=/)")
_VALUE = re.compile(r"(?P<name>[?&][^=&#\s]{1,200}=)[^&#\s]+")
_SIGNING = re.compile(
    r"[?&](sig|signature|token|\w*[_-]token|key|api[_-]?key|auth|authorization|password|passwd|pwd|secret|credentials?"
    r"|code|jwt|x-amz-(signature|credential|security-token)|x-goog-(signature|credential)|googleaccessid|awsaccesskeyid)=",
    re.IGNORECASE,
)


def redact(text: str) -> str:
    """Replace all secrets of the addresses in a text, and the values of all their query parameters, by ``***``."""
    return _ADDRESS.sub(_redacted, text) if "://" in text else text


def has_secret(url: str) -> bool:
    """Whether a URL carries a user name, a password, a token or a signature."""
    match = _ADDRESS.search(url)
    if match is None:
        return False
    rest = match["rest"]
    return bool(_account(rest) or _CONDA_TOKEN.search(rest) or _SIGNING.search(rest))


def public_url(url: str) -> str:
    """A URL without secrets; everything else stays, so that it can be opened with the user's own credentials."""
    return _ADDRESS.sub(_public, url)


def _public(match: re.Match[str]) -> str:
    rest = match["rest"][_account(match["rest"]) :]
    rest = _CONDA_TOKEN.sub("", _below_secret_host(rest))
    return match["scheme"] + _VALUE.sub(lambda value: "" if _SIGNING.match(value[0]) else value[0], rest)


def _redacted(match: re.Match[str]) -> str:
    rest = match["rest"]
    account = _account(rest)
    rest = _CONDA_TOKEN.sub("/t/***", _below_secret_host(rest[account:]))
    shown = _VALUE.sub(r"\g<name>***", rest)
    return f"{match['scheme']}{'***@' if account else ''}{shown}"


def _account(rest: str) -> int:
    """Length of the account in what follows ``://``, with its ``@``; 0 without one."""
    authority = re.split(r"[/?#\\]", rest, maxsplit=1)[0]
    if "@" in authority:
        return authority.rindex("@") + 1
    # A colon in front, and no port: a password that was not encoded. Better too much is hidden than too little.
    return rest.rindex("@") + 1 if ":" in authority and "@" in rest else 0


def _below_secret_host(rest: str) -> str:
    hosts = {host.strip().lower() for host in os.environ.get(_HOSTS_VARIABLE, "").split(",") if host.strip()}
    host, slash, path = rest.partition("/")
    return f"{host}/***" if slash and path and host.partition(":")[0].lower() in hosts else rest
