"""``conda-lock.yml``, version 1: the unified lock of conda-lock."""

from __future__ import annotations

import re
from dataclasses import replace

from envpack.requirements.locked_package import check_platform, locked_conda, python_minor
from envpack.requirements.model import CondaPackage, Requirements
from envpack.requirements.places import CREDENTIALS_HINT
from envpack.requirements.problem import shown
from envpack.requirements.target import Target
from envpack.requirements.wheel_file import locked_wheel
from envpack.requirements.yaml_file import YamlTable
from envpack.support.redaction import has_secret

_AGAIN = "make the lock again: conda-lock"
_CATEGORY = "main"


def is_conda_lock(content: YamlTable) -> bool:
    """Whether a YAML file is one."""
    return "package" in content and "metadata" in content


def read_conda_lock(content: YamlTable, target: Target) -> Requirements:
    """Read the packages of the category ``main`` for the platform of the target.

    Raises:
        InputError: the lock is not for this platform, holds packages that are to be built from source, or is not what
            conda-lock writes.

    """
    if content.text("version", "1") != "1":
        raise content.get("version")[1].error(f"version {shown(content.text('version'))} is not read", hint=_AGAIN)
    entries = _entries(content, target)
    conda = [_conda(entry, target) for entry in entries if entry.text("manager") == "conda"]
    python = python_minor(conda)
    if python and not target.python.startswith(python):
        target = replace(target, python=python)
    wheels = [
        locked_wheel(entry.text("url"), entry.table("hash").text("sha256", ""), entry.spot, target)
        for entry in entries
        if entry.text("manager") == "pip"
    ]
    path = content.spot.path
    return Requirements(
        python=python,
        source=path,
        channels=_channels(content),
        locked_conda=tuple(conda),
        locked_pip=tuple(wheels),
        platform=target.platform,
        files=(path,),
    )


def _entries(content: YamlTable, target: Target) -> list[YamlTable]:
    every = content.tables("package")
    platforms = list(dict.fromkeys(entry.text("platform") for entry in every))
    if every and target.platform not in platforms:
        raise content.get("package")[1].error(
            f"the lock is not for {target.platform}, only for {shown(', '.join(platforms))}",
            hint=f"conda-lock --platform {target.platform}, or build for one of these",
        )
    wanted = [one for one in every if one.text("platform") == target.platform]
    for entry in wanted:
        if entry.text("manager") not in ("conda", "pip"):
            raise entry.get("manager")[1].error("the manager of a package is conda or pip", hint=_AGAIN)
    return [one for one in wanted if one.text("category", _CATEGORY) == _CATEGORY]


def _conda(entry: YamlTable, target: Target) -> CondaPackage:
    needs = entry.table("dependencies")
    hashes = entry.table("hash")
    package = locked_conda(
        entry.text("url"),
        entry.spot,
        md5=hashes.text("md5", ""),
        sha256=hashes.text("sha256", ""),
        said=entry,
        depends=[f"{name} {needs.text(name, '')}".strip() for name in needs.values],
    )
    check_platform(package, target, entry.spot)
    return package


def _channels(content: YamlTable) -> tuple[str, ...]:
    found = []
    for channel in content.table("metadata").tables("channels"):
        url = channel.text("url")
        if has_secret(url) or re.search(r"\$\{?\w", url):
            raise channel.spot.error("the channel carries a password or a token", hint=CREDENTIALS_HINT)
        found.append(url)
    return tuple(found)
