"""Addresses of clusters: ``local:2``, ``tcp://host:8786``, ``tls://host:8786``."""

from __future__ import annotations

import re
from dataclasses import dataclass

from envpack.support.errors import UsageError

_MOST_LOCAL = 256
_HINT = "write it as local:2, tcp://host:8786 or tls://host:8786"


@dataclass(frozen=True)
class Address:
    """Where a cluster is.

    Attributes:
        workers: number of workers to start on this machine, 0 for a scheduler that runs already.
        scheduler: address of that scheduler, ``""`` for workers of this machine.
    """

    workers: int = 0
    scheduler: str = ""

    def __str__(self) -> str:
        return self.scheduler or f"local:{self.workers}"


def parse_address(text: str) -> Address:
    """Read the address of a cluster.

    >>> parse_address("local:2")
    Address(workers=2, scheduler='')
    >>> str(parse_address("tls://scheduler:8786"))
    'tls://scheduler:8786'
    """
    local = re.fullmatch(r"local:([0-9]{1,3})", text)
    if local:
        workers = int(local[1])
        if not 1 <= workers <= _MOST_LOCAL:
            raise _bad(text, f"has {workers} workers; between 1 and {_MOST_LOCAL} are possible")
        return Address(workers=workers)
    remote = re.fullmatch(r"(?:tcp|tls)://(?:[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\]):([0-9]{1,5})", text)
    if remote is None or not 1 <= int(remote[1]) <= 65535:
        raise _bad(text, "is not the address of a cluster")
    return Address(scheduler=text)


def _bad(text: str, reason: str) -> UsageError:
    return UsageError("bad-cluster-address", f"{text!r} {reason}", _HINT)
