"""Environment markers (PEP 508) whose terms are known only in part: extras and the system, but perhaps not Python."""

from __future__ import annotations

import functools
from collections.abc import Collection
from dataclasses import replace
from typing import Any

from packaging.markers import Marker

from envpack.requirements.target import NEWEST_PATCH, Target, marker_environment

_OF_PYTHON = ("python_version", "python_full_version", "implementation_version")
_OF_MACHINE = ("platform_release", "platform_version")  # nothing is known about the machine that runs the server


def reduced_marker(text: str, target: Target, extras: Collection[str] = ()) -> str | None:
    """A marker without the terms that extras and a target decide.

    Terms about Python stay if the target's Python is unknown, or if they hold only for some of its patches.

    Returns the other terms, ``""`` if the marker is true, ``None`` if it is false.
    """
    if not text:
        return ""
    found = _reduced(Marker(text)._markers, target, frozenset(extras))  # noqa: SLF001 - the library has no public terms
    return None if found is False else "" if found is True else found


def _reduced(node: Any, target: Target, extras: frozenset[str]) -> bool | str:
    """The value of a term, or of terms with ``and`` and ``or`` between them; their text if it is open."""
    if isinstance(node, tuple):
        left, operator, right = (part.serialize() for part in node)  # values are in quotes
        return _decided((left, operator, right), target, extras)
    groups: list[list[bool | str]] = [[]]
    for part in node:
        if part == "or":
            groups.append([])
        elif part != "and":
            groups[-1].append(_reduced(part, target, extras))
    alternatives = []
    for terms in groups:
        if False in terms:
            continue
        still_open = [term for term in terms if isinstance(term, str)]
        if not still_open:
            return True
        several = len(still_open) > 1
        alternatives.append(" and ".join(f"({term})" if several and " or " in term else term for term in still_open))
    return " or ".join(dict.fromkeys(alternatives)) or False


@functools.lru_cache(maxsize=4096)
def _decided(term: tuple[str, str, str], target: Target, extras: frozenset[str]) -> bool | str:
    text = " ".join(term)
    if "extra" in term:
        results = (_evaluated(text, {"extra": extra}) for extra in extras)
        return all(results) if term[1] in ("!=", "not in") else any(results)
    if set(term).intersection(_OF_MACHINE if target.python else (*_OF_MACHINE, *_OF_PYTHON)):
        return text
    try:
        found = {_evaluated(text, environment) for environment in _environments(target)}
    except ValueError:  # a comparison without meaning, which the resolver reports
        return text
    return found.pop() if len(found) == 1 else text


@functools.lru_cache
def _environments(target: Target) -> tuple[dict[str, str], ...]:
    """The values of markers for the first and the newest patch of the target's Python; for any if it is unknown."""
    minor = target.minor or "3.0"
    versions = [target.python] if target.python.count(".") == 2 else [f"{minor}.0", f"{minor}.{NEWEST_PATCH}"]
    return tuple(marker_environment(replace(target, python=version)) for version in versions)


def _evaluated(text: str, environment: dict[str, str]) -> bool:
    return Marker(text).evaluate(environment)
