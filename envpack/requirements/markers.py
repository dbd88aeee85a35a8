"""Environment markers (PEP 508) whose terms are known only in part: extras and the system, but perhaps not Python."""

from __future__ import annotations

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

    Returns:
        The other terms, ``""`` if the marker is true, ``None`` if it is false.

    Raises:
        ValueError: it is not a marker.
    """
    if not text:
        return ""
    found = _Terms(target, extras).reduced(Marker(text)._markers)  # noqa: SLF001 - the library has no public terms
    return None if found is False else "" if found is True else found


class _Terms:
    """Decides the terms of markers."""

    def __init__(self, target: Target, extras: Collection[str]) -> None:
        self._extras = extras
        versions = [target.python] if target.python.count(".") == 2 else _patches(target.minor or "3.0")
        self._environments = [marker_environment(replace(target, python=version)) for version in versions]
        self._unknown = _OF_MACHINE if target.python else (*_OF_MACHINE, *_OF_PYTHON)

    def reduced(self, node: Any) -> bool | str:
        """The value of a term, or of terms with ``and`` and ``or`` between them; their text if it is open."""
        if isinstance(node, tuple):
            return self._decided(node)
        groups: list[list[bool | str]] = [[]]
        for part in node:
            if part == "or":
                groups.append([])
            elif part != "and":
                groups[-1].append(self.reduced(part))
        alternatives = []
        for terms in groups:
            if False in terms:
                continue
            still_open = [term for term in terms if isinstance(term, str)]
            if not still_open:
                return True
            several = len(still_open) > 1
            alternatives.append(
                " and ".join(f"({term})" if several and " or " in term else term for term in still_open)
            )
        return " or ".join(dict.fromkeys(alternatives)) or False

    def _decided(self, term: tuple[Any, Any, Any]) -> bool | str:
        text = " ".join(part.serialize() for part in term)
        names = {part.serialize() for part in term}  # values are in quotes
        if "extra" in names:
            negative = term[1].value in ("!=", "not in")
            results = (_evaluated(text, {"extra": extra}) for extra in self._extras)
            return all(results) if negative else any(results)
        if names.intersection(self._unknown):
            return text
        try:
            found = {_evaluated(text, environment) for environment in self._environments}
        except ValueError:  # a comparison without meaning, which the resolver reports
            return text
        return found.pop() if len(found) == 1 else text


def _patches(minor: str) -> list[str]:
    return [f"{minor}.0", f"{minor}.{NEWEST_PATCH}"]


def _evaluated(text: str, environment: dict[str, str]) -> bool:
    return Marker(text).evaluate(environment)
