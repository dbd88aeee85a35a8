"""In-toto statements: which files, by their digests, were made from what (SLSA provenance)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import envpack

_STATEMENT = "https://in-toto.io/Statement/v1"
_PROVENANCE = "https://slsa.dev/provenance/v1"
_BUILD = "urn:envpack:publication:1"
_SHA256 = re.compile(r"[0-9a-f]{64}")

# SHA-256 of each file, by its name.
Subjects = Mapping[str, str]


def provenance(
    subjects: Subjects, parameters: Mapping[str, Any], dependencies: Sequence[Mapping[str, str]]
) -> dict[str, Any]:
    """A statement about files."""
    return {
        "_type": _STATEMENT,
        "subject": [{"name": name, "digest": {"sha256": sha256}} for name, sha256 in sorted(subjects.items())],
        "predicateType": _PROVENANCE,
        "predicate": {
            "buildDefinition": {
                "buildType": _BUILD,
                "externalParameters": dict(parameters),
                "resolvedDependencies": [_descriptor(dependency) for dependency in dependencies],
            },
            "runDetails": {"builder": {"id": f"urn:envpack:{envpack.__version__}"}},
        },
    }


def parse_subjects(statement: Mapping[str, Any]) -> Subjects:
    """The files of a statement."""
    try:
        if statement["_type"] != _STATEMENT or statement["predicateType"] != _PROVENANCE:
            raise ValueError("it is a statement of another kind")
        if statement["predicate"]["buildDefinition"]["buildType"] != _BUILD:
            raise ValueError("it is a statement about something else than a publication")
        found = {str(subject["name"]): str(subject["digest"]["sha256"]) for subject in statement["subject"]}
        complete = len(found) == len(statement["subject"]) > 0
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError("it is damaged") from error
    if not complete or not all(_SHA256.fullmatch(sha256) for sha256 in found.values()):
        raise ValueError("its list of files is damaged")
    return found


def _descriptor(dependency: Mapping[str, str]) -> dict[str, Any]:
    found: dict[str, Any] = {"name": dependency["name"]}
    if dependency.get("uri"):
        found["uri"] = dependency["uri"]
    if dependency.get("sha256"):
        found["digest"] = {"sha256": dependency["sha256"]}
    return found
