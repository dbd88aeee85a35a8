"""Locks of conda: ``conda-lock.yml`` version 1 of conda-lock, and ``@EXPLICIT`` lists of ``conda list --explicit``."""

from __future__ import annotations

import re
from dataclasses import replace

from packaging.utils import canonicalize_name

from envpack.requirements.conda_spec import parse_spec, version_range
from envpack.requirements.format import Source, reads
from envpack.requirements.formats.conda_environment import read_conda_environment
from envpack.requirements.location import read_text
from envpack.requirements.locked_packages import check_once, locked_channels, locked_conda, locked_file, python_minor
from envpack.requirements.model import CondaPackage, Requirements
from envpack.requirements.outdated_locks import refuse_unlocked
from envpack.requirements.target import Target
from envpack.support.errors import InputError
from envpack.support.tables import Location, Table, quote

_HINT = "write the lock again with conda-lock"
_CATEGORY = "main"
_EXPLICIT_MARK = "@EXPLICIT"
_EXPLICIT = re.compile(r"(?:[^\S\n]*(?:#.*)?\n)*[^\S\n]*@EXPLICIT[^\S\n]*$", re.MULTILINE)  # below comments
_SHA256_DIGITS = 64
_ELSEWHERE = re.compile(r"^# platform: (?!linux-)", re.MULTILINE)  # conda-lock writes a list for each platform
_PIP_COMMENT = re.compile(r"#\s*pip\s+[\w.-]+\s*(@|==)")


@reads(
    "conda-lock.yml",
    "conda-lock.yaml",
    order=11,
    recognises=lambda source: source.is_yaml and "package" in source.yaml and "metadata" in source.yaml,
    similar=r"(?:[\w.-]*[-_.])?conda-lock(?:[-_.][\w.-]+)?\.ya?ml",
    holds=lambda name, text: name.startswith("conda-lock.") or "metadata:" in text,
)
def read_conda_lock(source: Source) -> Requirements:
    """`conda-lock.yml`, version 1

    Read: packages of the category `main`, and what they need, for the target's platform; channels

    Refused: other versions and platforms; no package, or one twice. Left out: other categories, such as `dev`
    """
    content, target = source.yaml, source.target
    if content.text("version", "1") != "1":
        version = quote(content.text("version"))
        hint = f"{_HINT}; or with pixi lock, if pixi wrote it"  # whose first versions have the same form
        raise content.get("version")[1].error(f"version {version} of the lock is not supported", hint=hint)
    entries = _entries(content, target)
    of_conda = [entry for entry in entries if entry.text("manager") == "conda"]
    of_pip = [entry for entry in entries if entry.text("manager") == "pip"]
    conda = [_conda_package(entry, target) for entry in of_conda]
    python = python_minor(conda)
    target = replace(target, python=python or target.python)
    wheels = [
        locked_file(entry.text("url"), entry.table("hash").text("sha256", ""), entry.location, target)
        for entry in of_pip
    ]
    check_once(conda, [entry.location for entry in of_conda])
    check_once(wheels, [entry.location for entry in of_pip])
    _refuse_outdated(content, source, conda)
    path = content.location.path
    return Requirements(
        python=python,
        source=path,
        channels=locked_channels(content.table("metadata").tables("channels")),
        locked_conda=tuple(conda),
        locked_pip=tuple(wheels),
        platform=target.platform,
        files=(path,),
    )


def _refuse_outdated(content: Table, source: Source, packages: list[CondaPackage]) -> None:
    """Refuse a lock that lacks a conda package, or a version, that a file requires from which it was made."""
    locked = {canonicalize_name(package.name): (package.version,) for package in packages}
    for text, _ in content.table("metadata").texts("sources"):
        file = source.path.parent / text
        if file.suffix not in (".yml", ".yaml") or not file.is_file():
            continue
        made_from = replace(source, path=file, text=read_text(file))
        try:
            required = read_conda_environment(made_from)
        except InputError:  # of what only conda-lock reads
            continue
        if "category" in made_from.yaml:  # of all packages in that file
            continue
        wanted = [(spec.name, version_range(spec.version)) for spec in map(parse_spec, required.conda)]
        for name, versions in (*wanted, *([("python", required.pythons)] if required.pythons else [])):
            refuse_unlocked(name, versions, locked, made_from.place(name), source.location, "conda-lock")


def _entries(content: Table, target: Target) -> list[Table]:
    entries = content.tables("package")
    platforms = list(dict.fromkeys(entry.text("platform") for entry in entries))
    if entries and target.platform not in platforms:
        raise content.get("package")[1].error(
            f"the lock is not for {target.platform}, only for {quote(', '.join(platforms))}",
            hint=f"conda-lock --platform {target.platform}, or build for one of these",
        )
    of_platform = [entry for entry in entries if entry.text("platform") == target.platform]
    for entry in of_platform:
        if entry.text("manager") not in ("conda", "pip"):
            raise entry.get("manager")[1].error("the manager of a package must be conda or pip", hint=_HINT)
    found = [entry for entry in of_platform if entry.text("category", _CATEGORY) == _CATEGORY]
    if not found:
        what = f"the lock has no packages of the category {_CATEGORY} for {target.platform}"
        raise content.get("package")[1].error(what, hint="add python to the dependencies, and run conda-lock again")
    of_platform.sort(key=lambda entry: entry.text("manager"), reverse=True)  # conda's replace those of pip
    others = {entry.text("name"): entry for entry in of_platform}
    for entry in found:
        others.pop(entry.text("name"), None)
    for entry in found:  # which grows: conda-lock 1 puts what several categories need into one of them
        found += [others.pop(name) for name in entry.table("dependencies").values if name in others]
    return found


def _conda_package(entry: Table, target: Target) -> CondaPackage:
    dependencies = entry.table("dependencies")
    hashes = entry.table("hash")
    return locked_conda(
        entry.text("url"),
        entry.location,
        target,
        md5=hashes.text("md5", ""),
        sha256=hashes.text("sha256", ""),
        entry=entry,
        depends=[f"{name} {dependencies.text(name, '')}".strip() for name in dependencies.values],
    )


@reads(
    order=0,
    recognises=lambda source: _EXPLICIT.match(source.text) is not None,
    similar=r"(?:[\w.-]*[-_.])?(?:explicit|spec|conda|environment|linux)(?:[-_.][\w.-]+)?\.(?:txt|lock)",
    holds=lambda _, text: _EXPLICIT.match(text) is not None and not _ELSEWHERE.search(text),
)
def read_explicit(source: Source) -> Requirements:
    """`@EXPLICIT` lists (`conda list --explicit`, `conda-lock --kind explicit`)

    Read: URLs with `#md5`, `#sha256`, `#sha256:…`

    Refused: URLs without a hash; other platforms; no package, or one twice; pip packages, which conda-lock puts into
    comments: use `conda-lock.yml`
    """
    path, target = source.path, source.target
    found: list[CondaPackage] = []
    places = []
    for number, line in enumerate(source.text.splitlines(), start=1):
        location, stripped = Location(path, number), line.strip()
        if _PIP_COMMENT.match(stripped):
            raise location.error(
                "the list names packages of pip in comments, which are not read", hint="use conda-lock.yml instead"
            )
        if stripped and not stripped.startswith("#") and stripped != _EXPLICIT_MARK:
            found.append(_read_explicit_line(stripped, location, target))
            places.append(location)
    if not found:
        raise Location(path).error(
            "the list has no packages", hint="write it again: conda list --explicit --md5 > FILE"
        )
    check_once(found, places)
    return Requirements(
        python=python_minor(found), source=path, locked_conda=tuple(found), platform=target.platform, files=(path,)
    )


def _read_explicit_line(line: str, location: Location, target: Target) -> CondaPackage:
    url, _, digest = line.partition("#")
    sha256 = digest.removeprefix("sha256:")
    md5, sha256 = ("", sha256) if sha256 != digest or len(digest) == _SHA256_DIGITS else (digest, "")
    if " " in url or ("/" not in url):
        raise location.error(
            f"{quote(line)} is not the URL of a package", hint="each line must be one URL, optionally with #md5"
        )
    return locked_conda(url, location, target, md5=md5, sha256=sha256)
