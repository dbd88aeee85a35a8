"""The lockfile ``envpack.lock``: pixi's format, which other tools can read, with a table of our own that they skip."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from envpack.lock.model import Lock
from envpack.requirements import CondaPackage, PipPackage, Target
from envpack.support.bounded_reading import read_text
from envpack.support.errors import InputError
from envpack.support.replacement import write_text

if TYPE_CHECKING:
    from envpack.support.tables import Table

LOCK_NAME = "envpack.lock"
_OWN_TABLE = "x-envpack"
_SCHEMA = 1
_HINT = "restore it from version control, or remove it and run envpack lock"
_HEADER = "# Written by `envpack lock`, which also updates it; pixi and rattler can read it.\n"


def write_lock(lock: Lock, file: Path) -> bool:
    """Write a lockfile in one step; a file with the same content is not touched.

    Returns:
        Whether the file was written.
    """
    text = format_lock(lock)
    if file.is_file() and read_text(file, errors="replace") == text:
        return False
    write_text(file, text)
    return True


def format_lock(lock: Lock) -> str:
    """The text of a lockfile; equal locks give equal texts."""
    import yaml

    references = [*({"conda": package.url} for package in lock.conda), *({"pypi": package.url} for package in lock.pip)]
    document = {
        "version": 6,
        "environments": {
            "default": {
                "channels": [{"url": f"{channel}/"} for channel in lock.channels],
                "packages": {lock.target.platform: references},
            }
        },
        "packages": [*map(_conda_entry, lock.conda), *map(_pip_entry, lock.pip)],
        "x-envpack": {
            "schema": _SCHEMA,
            "asked": lock.requirements_digest,
            "python": lock.target.python,
            "glibc": lock.target.glibc,
            "cuda": lock.target.cuda,
        },
    }
    return _HEADER + str(yaml.safe_dump(document, sort_keys=False, allow_unicode=True, width=1000))


def _conda_entry(package: CondaPackage) -> dict[str, Any]:
    """A conda package; empty fields after the first five are left out."""
    entry = {"conda": package.url, **{name: getattr(package, name) for name in ("name", "version", "build", "subdir")}}
    optional = {name: getattr(package, name) for name in ("sha256", "md5", "size", "license")}
    lists = {"depends": list(package.depends), "constrains": list(package.constrains)}
    return entry | {name: value for name, value in (optional | lists).items() if value}


def _pip_entry(package: PipPackage) -> dict[str, Any]:
    entry = {"pypi": package.url, "name": package.name, "version": package.version, "sha256": package.sha256}
    return entry | ({"size": package.size} if package.size else {})


def read_lock(file: Path) -> Lock | None:
    """Read a lockfile that `write_lock` wrote; ``None`` if there is none."""
    try:
        text = read_text(file)
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise _lockfile_error(str(file), "cannot be read") from error
    return parse_lock(text, file)


def parse_lock(text: str, file: Path) -> Lock:
    """The lock in the text of a lockfile."""
    from envpack.support.tables import parse_yaml

    try:
        content = parse_yaml(text, file)
        if _OWN_TABLE not in content:
            raise _lockfile_error(str(file), f"has no table {_OWN_TABLE}: it is another tool's lockfile")
        if content.table(_OWN_TABLE).text("schema", "") != str(_SCHEMA):
            raise _lockfile_error(str(file), "was written by another version of envpack")
        return _parse(content)
    except InputError as error:
        if error.kind == "bad-lock":
            raise
        raise _lockfile_error(error.where, f"is damaged: {error.message}") from error


def _parse(content: Table) -> Lock:
    from envpack.requirements import default_environment, locked_entries

    own, default = content.table(_OWN_TABLE), default_environment(content)
    platforms = list(default.table("packages").values)
    if len(platforms) != 1:
        raise default.location.error("it must be for one platform", hint=_HINT)
    entries = locked_entries(content, platforms[0])
    python, glibc, cuda = (_matching(own, key, r"[0-9]{1,9}(\.[0-9]{1,9})*|") for key in ("python", "glibc", "cuda"))
    try:
        target = Target(platforms[0], python, glibc, cuda)
    except ValueError as error:
        raise default.location.error(str(error), hint=_HINT) from error
    return Lock(
        target,
        tuple(channel.text("url").rstrip("/") for channel in default.tables("channels")),
        tuple(_conda_package(entry.table) for entry in entries if entry.kind == "conda"),
        tuple(_pip_package(entry.table) for entry in entries if entry.kind == "pypi"),
        _matching(own, "asked", r"[0-9a-f]*"),
    )


def _conda_package(entry: Table) -> CondaPackage:
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
        depends=_texts(entry, "depends"),
        constrains=_texts(entry, "constrains"),
    )


def _pip_package(entry: Table) -> PipPackage:
    return PipPackage(
        name=_matching(entry, "name", r"[\w.-]+"),
        version=_matching(entry, "version", r"[\w.!+-]+"),
        url=_matching(entry, "pypi", r"(https?|file)://\S(.*\S)?"),
        sha256=_matching(entry, "sha256", r"[0-9a-f]{64}"),
        size=entry.number("size"),
    )


def _texts(entry: Table, key: str) -> tuple[str, ...]:
    return tuple(text for text, _ in entry.texts(key))


def _matching(entry: Table, key: str, pattern: str) -> str:
    value = entry.text(key, "")
    if not re.fullmatch(pattern, value):
        raise entry.get(key)[1].error(f"{key} of {entry.text('name', _OWN_TABLE)} is {value!r}", hint=_HINT)
    return value


def _lockfile_error(where: str, reason: str) -> InputError:
    return InputError("bad-lock", f"the lockfile {reason}", _HINT, where)
