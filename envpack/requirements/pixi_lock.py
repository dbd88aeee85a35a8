"""``pixi.lock``, versions 6 and 7: the lock of rattler, which pixi and others write."""

from __future__ import annotations

from dataclasses import replace

from envpack.requirements.locked_package import check_platform, is_conda_archive, locked_conda, python_minor
from envpack.requirements.model import CondaPackage, PipPackage, Requirements
from envpack.requirements.places import CREDENTIALS_HINT
from envpack.requirements.problem import Location, shown
from envpack.requirements.target import Target
from envpack.requirements.wheel_file import locked_wheel
from envpack.requirements.yaml_file import YamlTable
from envpack.support.errors import InputError
from envpack.support.redaction import has_secret

_VERSIONS = {"6", "7"}
_ENVIRONMENT = "default"
_AGAIN = "make the lock again: pixi lock"


def is_pixi_lock(content: YamlTable) -> bool:
    """Whether a YAML file is one, of whatever version."""
    return "environments" in content and "version" in content


def read_pixi_lock(content: YamlTable, target: Target) -> Requirements:
    """Read the environment ``default`` for the platform of the target.

    Raises:
        InputError: the lock has no such environment or platform, holds packages that are to be built from source, or is
            not what pixi writes.

    """
    if content.text("version") not in _VERSIONS:
        raise content.get("version")[1].error(f"version {shown(content.text('version'))} is not read", hint=_AGAIN)
    environment = default_environment(content)
    conda, wheels = [], []
    for kind, location, entry in chosen_entries(content, _platform(content, environment, target)):
        if kind == "conda":
            conda.append(_conda(location, entry, target))
        else:
            wheels.append((location, entry))
    python = python_minor(conda)
    if python and not target.python.startswith(python):
        target = replace(target, python=python)
    path = content.spot.path
    return Requirements(
        python=python,
        source=path,
        channels=_channels(environment),
        locked_conda=tuple(conda),
        locked_pip=tuple(_wheel(location, entry, target) for location, entry in wheels),
        platform=target.platform,
        files=(path,),
    )


def default_environment(content: YamlTable) -> YamlTable:
    """The environment of a lock that envpack reads, and writes.

    Raises:
        InputError: there is none.

    """
    environments = content.table("environments")
    if _ENVIRONMENT not in environments:
        raise environments.spot.error(
            f"there is no environment {_ENVIRONMENT}, only {shown(', '.join(environments.values))}",
            hint=f"envpack reads the environment {_ENVIRONMENT}",
        )
    return environments.table(_ENVIRONMENT)


def chosen_entries(content: YamlTable, platform: str) -> list[tuple[str, str, YamlTable]]:
    """What an environment has for a platform: of each package its kind, its address, and what the lock says of it.

    Raises:
        InputError: the lock is not what pixi writes.

    """
    entries = {_key(entry): entry for entry in content.tables("packages")}
    found = []
    for reference in default_environment(content).table("packages").tables(platform):
        kind, location = _key(reference)
        entry = entries.get((kind, location))
        if entry is None:
            raise reference.spot.error(f"{shown(location)} is not among the packages", hint=_AGAIN)
        found.append((kind, location, entry))
    return found


def _platform(content: YamlTable, environment: YamlTable, target: Target) -> str:
    """The name under which the lock has the platform; from version 7 on it can be another than conda's."""
    packages = environment.table("packages")
    names = [target.platform]
    if "platforms" in content and content.text("version") != "6":
        tables = content.tables("platforms")
        names = [one.text("name") for one in tables if one.text("subdir", one.text("name")) == target.platform]
    for name in names:
        if name in packages:
            return name
    raise packages.spot.error(
        f"the lock is not for {target.platform}, only for {shown(', '.join(packages.values))}",
        hint="add the platform to pixi.toml and make the lock again, or build for one of these",
    )


def _key(entry: YamlTable) -> tuple[str, str]:
    kind = next((key for key in ("conda", "pypi") if key in entry), "")
    if not kind:
        raise entry.spot.error(
            "a package is neither conda nor pypi", hint="lock no packages that are built from source"
        )
    return kind, entry.text(kind)


def _conda(location: str, entry: YamlTable, target: Target) -> CondaPackage:
    if not is_conda_archive(location):
        raise _from_source(location, entry.spot)
    package = locked_conda(location, entry.spot, md5=entry.text("md5", ""), sha256=entry.text("sha256", ""), said=entry)
    check_platform(package, target, entry.spot)
    return package


def _wheel(location: str, entry: YamlTable, target: Target) -> PipPackage:
    if not location.partition("#")[0].endswith(".whl"):
        raise _from_source(location, entry.spot)
    return locked_wheel(location, entry.text("sha256", ""), entry.spot, target)


def _from_source(location: str, spot: Location) -> InputError:
    return spot.error(
        f"{shown(location)} is to be built from source, which envpack does not do for a lock",
        hint="build a package of it and lock that",
    )


def _channels(environment: YamlTable) -> tuple[str, ...]:
    found = []
    for channel in environment.tables("channels"):
        url = channel.text("url")
        if has_secret(url):
            raise channel.spot.error("the channel carries a password or a token", hint=CREDENTIALS_HINT)
        found.append(url)
    return tuple(found)
