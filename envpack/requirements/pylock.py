"""``pylock.toml`` (PEP 751): the lock that uv, pip and PDM write."""

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

from envpack.requirements.model import PipPackage, Requirements
from envpack.requirements.problem import Location, shown
from envpack.requirements.python_version import only_minor
from envpack.requirements.target import Target, marker_environment, wheel_tags
from envpack.requirements.toml_file import line_of
from envpack.requirements.wheel_file import locked_wheel, wrong_platform
from envpack.support.errors import InputError

_AGAIN = "make the lock again with the tool that wrote it"


def read_pylock(content: Mapping[str, Any], text: str, path: Path, target: Target) -> Requirements:
    """Choose the wheels of a lock that are the best for a target.

    Args:
        content: the lock.
        text: the same as it is written, for lines.
        path: its file.
        target: without a Python, the one that ``requires-python`` leaves is taken, if it leaves one.

    Raises:
        InputError: the lock does not follow PEP 751, is not for this target, or has no wheel of a package for it.

    """
    spot = Location(path)
    lock = _validated(content, spot)
    asked = only_minor(str(lock.requires_python)) if lock.requires_python else ""
    if not target.python:
        if not asked:
            raise spot.error(
                "the lock is for several versions of Python",
                hint='choose one: --python 3.10, or python = "3.10" in envpack.toml',
            )
        target = replace(target, python=asked)
    return Requirements(
        python=asked, source=path, locked_pip=_select(lock, text, spot, target), platform=target.platform, files=(path,)
    )


def _validated(content: Mapping[str, Any], spot: Location) -> Pylock:
    try:
        return Pylock.from_dict(content)
    except PylockUnsupportedVersionError as error:
        raise spot.error(str(error), hint=_AGAIN) from error
    except PylockValidationError as error:
        raise spot.error(f"not a lock as PEP 751 has it: {_one_line(error)}", hint=_AGAIN) from error


def _select(lock: Pylock, text: str, spot: Location, target: Target) -> tuple[PipPackage, ...]:
    environment = cast("Environment", marker_environment(target))
    found = []
    try:
        for package, chosen in lock.select(environment=environment, tags=wheel_tags(target)):
            place = spot.at(line_of(text, f'name = "{package.name}"'))
            found.append(_wheel(package, chosen, place, target))
    except PylockSelectError as error:
        raise _not_selected(error, text, spot, target) from error
    except (
        PylockValidationError,
        ValueError,
        LookupError,
        TypeError,
    ) as error:  # of markers that compare what cannot be
        raise spot.error(f"not a lock as PEP 751 has it: {_one_line(error)}", hint=_AGAIN) from error
    return tuple(found)


def _not_selected(error: PylockSelectError, text: str, spot: Location, target: Target) -> InputError:
    """The error of the library; where no wheel fits, it names the package in its message only."""
    package = re.match(r"No wheel found .* for package '([a-z0-9-]+)'", str(error))
    if package:
        return wrong_platform(package[1], spot.at(line_of(text, f'name = "{package[1]}"')), target)
    return spot.error(
        f"the lock is not for Python {target.minor} on {target.platform}: {_one_line(error)}",
        hint="choose the Python that it was made for, or make the lock again",
    )


def _wheel(package: Package, chosen: object, spot: Location, target: Target) -> PipPackage:
    if not isinstance(chosen, PackageWheel):
        if package.wheels:
            raise wrong_platform(package.name, spot, target)
        raise spot.error(
            f"{package.name} is to be built from source, which envpack does not do for a lock",
            hint="build a wheel of it and lock that",
        )
    location = chosen.path or chosen.url or ""
    return locked_wheel(location, chosen.hashes.get("sha256", ""), spot, target, size=chosen.size or 0)


def _one_line(error: Exception) -> str:
    return shown(" ".join(str(error).split()))[1:-1]
