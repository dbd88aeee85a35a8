"""The hashes in the lines of requirements: which lines have one, and whether the chosen files match."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from packaging.requirements import InvalidRequirement, Requirement

from envpack.requirements import PipPackage, Requirements, Target, reduced_marker
from envpack.support.errors import EnvironmentBuildError
from envpack.support.tables import quote
from envpack.support.text import normalise_name

_REQUIRED = "--require-hashes"
_ANY = re.compile(r"( --hash=|#sha(?:256|384|512)=)")  # as an option, or as the fragment of an address
_SHA256 = re.compile(r"(?: --hash=sha256:|#sha256=)([0-9a-fA-F]{64})")


def requirement_name(line: str) -> str:
    """The normalised name of the package in a line of requirements."""
    return normalise_name(re.split(r"[^A-Za-z0-9._-]", line.strip(), maxsplit=1)[0])


def check_lines(requirements: Requirements, target: Target) -> None:
    """Check that every requirement has a hash, if they contain ``--require-hashes``, as pip does."""
    if _REQUIRED not in requirements.pip_options:
        return
    for line in applying(requirements.pip, target):
        if not _ANY.search(line):
            raise _missing(f"{quote(line)} has no hash", "add --hash=sha256:…", requirements.places.get(line, ""))
    if requirements.projects:
        folder = requirements.projects[0]
        raise _missing("a local project has no hash", "build its wheel, and name that with its hash", str(folder))


def check_files(packages: Sequence[PipPackage], requirements: Requirements, target: Target) -> None:
    """Check the files that were chosen against the hashes of the lines that apply to the target."""
    by_name = {package.name: package for package in packages}
    hashed = set()
    for line in applying((*requirements.pip, *requirements.constraints), target):
        name, hashes = requirement_name(line), {digest.lower() for digest in _SHA256.findall(line)}
        if not _ANY.search(line) or name not in by_name:
            continue
        hashed.add(name)
        if " --hash=" in line and not hashes:
            what = f"pip requirement {name!r}: none of its hashes is a SHA-256, the only kind that locks support"
            raise EnvironmentBuildError("hash-mismatch", what, "add --hash=sha256:… of the file that you trust")
        if hashes and by_name[name].sha256 not in hashes:
            what = f"pip requirement {name!r}: none of its hashes matches the file for this Python"
            fix = "add the hash of that file to the requirements if you trust it"
            raise EnvironmentBuildError("hash-mismatch", what, fix, by_name[name].url)
    if _REQUIRED in requirements.pip_options:
        for package in packages:
            if package.name not in hashed:
                line = f"{package.name}=={package.version} --hash=sha256:…"
                raise _missing(f"the dependency {package.name!r} has no hash", f"add a line {line}", package.url)


def applying(lines: Sequence[str], target: Target) -> Iterator[str]:
    """The lines whose markers hold; as for uv, a minor version of Python stands for its first patch."""
    exact = replace(target, python=f"{target.python}.0") if target.python.count(".") == 1 else target
    for line in lines:
        try:
            marker = Requirement(line.partition(" --hash=")[0]).marker
            applies = reduced_marker(str(marker or ""), exact) is not None
        except InvalidRequirement:  # uv reports it
            applies = True
        if applies:
            yield line


def _missing(what: str, fix: str, where: str) -> EnvironmentBuildError:
    return EnvironmentBuildError("hash-missing", f"pip requirements with {_REQUIRED}: {what}", fix, where)
