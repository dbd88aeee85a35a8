"""Which unit tests execute which lines, and how long they take; measured once for the same code and tests."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from operators import Mutant

# These read the code as text, or compare generated files: they fail for any fault, and show nothing about behaviour.
_LEFT_OUT = ("tests/unit/docs/",)
# These run in a process of its own, whose lines are not measured: whoever starts it reaches all of them.
_SUPERVISOR = "envpack/server/supervisor.py"
_STARTED_BY = {
    "envpack/server/supervisor_child.py": _SUPERVISOR,
    "envpack/server/made_objects.py": _SUPERVISOR,
    "envpack/fleet/child.py": "envpack/fleet/worker.py",
}


@dataclass
class Reach:
    """The reach of all tests.

    Attributes:
        seconds: by test; only tests that pass.
        lines: tests by file and line.
        unfit: tests that fail or are skipped in the sandbox.
        texts: of the test files.

    """

    seconds: dict[str, float] = field(default_factory=dict)
    lines: dict[str, dict[int, set[str]]] = field(default_factory=dict)
    unfit: list[str] = field(default_factory=list)
    texts: dict[str, str] = field(default_factory=dict)

    def add(self, measured: dict[str, Any]) -> None:
        """Add the reach of some tests."""
        self.seconds |= measured["seconds"]
        self.unfit += measured["unfit"]
        for file, lines in measured["lines"].items():
            known = self.lines.setdefault(file, {})
            for line, tests in lines.items():
                known.setdefault(int(line), set()).update(tests)

    def tests_for(self, mutant: Mutant) -> list[list[str]]:
        """The tests that execute a mutant: first those of the same package, then the others; the fastest first.

        A statement that runs at import concerns every test file with a test of its module, or that imports it: a table
        has no lines that a test executes.
        """
        lines = self.lines.get(mutant.file, {})
        first, last = mutant.lines
        chosen = (tests for line, tests in lines.items() if mutant.imported or first <= line <= last)
        package = f"tests/unit/{mutant.file.split('/')[1]}/"
        started = self.lines.get(_STARTED_BY.get(mutant.file, ""), {})
        found = set().union(*chosen, *started.values())
        if mutant.imported:
            module = mutant.file.removesuffix(".py").replace("/", ".")
            importing = {f"{file}::" for file, text in self.texts.items() if f"from {module} import" in text}
            files = tuple({test.partition("::")[0] + "::" for test in found} | importing) or (package,)
            found = {test for test in self.seconds if test.startswith(files)}
        tests = sorted(found, key=lambda test: self.seconds[test])
        near = [test for test in tests if test.startswith(package)]
        return [group for group in (near, [test for test in tests if not test.startswith(package)]) if group]


def unit_tests(root: Path) -> list[str]:
    """The files of the unit tests."""
    files = sorted(str(file.relative_to(root)) for file in root.glob("tests/unit/**/test_*.py"))
    return [file for file in files if not file.startswith(_LEFT_OUT)]


def measure_reach(
    root: Path,
    code: list[Path],
    cache: Path,
    measure: Callable[[list[list[str]]], Iterable[dict[str, Any]]],
    parts: int,
) -> Reach:
    """The reach of the unit tests.

    Args:
        root: root of the repository.
        code: the files to put faults into.
        cache: folder with results of earlier runs; a test file is measured again if it or ``code`` has changed.
        measure: runs lists of test files, and returns the result of each.
        parts: number of lists.

    """
    common = _digest(root, code)
    cached = {file: cache / f"{_digest(root, [root / file], common)}.json" for file in unit_tests(root)}
    missing = [file for file, stored in cached.items() if not stored.exists()]
    lists = [part for part in (missing[number::parts] for number in range(parts)) if part]
    cache.mkdir(parents=True, exist_ok=True)
    for measured in measure(lists) if lists else ():
        for file, part in _by_file(measured).items():
            cached[file].write_text(json.dumps(part), encoding="utf-8")
    for stored in cache.glob("*.json"):
        if stored not in cached.values():
            stored.unlink()
    reach = Reach(texts={file: (root / file).read_text(encoding="utf-8") for file in cached})
    for stored in cached.values():
        if stored.exists():
            reach.add(json.loads(stored.read_text(encoding="utf-8")))
    return reach


def _by_file(measured: dict[str, Any]) -> dict[str, dict[str, Any]]:
    parts: dict[str, dict[str, Any]] = {}

    def part(test: str) -> dict[str, Any]:
        return parts.setdefault(test.partition("::")[0], {"seconds": {}, "unfit": [], "lines": {}})

    for test, seconds in measured["seconds"].items():
        part(test)["seconds"][test] = seconds
    for test in measured["unfit"]:
        part(test)["unfit"].append(test)
    for file, lines in measured["lines"].items():
        for line, tests in lines.items():
            for test in tests:
                part(test)["lines"].setdefault(file, {}).setdefault(line, []).append(test)
    return parts


def _digest(root: Path, files: list[Path], common: str = "") -> str:
    digest = hashlib.sha256(common.encode())
    for file in files:
        digest.update(f"{file.relative_to(root)}\0".encode() + file.read_bytes())
    return digest.hexdigest()[:24]
