"""Finds the libraries that a server shall be started with in ``LD_PRELOAD``."""

from __future__ import annotations

import re
from pathlib import Path

from envpack.support.errors import ServerError
from envpack.support.isolation import bare_environment
from envpack.support.processes import run

# By the name that people use: the libraries that hold it, the better known first.
_KNOWN = {
    "tcmalloc": ("libtcmalloc.so.4", "libtcmalloc_minimal.so.4"),
    "jemalloc": ("libjemalloc.so.2",),
}
_CACHE_LINE = re.compile(r"^\s*(?P<name>\S+) \(.*\) => (?P<path>/.+)$")


def find_preload(wanted: str) -> Path:
    """The library that ``tcmalloc``, ``jemalloc`` or a path names.

    A path may also be one that only a container has; it is then given as it is.

    Raises:
        ServerError: there is none of that name on this machine (kind ``preload-not-found``).

    """
    if "/" in wanted:
        return Path(wanted)
    here = _libraries_of_this_machine()
    found = next((here[name] for name in _KNOWN.get(wanted, (wanted,)) if name in here), None)
    if found is None:
        raise ServerError(
            f"no library {wanted} on this machine",
            kind="preload-not-found",
            hint="install it (Debian: libtcmalloc-minimal4, libjemalloc2), or give the path of one",
        )
    return found


def _libraries_of_this_machine() -> dict[str, Path]:
    done = run(["/sbin/ldconfig", "-p"], env=bare_environment())
    matches = (_CACHE_LINE.match(line) for line in done.stdout.splitlines())
    return {match["name"]: Path(match["path"]) for match in reversed(list(matches)) if match}
