"""The store of finished environments: what names them, what describes them. Cheap to import and to ask."""

from __future__ import annotations

import hashlib
import json
import platform
from dataclasses import dataclass
from pathlib import Path

from envpack.environment.fingerprint import fingerprint
from envpack.environment.interpreters import Interpreter
from envpack.requirements import Requirements

MANIFEST = "envpack-environment.json"
SCHEMA = 1


@dataclass(frozen=True)
class Package:
    """One installed package; ``source`` is ``"conda"`` or ``"pip"``."""

    name: str
    version: str
    source: str


@dataclass(frozen=True)
class Environment:
    """A finished environment in the store. Read it, link it, pack it; never change it.

    Attributes:
        key: names its content: same key, same requirements, same interpreter.
        python: full version, for example ``"3.8.18"``.
        minor: for example ``"3.8"``.
        prefix: its folder in the store.
        packages: what is installed, conda packages first.
        glibc: the oldest C library that its files run with, for example ``"2.35"``.
        glibcxx: newest symbol version that its files need of libstdc++, for example ``"3.4.29"``; ``""`` for none, or
            where an earlier envpack did not look.
        fresh: whether this call built it.

    """

    key: str
    python: str
    minor: str
    prefix: Path
    packages: tuple[Package, ...]
    glibc: str
    glibcxx: str
    fresh: bool


def environment_key(
    requirements: Requirements, minor: str, channels: tuple[str, ...], glibc: str, interpreter: Interpreter | None
) -> str:
    """The name in the store of the environment that these inputs give."""
    inputs = {
        "schema": SCHEMA,
        "machine": platform.machine(),
        "python": minor,
        "interpreter": fingerprint(interpreter) if interpreter else "",
        "channels": channels,
        "glibc": glibc,
        "conda": sorted(set(requirements.conda)),
        "pip": sorted(set(requirements.pip)),
    }
    return hashlib.sha256(json.dumps(inputs, sort_keys=True).encode()).hexdigest()[:32]


def read_environment(folder: Path) -> Environment | None:
    """The environment in a folder, ``None`` if there is none or it is not complete."""
    try:
        told = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return None
    if not isinstance(told, dict) or told.get("schema") != SCHEMA:
        return None
    packages = tuple(Package(**package) for package in told["packages"])
    return Environment(
        told["key"],
        told["python"],
        told["minor"],
        folder,
        packages,
        told["glibc"],
        told.get("glibcxx", ""),
        fresh=False,
    )
