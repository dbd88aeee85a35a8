"""The lockfile ``envpack.lock``: pixi's format, so that others can read it, with a table of our own that they skip."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from envpack.lock.model import Lock
from envpack.requirements import CondaPackage, PipPackage, Target
from envpack.support.errors import InputError
from envpack.support.replacement import write_text

if TYPE_CHECKING:
    from envpack.requirements import YamlTable

LOCK_NAME = "envpack.lock"
_OWN = "x-envpack"
_SCHEMA = 1
_HINT = "take it back from version control, or remove it and run envpack lock"
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
            "asked": lock.requirements_digest,
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
        raise _bad(str(file), "cannot be read") from error
    return parse_lock(text, file)


def parse_lock(text: str, file: Path) -> Lock:
    """The lock that a text says; ``file`` is where it comes from, for errors (as of `read_lock`)."""
    from envpack.requirements import parse_yaml

    try:
        content = parse_yaml(text, file)
        if _OWN not in content:
            raise _bad(str(file), f"has no table {_OWN}: it is another tool's lockfile")
        if content.table(_OWN).text("schema", "") != str(_SCHEMA):
            raise _bad(str(file), "is of another envpack")
        return _parsed(content)
    except InputError as error:
        if error.kind == "bad-lock":
            raise
        raise _bad(error.where, f"is damaged: {error.message}") from error


def _parsed(content: YamlTable) -> Lock:
    from envpack.requirements import default_environment, locked_entries

    own, default = content.table(_OWN), default_environment(content)
    platforms = list(default.table("packages").values)
    if len(platforms) != 1:
        raise default.location.error("it must be for one platform", hint=_HINT)
    entries = locked_entries(content, platforms[0])
    try:
        target = Target(platforms[0], *(_matching(own, key, r"\d+(\.\d+)*|") for key in ("python", "glibc", "cuda")))
    except ValueError as error:
        raise default.location.error(str(error), hint=_HINT) from error
    return Lock(
        target,
        tuple(channel.text("url").rstrip("/") for channel in default.tables("channels")),
        tuple(_conda_package(entry.table) for entry in entries if entry.kind == "conda"),
        tuple(_pip_package(entry.table) for entry in entries if entry.kind == "pypi"),
        _matching(own, "asked", r"[0-9a-f]*"),
    )


def _conda_package(entry: YamlTable) -> CondaPackage:
    if not (entry.text("sha256", "") or entry.text("md5", "")):
        raise entry.location.error(f"{entry.text('name')} has no hash", hint=_HINT)
    return CondaPackage(
        name=_matching(entry, "name", r"[\w.-]+"),
        version=_matching(entry, "version", r"[\w.!+~*-]+"),
        build=_matching(entry, "build", r"[\w.+-]+"),
        subdir=_matching(entry, "subdir", r"[\w-]+"),
        url=_matching(entry, "conda", r"(https?|file|s3|gcs|oci)://\S(.*\S)?"),
        sha256=_matching(entry, "sha256", r"[0-9a-f]{64}|"),
        md5=_matching(entry, "md5", r"[0-9a-f]{32}|"),
        size=entry.number("size"),
        license=entry.text("license", ""),
        depends=tuple(text for text, _ in entry.texts("depends")),
        constrains=tuple(text for text, _ in entry.texts("constrains")),
    )


def _pip_package(entry: YamlTable) -> PipPackage:
    return PipPackage(
        name=_matching(entry, "name", r"[\w.-]+"),
        version=_matching(entry, "version", r"[\w.!+-]+"),
        url=_matching(entry, "pypi", r"(https?|file)://\S(.*\S)?"),
        sha256=_matching(entry, "sha256", r"[0-9a-f]{64}"),
        size=entry.number("size"),
    )


def _matching(entry: YamlTable, key: str, pattern: str) -> str:
    value = entry.text(key, "")
    if not re.fullmatch(pattern, value):
        raise entry.get(key)[1].error(f"{key} of {entry.text('name', _OWN)} is {value!r}", hint=_HINT)
    return value


def _bad(where: str, reason: str) -> InputError:
    return InputError(f"the lockfile {reason}", kind="bad-lock", where=where, hint=_HINT)
