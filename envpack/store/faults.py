"""What a store's library says when it fails, as errors that a user can act on."""

from __future__ import annotations

import errno
import os
import re

from envpack.store.location import Location, proxy_to, was_redirected
from envpack.support.connection_faults import proxy_hint, tls_fault
from envpack.support.errors import SMALLER_FILES, StorageError, limit_said_in, says_disk_full
from envpack.support.text import one_line, printable_line

_HERE = "(os error "  # of what this machine's system says; a store may use the same words of its own
NO_BUCKET = re.compile(r"NoSuchBucket|ContainerNotFound|The specified bucket does not exist")
_STATUS = re.compile(r"status code: ([0-9]{3} [A-Za-z ]{1,40})")
_BAD_PATH = re.compile(r'invalid path: (?:Error parsing )?Path "([^"]+)"')
_PROXY = re.compile(r"kind: Connect\b|tunnel")
_REFUSED = re.compile(r"status code: 40[13]\b|Permission denied|AccessDenied|169\.254\.169\.254|metadata\.google")
_DENIED = re.compile(r"(/[^\n]*): Permission denied \(os error")
_REASONS = (
    (re.compile(r"non-partial response"), "it does not answer requests for a part of an object"),
    (re.compile(r"ConnectionRefused|Connection refused"), "it refuses connections"),
    (re.compile(r"dns error|failed to lookup address"), "its name cannot be resolved"),
    (re.compile(r"TimedOut|timed out|operation timeout", re.IGNORECASE), "it does not answer in time"),
    (re.compile(r"IncompleteMessage|UnexpectedEof|ConnectionReset|end of file|body"), "it ends its answers too early"),
)
# The library makes a file that must not exist yet as a hard link to a complete one.
_NO_HARD_LINKS = re.compile(r"Unable to rename file: .*(?:not permitted|not supported|not implemented)")
_CHECK = "check the address and the network, and try again; a build also works without one, `--store none`"


def explained(error: Exception, location: Location) -> StorageError:
    """The error for what the library of the store at an address raised, which it may raise of this machine's system."""
    text = str(error)
    if NO_BUCKET.search(text):
        return absent(location)
    if says_disk_full(text):
        # What was written before stays; a publication has announced it.
        what, fix = "the disk of this store is full", "free some space there, and run the same command again"
        return StorageError("disk-full", what, fix, str(location))
    if _HERE in text and (limit := limit_said_in(text)):
        return limit
    if _REFUSED.search(text):
        return forbidden(location, text)
    if name := _BAD_PATH.search(text):
        return _bad_name(location, name[1])
    return _unusable_folder(location, text) if location.folder is not None else _unusable_service(location, text)


def _unusable_folder(location: Location, text: str) -> StorageError:
    if _NO_HARD_LINKS.search(text):
        fix = "give a folder of another file system; `envpack layout --output` writes models without them"
        return _unusable(location, "its file system has no hard links", fix)
    look = "look at the folder and what is in it, such as links, or give another address"
    return _unusable(location, _reason(text), SMALLER_FILES if os.strerror(errno.EFBIG) in text else look)


def _unusable_service(location: Location, text: str) -> StorageError:
    if fault := tls_fault(text):
        return _unusable(location, fault.reason, fault.hint)
    proxy = proxy_to(location) if _PROXY.search(text) else ""
    if not proxy:
        return _unusable(location, _reason(text))
    reason = next((reason for pattern, reason in _REASONS if pattern.search(text)), "it does not reach the store")
    return _unusable(location, f"the proxy {proxy}: {reason}", proxy_hint("the store"))


def _unusable(location: Location, reason: str, fix: str = _CHECK) -> StorageError:
    return StorageError("store-unreachable", f"the store cannot be used: {reason}", fix, str(location))


def _bad_name(location: Location, key: str) -> StorageError:
    what = f"an object there has a name that is no path: {printable_line(key)}"
    tools = "" if location.folder is not None else " with the cloud's own tools"
    fix = f"remove or rename it{tools}; envpack writes no such names"
    return StorageError("store-corrupt", what, fix, str(location))


def forbidden(location: Location, text: str = "") -> StorageError:
    if location.folder is not None:
        named = _DENIED.search(text)
        what, fix = "it refuses access to this user", "change its permissions, as its owner or root"
        return StorageError("store-forbidden", what, fix, printable_line(named[1]) if named else str(location))
    what = "the store refuses access, or there are no credentials for it"
    fix = "check with the cloud's own tools which account is used, and what it may do; check this machine's clock"
    return StorageError("store-forbidden", what, fix, str(location))


def absent(location: Location) -> StorageError:
    fix = "correct the address, or create it; envpack creates none"
    return StorageError("store-absent", "there is no such bucket or container", fix, str(location))


def _reason(text: str) -> str:
    if was_redirected(text):
        return "it redirects to another host, which would get the token of the account"
    if status := _STATUS.search(text):
        return f"it answers {status[1].strip()}"
    known = next((reason for pattern, reason in _REASONS if pattern.search(text)), "")
    return known or one_line(printable_line(text.partition("\n")[0]))
