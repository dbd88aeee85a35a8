"""``@EXPLICIT`` lists, as ``conda list --explicit`` writes them."""

from __future__ import annotations

import re
from pathlib import Path

from envpack.requirements.locked_package import check_platform, locked_conda, python_minor
from envpack.requirements.model import CondaPackage, Requirements
from envpack.requirements.problem import Location, shown
from envpack.requirements.target import Target

_MARK = "@EXPLICIT"
_PIP = re.compile(r"#\s*pip\s+[\w.-]+\s*(@|==)")


def is_explicit(text: str) -> bool:
    """Whether the first line that says something is ``@EXPLICIT``."""
    for line in text[:100_000].splitlines():
        bare = line.strip()
        if bare and not bare.startswith("#"):
            return bare == _MARK
    return False


def read_explicit(text: str, path: Path, target: Target) -> Requirements:
    """Read a list of URLs of conda packages, each with ``#md5``, ``#sha256:…`` or no hash.

    Raises:
        InputError: a line is something else, or for another platform; or the list holds packages of pip.

    """
    found: list[CondaPackage] = []
    for number, line in enumerate(text.splitlines(), start=1):
        spot, bare = Location(path, number), line.strip()
        if _PIP.match(bare):
            raise spot.error(
                "the list holds packages of pip in comments, which are not read", hint="give conda-lock.yml instead"
            )
        if bare and not bare.startswith("#") and bare != _MARK:
            found.append(_read_line(bare, spot, target))
    return Requirements(
        python=python_minor(found), source=path, locked_conda=tuple(found), platform=target.platform, files=(path,)
    )


def _read_line(text: str, spot: Location, target: Target) -> CondaPackage:
    url, _, digest = text.partition("#")
    md5, sha256 = ("", digest[len("sha256:") :]) if digest.startswith("sha256:") else (digest, "")
    if " " in url or ("/" not in url):
        raise spot.error(f"{shown(text)} is not the URL of a package", hint="each line is one URL, perhaps with #md5")
    package = locked_conda(url, spot, md5=md5, sha256=sha256)
    check_platform(package, target, spot)
    return package
