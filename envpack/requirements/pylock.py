"""``pylock.toml`` (PEP 751): the lockfile format of uv, pip and PDM."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from packaging.markers import Environment
from packaging.pylock import (
    Package,
    PackageWheel,
    Pylock,
    PylockSelectError,
    PylockUnsupportedVersionError,
    PylockValidationError,
)

from envpack.requirements.location import Location, quote
from envpack.requirements.locked_packages import locked_wheel, wrong_platform
from envpack.requirements.model import PipPackage, Requirements
from envpack.requirements.parsing import line_of
from envpack.requirements.target import Target, marker_environment, single_minor, wheel_tags
from envpack.support.errors import InputError

_HINT = "write the lock again with the tool that wrote it"


def read_pylock(content: Mapping[str, Any], text: str, path: Path, target: Target) -> Requirements:
    """Select the wheels of a lock that fit a target best.

    Args:
        content: the parsed lock.
        text: its text, to find lines.
        path: its file.
        target: if its Python is unknown, the only minor version that ``requires-python`` allows is used.

    Raises:
        InputError: the lock does not follow PEP 751, is not for this target, or has no wheel of a package for it.
    """
    location = Location(path)
    lock = _validated(content, location)
    minor = single_minor(str(lock.requires_python)) if lock.requires_python else ""
    if not target.python:
        if not minor:
            raise location.error(
                "the lock is for several versions of Python",
                hint='choose one: --python 3.10, or python = "3.10" in envpack.toml',
            )
        target = replace(target, python=minor)
    return Requirements(
        python=minor,
        source=path,
        locked_pip=_select(lock, text, location, target),
        platform=target.platform,
        files=(path,),
    )


def _validated(content: Mapping[str, Any], location: Location) -> Pylock:
    try:
        return Pylock.from_dict(content)
    except PylockUnsupportedVersionError as error:
        raise location.error(str(error), hint=_HINT) from error
    except PylockValidationError as error:
        raise location.error(f"not a lock according to PEP 751: {_reason(error)}", hint=_HINT) from error


def _select(lock: Pylock, text: str, location: Location, target: Target) -> tuple[PipPackage, ...]:
    environment = cast("Environment", marker_environment(target))
    found = []
    try:
        for package, file in lock.select(environment=environment, tags=wheel_tags(target)):
            name_line = location.at(line_of(text, f'name = "{package.name}"'))
            found.append(_wheel(package, file, name_line, target))
    except PylockSelectError as error:
        raise _not_selected(error, text, location, target) from error
    except (PylockValidationError, ValueError, LookupError, TypeError) as error:  # also of malformed markers
        raise location.error(f"not a lock according to PEP 751: {_reason(error)}", hint=_HINT) from error
    return tuple(found)


def _not_selected(error: PylockSelectError, text: str, location: Location, target: Target) -> InputError:
    """The library's error as ours. The package without a fitting wheel is named only in its message."""
    package = re.match(r"No wheel found .* for package '([a-z0-9-]+)'", str(error))
    if package:
        return wrong_platform(package[1], location.at(line_of(text, f'name = "{package[1]}"')), target)
    return location.error(
        f"the lock is not for Python {target.minor} on {target.platform}: {_reason(error)}",
        hint="choose the Python that it was made for, or write the lock again",
    )


def _wheel(package: Package, file: object, location: Location, target: Target) -> PipPackage:
    if not isinstance(file, PackageWheel):
        if package.wheels:
            raise wrong_platform(package.name, location, target)
        raise location.error(
            f"{package.name} must be built from source, which envpack does not do for a lock",
            hint="build a wheel from it and lock that",
        )
    url_or_path = file.path or file.url or ""
    return locked_wheel(url_or_path, file.hashes.get("sha256", ""), location, target, size=file.size or 0)


def _reason(error: Exception) -> str:
    return quote(" ".join(str(error).split()))[1:-1]
