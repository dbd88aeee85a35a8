"""Putting the real folder of an environment in place of the stand-in that its files name."""

from __future__ import annotations

import os
import re
from pathlib import Path

from envpack.conda import PREFIX_PLACEHOLDER
from envpack.environment.inventory import StandIn
from envpack.support.errors import UsageError

_STRINGS = re.compile(rb"[^\0]*" + re.escape(PREFIX_PLACEHOLDER.encode()) + rb"[^\0]*\0")


def with_prefix(content: bytes, prefix: str, kind: StandIn) -> bytes:
    """The content of a file with its environment's folder in it.

    Args:
        content: as it is in the store.
        prefix: the folder, as the server that uses it sees it.
        kind: in ``"binary"`` files texts keep their length, with zeros behind them.

    """
    old, new = PREFIX_PLACEHOLDER.encode(), os.fsencode(prefix)
    if kind != "binary":
        return content.replace(old, new)
    return _STRINGS.sub(lambda text: text[0].replace(old, new).ljust(len(text[0]), b"\0"), content)


def check_prefix(prefix: str) -> None:
    """Refuse a folder whose name is too long to take the stand-in's place.

    Raises:
        UsageError: kind ``path-too-long``.

    """
    if len(os.fsencode(prefix)) > len(PREFIX_PLACEHOLDER):
        raise UsageError(
            f"the path has more than {len(PREFIX_PLACEHOLDER)} bytes, and files of this environment must name it",
            kind="path-too-long",
            where=prefix,
            hint="put the model repository into a folder with a shorter path",
        )


def rewrite(source: Path, target: Path, prefix: str, kind: StandIn) -> None:
    """Write a file of the store with its environment's folder in it."""
    target.write_bytes(with_prefix(source.read_bytes(), prefix, kind))
