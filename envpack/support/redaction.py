"""Removal of user names, passwords and tokens from addresses; no other module does this.

What is a secret in an address:

- everything before the last ``@`` of its authority, as in https://url.spec.whatwg.org; an authority that cannot be one,
  since a password with ``/``, ``?``, ``#`` or a quote was not encoded, goes up to the last ``@`` of the address;
- the token of a conda server, ``/t/TOKEN/``, but not in a path of this machine, a store or a registry;
- the values of parameters that sign a request or authorise it, in the query and in the fragment;
- the path below a host that ``ENVPACK_SECRET_HOSTS`` lists, for indexes that have a token there.

An account in front of a host without a scheme, as in the address of a proxy, is hidden as well.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from urllib.parse import urlsplit

_HOSTS_VARIABLE = "ENVPACK_SECRET_HOSTS"
_NO_PORT = r"(?![0-9]{1,5}(?:[\s/?#\\\"'<>`]|$))"
_ADDRESS = re.compile(
    # Browsers, and uv, read "https:/me:word@host" as well.
    r"(?P<scheme>(?:https?|ftp):[/\\]*|[a-z][a-z0-9+.-]{0,30}://)"
    # A quote ends an address in a text, unless a password contains it.
    rf"(?P<rest>[^\s/?#\\@\"'<>`:]{{0,300}}:{_NO_PORT}[^\s\"'<>`]{{0,300}}[\"'<>`]\S{{0,300}}@[^\s\"'<>`]*"
    r"|[^\s\"'<>`]+)",
    re.IGNORECASE,
)
_ACCOUNT = re.compile(r"(?<![\w@/:.%~+-])(?!mailto:)[\w.%~+-]{1,64}:[^\s@/\\\"'<>`:]{1,128}@(?!sha\d)(?=[\w\[])")
_DIGEST = re.compile(rf"@sha256:{_NO_PORT}[0-9a-f]+\W*$")  # of an image
_CONDA_TOKEN = re.compile(r"/t/[^/\s]+(?=/)|(?<=[^/])/t/[^/\s?#.]+$")
_NO_SERVERS = ("file:", "s3:", "gs:", "az:", "as:", "oci:")
_VALUE = re.compile(r"(?P<name>[?&;][^=&#;\s]{1,200}=)[^&#;\s]+")
_SIGNATURE = re.compile(
    r"(?P<name>[?&#;](?:sig|key|auth|authorization|pwd|code|jwt|hmac|policy|key-pair-id|session(?:id)?|googleaccessid"
    r"|\w{0,20}accesskeyid|[\w.-]{0,50}(?:token|signature|secret|password|passwd|credentials?"
    r"|(?:api|access|auth|private|secret)[_-]?key))=)[^&#;\s]*",
    re.IGNORECASE,
)

# What has the form of a secret and is none: what a tool or a reader fills in, the topic of a forum, a port and a path.
_FILLED_IN = re.compile(r"\$\{?\w+\}?|\{\{?[^{}]*\}?\}|\[[^\[\]]*\]|%\w+%|\*+|x{3,}|\.{3}|\d{1,5}/.*", re.IGNORECASE)
_TOPIC = re.compile(r"/t/[^/\s]+/\d+(?:/\d+)?(?:[/?#]|$)")
_SSH = re.compile(r"(?:\w+\+)?(?:ssh|sftp|rsync)://", re.IGNORECASE)


def redact(text: str) -> str:
    """Replace all secrets of the addresses in a text, and the values of all their query parameters, by ``***``."""
    if ":" not in text:
        return text
    return _ACCOUNT.sub("***@", _ADDRESS.sub(_redacted, text))


def has_secret(url: str) -> bool:
    """Whether a URL carries a user name, a password, a token or a signature."""
    return any(True for _ in _secrets(url))


def gives_secret_away(url: str) -> bool:
    """Whether an address in a text has a password, a token or a signature that opens something.

    Stricter than `has_secret`: not an account of ssh without a password, a variable, the topic of a forum, or a piece
    of a vocabulary.
    """
    return any(re.search(r"\w", secret) and not _FILLED_IN.fullmatch(secret) for secret in _secrets(url))


def _secrets(url: str) -> Iterator[str]:
    """What opens something, of each part of an address that has the form of a secret; ``""`` if that opens nothing."""
    match = _ADDRESS.search(url)
    if match is None:
        return
    rest = match["rest"]
    if end := _account(rest):
        user, colon, password = rest[:end].rstrip("@").partition(":")
        nameless = user.lower() == "git" or _SSH.match(match["scheme"]) or not rest[end:]
        yield password if colon and rest[end:] else "" if nameless else user
    if _on_server(match):
        for token in _CONDA_TOKEN.finditer(rest):
            yield "" if _TOPIC.search(rest) else token[0].strip("/").removeprefix("t/")
    for signature in _SIGNATURE.finditer(rest):
        yield signature[0].removeprefix(signature["name"])


ENCODING_HINT = (
    "write special characters of a password like %20 for a blank, %23 for #, %2F for /, %3F for ?, %40 for @"
)


def is_readable(url: str) -> bool:
    """Whether a URL can only be read as it is meant: of a password that is not encoded, a part may be the host."""
    try:
        parts = urlsplit(url)
        odd = bool(parts.password and "." not in (parts.hostname or "") and "@" in f"{parts.path}{parts.query}")
        return parts.port != 0 and not odd and not re.search(r"\s", url)
    except ValueError:
        return False


def public_url(url: str) -> str:
    """A URL without secrets; everything else stays, so that it can be opened with the user's own credentials."""
    return _ADDRESS.sub(_public, url)


def _public(match: re.Match[str]) -> str:
    rest = match["rest"][_account(match["rest"]) :]
    rest = _below_secret_host(rest)
    rest = _CONDA_TOKEN.sub("", rest) if _on_server(match) else rest
    public = _SIGNATURE.sub("", rest)
    if "?" in rest and "?" not in public:  # the first parameter went, which had the question mark
        public = public.replace("&", "?", 1)
    return match["scheme"] + public


def _redacted(match: re.Match[str]) -> str:
    rest = match["rest"]
    account = _account(rest)
    if ":" in rest[:account]:  # of a password with "@" and "/", browsers take a part for the host
        account = _DIGEST.sub("", rest).rindex("@") + 1
    rest = _below_secret_host(rest[account:])
    rest = _CONDA_TOKEN.sub("/t/***", rest) if _on_server(match) else rest
    shown = _VALUE.sub(r"\g<name>***", _SIGNATURE.sub(r"\g<name>***", rest))
    return f"{match['scheme']}{'***@' if account else ''}{shown}"


def _on_server(match: re.Match[str]) -> bool:
    """Whether an address may be one of a conda server; in a file system or a store, a folder may be called ``t``."""
    return match["scheme"].lower().rstrip("/\\") not in _NO_SERVERS


def _account(rest: str) -> int:
    """Length of the account in what follows the scheme, with its ``@``; 0 without one."""
    rest = _DIGEST.sub("", rest)
    authority = re.split(r"[/?#\\]", rest, maxsplit=1)[0]
    if "@" in authority:
        return authority.rindex("@") + 1
    # A colon in front, and no port: a password that was not encoded. Better too much is hidden than too little.
    return rest.rindex("@") + 1 if ":" in authority and "@" in rest else 0


def _below_secret_host(rest: str) -> str:
    hosts = {host.strip().lower() for host in os.environ.get(_HOSTS_VARIABLE, "").split(",") if host.strip()}
    host, slash, path = rest.partition("/")
    return f"{host}/***" if slash and path and host.partition(":")[0].lower() in hosts else rest
