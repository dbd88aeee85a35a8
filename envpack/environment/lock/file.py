"""The lockfile ``envpack.lock``: pixi's format, so that others can read it, with a table of our own that they skip."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from envpack.atomic import write_text
from envpack.environment.lock.model import Lock, Target
from envpack.errors import InputError
from envpack.requirements import CondaPackage, PipPackage

LOCK_NAME = "envpack.lock"
_OWN = "x-envpack"
_SCHEMA = 1
_HEADER = "# Written by `envpack lock`, which also updates it; pixi and rattler can read it.\n"


def write_lock(lock: Lock, file: Path) -> bool:
    """Write a lockfile, in one step, unless it says the same already; whether it was written.

    Raises:
        OSError: the disk is full, or the folder cannot be written to.

    """
    text = format_lock(lock)
    if file.is_file() and file.read_text(encoding="utf-8") == text:
        return False
    write_text(file, text)
    return True


def format_lock(lock: Lock) -> str:
    """The text of a lockfile; the same for the same lock."""
    import yaml

    platform = lock.target.platform
    content = {
        "version": 6,
        "environments": {
            "default": {
                "channels": [{"url": f"{channel}/"} for channel in lock.channels],
                "packages": {
                    platform: [*({"conda": one.url} for one in lock.conda), *({"pypi": one.url} for one in lock.pip)]
                },
            }
        },
        "packages": [*map(_conda_entry, lock.conda), *map(_pip_entry, lock.pip)],
        _OWN: {
            "schema": _SCHEMA,
            "asked": lock.asked,
            "python": lock.target.python,
            "glibc": lock.target.glibc,
            "cuda": lock.target.cuda,
        },
    }
    return _HEADER + str(yaml.safe_dump(content, sort_keys=False, allow_unicode=True, width=1000))


def _conda_entry(one: CondaPackage) -> dict[str, Any]:
    entry = {"conda": one.url, "name": one.name, "version": one.version, "build": one.build, "subdir": one.subdir}
    known = {"sha256": one.sha256, "md5": one.md5, "size": one.size, "license": one.license}
    lists = {"depends": list(one.depends), "constrains": list(one.constrains)}
    return entry | {name: value for name, value in (known | lists).items() if value}


def _pip_entry(one: PipPackage) -> dict[str, Any]:
    entry = {"pypi": one.url, "name": one.name, "version": one.version, "sha256": one.sha256}
    return entry | ({"size": one.size} if one.size else {})


def read_lock(file: Path) -> Lock | None:
    """Read a lockfile that `write_lock` wrote; ``None`` if there is none.

    Raises:
        InputError: kind ``bad-lock``: it was edited into something that is none, or is of a newer envpack.

    """
    try:
        text = file.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise _bad(file, "cannot be read") from error
    return parse_lock(text, file)


def parse_lock(text: str, file: Path) -> Lock:
    """The lock that a text says; ``file`` is where it comes from, for errors (as of `read_lock`)."""
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        told = yaml.load(text, Loader=loader)  # noqa: S506 - both are safe loaders
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        raise _bad(file, "is no YAML", mark.line + 1 if mark else 0) from error
    if not isinstance(told, dict) or not isinstance(told.get(_OWN), dict):
        raise _bad(file, f"has no table {_OWN}: it is another tool's lockfile")
    if told[_OWN].get("schema") != _SCHEMA:
        raise _bad(file, "is of another envpack")
    try:
        return _parsed(told)
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        raise _bad(file, f"is damaged: {type(error).__name__}: {error}") from error


def _parsed(told: dict[str, Any]) -> Lock:
    own, default = told[_OWN], told["environments"]["default"]
    ((platform, named),) = default["packages"].items()
    by_address = {entry.get("conda") or entry["pypi"]: entry for entry in told["packages"]}
    chosen = [by_address[entry.get("conda") or entry["pypi"]] for entry in named]
    target = Target(platform, *(_matching(own, key, r"\d+(\.\d+)*|") for key in ("python", "glibc", "cuda")))
    return Lock(
        target,
        tuple(str(channel["url"]).rstrip("/") for channel in default["channels"]),
        tuple(_conda_package(entry) for entry in chosen if "conda" in entry),
        tuple(_pip_package(entry) for entry in chosen if "pypi" in entry),
        _matching(own, "asked", r"[0-9a-f]*"),
    )


def _conda_package(entry: dict[str, Any]) -> CondaPackage:
    if not (entry.get("sha256") or entry.get("md5")):
        raise ValueError(f"{entry['name']} has no hash")
    return CondaPackage(
        name=_matching(entry, "name", r"[\w.-]+"),
        version=_matching(entry, "version", r"[\w.!+~*-]+"),
        build=_matching(entry, "build", r"[\w.+-]+"),
        subdir=_matching(entry, "subdir", r"[\w-]+"),
        url=_matching(entry, "conda", r"(https?|file|s3|gcs|oci)://\S(.*\S)?"),
        sha256=_matching(entry, "sha256", r"[0-9a-f]{64}|"),
        md5=_matching(entry, "md5", r"[0-9a-f]{32}|"),
        size=int(entry.get("size", 0)),
        license=str(entry.get("license", "")),
        depends=tuple(map(str, entry.get("depends", ()))),
        constrains=tuple(map(str, entry.get("constrains", ()))),
    )


def _pip_package(entry: dict[str, Any]) -> PipPackage:
    return PipPackage(
        name=_matching(entry, "name", r"[\w.-]+"),
        version=_matching(entry, "version", r"[\w.!+-]+"),
        url=_matching(entry, "pypi", r"(https?|file)://\S(.*\S)?"),
        sha256=_matching(entry, "sha256", r"[0-9a-f]{64}"),
        size=int(entry.get("size", 0)),
    )


def _matching(entry: dict[str, Any], key: str, pattern: str) -> str:
    value = entry.get(key, "")
    if not isinstance(value, str) or not re.fullmatch(pattern, value):
        raise ValueError(f"{key} of {entry.get('name', _OWN)} is {value!r}")
    return value


def _bad(file: Path, reason: str, line: int = 0) -> InputError:
    return InputError(
        f"the lockfile {reason}",
        kind="bad-lock",
        where=f"{file}:{line}" if line else str(file),
        hint="take it back from version control, or remove it and run envpack lock",
    )
