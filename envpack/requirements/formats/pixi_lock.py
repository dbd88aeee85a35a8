"""``pixi.lock``, versions 4 to 7: the lockfile format of rattler, which pixi and other tools write."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

from packaging.utils import canonicalize_name

from envpack.requirements.conda_spec import parse_spec, version_range
from envpack.requirements.format import Source, reads
from envpack.requirements.location import local_path, read_text
from envpack.requirements.locked_packages import (
    check_once,
    checked_project,
    is_conda_archive,
    locked_channels,
    locked_conda,
    locked_file,
    python_minor,
)
from envpack.requirements.model import CondaPackage, PipPackage, Requirements
from envpack.requirements.outdated_locks import Versions, refuse_outdated, refuse_unlocked
from envpack.requirements.target import Target
from envpack.support.errors import InputError
from envpack.support.folders import real_path
from envpack.support.tables import List, Location, Table, quote, table_of

_VERSIONS = {"4", "5", "6", "7"}
_DIRECT = "direct+"  # in front of the URL of a wheel that is not from an index
_ENVIRONMENT = "default"
_COMMAND = "pixi lock"
_HINT = f"write the lock again: {_COMMAND}"
_PURL = re.compile(r"\bpkg:pypi/([\w.-]+)")  # of a conda package, what pip calls it


class LockedEntry(NamedTuple):
    """A package of a lock: ``"conda"`` or ``"pypi"``, its URL or path, and its table in the lock."""

    kind: str
    url_or_path: str
    table: Table


@reads(
    "pixi.lock",
    order=10,
    recognises=lambda source: source.is_yaml and "environments" in source.yaml and "version" in source.yaml,
)
def read_pixi_lock(source: Source) -> Requirements:
    """`pixi.lock`, versions 4 to 7

    Read: conda packages and wheels of the environment `default` for the target's platform; channels; folders of other
    projects, which are built

    Refused: other versions, environments and platforms; no package, or one twice; conda packages built from source;
    files without SHA-256. Left out with a warning: the project that the lock is of
    """
    content, target = source.yaml, source.target
    if content.text("version") not in _VERSIONS:
        version = quote(content.text("version"))
        raise content.get("version")[1].error(f"version {version} of the lock is not supported", hint=_HINT)
    environment = default_environment(content)
    entries = locked_entries(content, _platform_name(content, environment, target))
    if not entries:
        raise _empty(environment.location)
    of_conda = [entry for entry in entries if entry.kind == "conda"]
    conda = [_conda_package(entry, target) for entry in of_conda]
    check_once(conda, [entry.table.location for entry in of_conda])
    python = python_minor(conda)
    target = replace(target, python=python or target.python)
    path = content.location.path
    pip = [entry for entry in entries if entry.kind != "conda"]
    folders = {entry: local_path(entry.url_or_path, path.parent.absolute()) for entry in pip}
    projects = {entry: folder for entry, folder in folders.items() if folder is not None and folder.is_dir()}
    of_index = [entry for entry in pip if entry not in projects]
    wheels = [
        locked_file(one.url_or_path.removeprefix(_DIRECT), one.table.text("sha256", ""), one.table.location, target)
        for one in of_index
    ]
    check_once(wheels, [entry.table.location for entry in of_index])
    own = [entry for entry, folder in projects.items() if folder == real_path(path.parent)]
    _refuse_outdated(replace(source, target=target), entries, conda, wheels)
    return Requirements(
        python=python,
        source=path,
        channels=locked_channels(environment.tables("channels")),
        locked_conda=tuple(conda),
        locked_pip=tuple(wheels),
        projects=tuple(
            checked_project(projects[entry], entry.url_or_path, entry.table.location)
            for entry in projects
            if entry not in own
        ),
        platform=target.platform,
        files=(path,),
        warnings=tuple(
            f"{entry.table.location}: the project that the lock is of is left out: a model's code is in its own folder"
            for entry in own
        ),
    )


def _refuse_outdated(
    source: Source, entries: list[LockedEntry], packages: list[CondaPackage], wheels: list[PipPackage]
) -> None:
    """Refuse a lock that lacks a package which its manifest requires, or has another version of it."""
    path = source.path.with_name("pixi.toml")
    manifest = replace(source, path=path, text=read_text(path)) if path.is_file() else source.project
    pixi = table_of(manifest.toml, manifest.location)
    conda: Versions = {canonicalize_name(package.name): (package.version,) for package in packages}
    purls = " ".join(text for entry in entries for text, _ in entry.table.texts("purls"))
    provided = [*conda, *_PURL.findall(purls), *(entry.table.text("name", "") for entry in entries)]
    pypi: Versions = {canonicalize_name(name): () for name in provided} | {
        wheel.name: (wheel.version,) for wheel in wheels
    }
    if manifest is source.project:
        pixi = pixi.table("tool").table("pixi")
        if {"workspace", "project"}.isdisjoint(pixi.values):
            return
        pythons = f"=={source.target.minor}.*"
        refuse_outdated(replace(manifest, target=source.target), source.location, pypi, _COMMAND, pythons=pythons)
    for name, versions in _required(pixi, "dependencies", source.target.platform):
        refuse_unlocked(
            name,
            version_range(parse_spec(f"{name} {versions}").version),
            conda,
            manifest.place(name),
            source.location,
            _COMMAND,
        )
    for name, versions in _required(pixi, "pypi-dependencies", source.target.platform):
        refuse_unlocked(name, versions, pypi, manifest.place(name), source.location, _COMMAND)


def _required(pixi: Table, kind: str, platform: str) -> Iterator[tuple[str, str]]:
    """Names and versions of the dependencies of the environment ``default``; ``""`` for any version."""
    own, _ = pixi.table("environments").get(_ENVIRONMENT)
    features = own.texts("features") if isinstance(own, Table) else own.items if isinstance(own, List) else []
    tables = [pixi.table("feature").table(str(name)) for name, _ in features]
    if not isinstance(own, Table) or own.text("no-default-feature", "") != "true":
        tables.append(pixi)
    for table in tables:
        targets = (table.table("target").table(name) for name in ("unix", "linux", platform))
        values = [part.table(kind).values for part in (table, *targets)]
        for name, (entry, _) in {name: value for part in values for name, value in part.items()}.items():
            text = entry.text("version", "") if isinstance(entry, Table) else str(entry)
            yield name, "" if text == "*" else text


def default_environment(content: Table) -> Table:
    environments = content.table("environments")
    if _ENVIRONMENT not in environments:
        raise environments.location.error(
            f"there is no environment {_ENVIRONMENT}, only {quote(', '.join(environments.values))}",
            hint=f"envpack reads the environment {_ENVIRONMENT}",
        )
    return environments.table(_ENVIRONMENT)


def locked_entries(content: Table, platform: str) -> list[LockedEntry]:
    """The packages of the environment ``default`` for a platform, in the order of the lock."""
    tables = {_key(table): table for table in content.tables("packages")}
    found = []
    for reference in default_environment(content).table("packages").tables(platform):
        kind, url_or_path = _key(reference)
        table = tables.get((kind, url_or_path))
        if not kind:
            raise reference.location.error(
                "a package must be built from source, which envpack does not do for a lock",
                hint="build a conda package of it, or leave it out of the environment default",
            )
        if table is None:
            raise reference.location.error(f"{quote(url_or_path)} is not among the packages", hint=_HINT)
        found.append(LockedEntry(kind, url_or_path, table))
    return found


def _platform_name(content: Table, environment: Table, target: Target) -> str:
    """The lock's name for the target's platform; from version 7 on it can differ from conda's name."""
    packages = environment.table("packages")
    names = [target.platform]
    if "platforms" in content and content.text("version") != "6":
        platforms = content.tables("platforms")
        names = [table.text("name") for table in platforms if table.text("subdir", table.text("name")) in names]
    for name in names:
        if name in packages:
            return name
    if not packages.values:
        raise _empty(packages.location)
    raise packages.location.error(
        f"the lock is not for {target.platform}, only for {quote(', '.join(packages.values))}",
        hint="add the platform to pixi.toml and write the lock again, or build for one of these",
    )


def _empty(location: Location) -> InputError:
    return location.error(f"the environment {_ENVIRONMENT} of the lock has no packages", hint="pixi add python numpy")


def _key(table: Table) -> tuple[str, str]:
    kind = next((key for key in ("conda", "pypi") if key in table), "")
    if kind:
        return kind, table.text(kind)
    if "kind" in table:  # in the packages of versions 4 and 5
        return table.text("kind"), table.text("url", "") or table.text("path")
    return "", ""


def _conda_package(entry: LockedEntry, target: Target) -> CondaPackage:
    table = entry.table
    if not is_conda_archive(entry.url_or_path):
        raise table.location.error(
            f"{quote(entry.url_or_path)} must be built from source, which envpack does not do for a conda package",
            hint="build a package from it and lock that",
        )
    hashes = {name: table.text(name, "") for name in ("md5", "sha256")}
    return locked_conda(entry.url_or_path, table.location, target, entry=table, **hashes)
