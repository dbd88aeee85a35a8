"""The table of broken repositories in the reference of errors, from the catalogue that the tests run."""

from __future__ import annotations

from envpack.verification.verdict import Step
from tests.faults.repositories import CATALOGUE, Broken

_STEPS: dict[Step, str] = {
    "files": "from files",
    "start": "before a load",
    "load": "at load",
    "process": "in the process",
    "inference": "at inference",
    "together": "in a joint load",
    "unload": "after unload",
}
_SPECIAL = str.maketrans({char: f"\\{char}" for char in "\\|*_$<>[]"})


def example(name: str) -> str:
    """What envpack prints for an entry of the catalogue."""
    entry = next(entry for entry in CATALOGUE if entry.id == name)
    return f"    error: /models/core/{entry.reason} ({entry.kind})\n      fix: {entry.fix}"


def table(_: str) -> str:
    """How many entries there are, and one row for each, in the catalogue's order."""
    diagnoses = {(entry.kind, entry.reason, entry.fix) for entry in CATALOGUE}
    rows = [
        f"{len(CATALOGUE)} broken repositories or machines, {len(diagnoses)} distinct diagnoses (kind, message, fix).",
        "",
        "| what is broken | envpack says | found by | found | kind | what to do |",
        "|---|---|---|---|---|---|",
        *(f"| {' | '.join(_row(entry))} |" for entry in CATALOGUE),
    ]
    return "\n".join(rows)


def _row(entry: Broken) -> tuple[str, ...]:
    return (
        entry.what,
        _plain(entry.reason),
        _found_by(entry),
        _STEPS[entry.found_in],
        f"[{entry.kind}](#{entry.kind})",
        _plain(entry.fix),
    )


def _found_by(entry: Broken) -> str:
    where = " in a container" if entry.runtime == "docker" else ""
    strict = " --strict" if "--strict" in entry.options else ""
    return f"`{entry.found_by}{strict}`{where}"


def _plain(text: str) -> str:
    """A message escaped for a table; … stands for the parts that vary."""
    return text.replace("`", "").translate(_SPECIAL)
