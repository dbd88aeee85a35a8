"""Puts small faults into envpack's Python code, one at a time, and shows which of them no unit test notices.

    python ci/mutants/python.py [--targets core|outer|all] [--sample 100] [--seed N] [--all] [PATH ...]
    python ci/mutants/python.py --all envpack/lock/lockfile.py:17

For each fault the unit tests that execute its line run in a copy of the working tree, in a sandbox (see `sandbox.py`).
A fault is killed if a test fails or does not end; it survives if all pass, or if no unit test executes the line.
Survivors that change nothing observable are listed in accepted.toml and accepted_outer.toml, each with the reason.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import itertools
import json
import os
import queue
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import sandbox
from operators import Mutant, find_mutants
from reach import Reach, measure_reach
from targets import GROUPS, is_target, python_files, target_files

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
# The copy leaves out what no unit test reads.
_NOT_COPIED = {".git", ".venv", "build", "dist", "demo", "__pycache__", ".mypy_cache", ".ruff_cache", ".pytest_cache"}
_NO_TESTS_RAN, _BROKEN = 5, 70  # of pytest, and of child.py


@dataclass(frozen=True)
class Result:
    """What became of a mutant: ``killed``, ``timeout``, ``survived``, or ``no test``."""

    mutant: Mutant
    outcome: str
    seconds: float = 0.0

    @property
    def killed(self) -> bool:
        return self.outcome in ("killed", "timeout")


class Tree:
    """A copy of the working tree, and a process in the sandbox that runs its tests."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "tree"
        self._scratch = folder / "scratch"
        self._count = 0
        self._process: subprocess.Popen[str] | None = None
        shutil.copytree(ROOT, self.root, symlinks=True, ignore=lambda _, names: _NOT_COPIED & set(names))

    def measure(self, files: list[str]) -> dict[str, Any]:
        """The reach of test files, and for tests that fail while programs are measured that without programs."""
        measured = self._measured(files, programs=True)
        if measured["unfit"]:
            again = self._measured(measured["unfit"], programs=False)
            measured["seconds"] |= again["seconds"]
            measured["unfit"] = again["unfit"]
            for file, lines in again["lines"].items():
                known = measured["lines"].setdefault(file, {})
                for line, tests in lines.items():
                    known[line] = [*known.get(line, ()), *tests]
        return measured

    def judge(self, mutant: Mutant, reach: Reach) -> Result:
        """Run the tests that execute a mutant."""
        groups = reach.tests_for(mutant)
        if not groups:
            return Result(mutant, "no test")
        started = time.monotonic()
        file = self.root / mutant.file
        source, status = file.read_bytes(), file.stat()
        try:
            file.write_bytes(mutant.apply(source))
            self._count += 1  # another time stamp each time, so that no cached byte code of another mutant is used
            os.utime(file, (status.st_atime, self._count))
            outcome = "survived"
            for tests in groups:
                code = self._run(tests, limit=30 + 5 * sum(reach.seconds[test] for test in tests))
                if code in (_NO_TESTS_RAN, _BROKEN):
                    raise SystemExit(f"no test ran for {mutant.file}:{mutant.line}")
                if code != 0:
                    outcome = "timeout" if code is None else "killed"
                    break
        finally:
            file.write_bytes(source)
            os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))
        return Result(mutant, outcome, time.monotonic() - started)

    def close(self) -> None:
        """End the process."""
        if self._process:
            self._process.kill()  # and with it everything in the sandbox
            self._process.communicate()
            self._process = None

    def _measured(self, tests: list[str], *, programs: bool) -> dict[str, Any]:
        reach = self._scratch / "reach.json"
        reach.unlink(missing_ok=True)
        self._run(tests, reach=str(reach), programs=str(self._scratch / "programs") if programs else "", limit=7200)
        if not reach.exists():
            raise SystemExit("the reach of the tests cannot be measured")
        result: dict[str, Any] = json.loads(reach.read_text(encoding="utf-8"))
        return result

    def _run(self, tests: list[str], *, limit: float, reach: str = "", programs: str = "") -> int | None:
        """Exit code of pytest; None if it did not end in time."""
        for name in ("temporary", "basetemp", "programs"):
            shutil.rmtree(self._scratch / name, ignore_errors=True)
        for name in ("temporary", "programs"):
            (self._scratch / name).mkdir(parents=True)
        process = self._process = self._process or self._start()
        assert process.stdin is not None
        assert process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            process.stdin.write(
                json.dumps({"tests": tests, "reach": reach, "programs": programs, "limit": limit}) + "\n"
            )
            process.stdin.flush()
        reply = process.stdout.readline()
        if reply:
            code: int | None = json.loads(reply)
            return code
        self.close()
        if not self._count:
            raise SystemExit("the sandbox cannot be entered: it needs Linux 6.2 and user namespaces")
        return -signal.SIGKILL  # the fault has killed every process of the sandbox

    def _start(self) -> subprocess.Popen[str]:
        variables = {
            **os.environ,
            "PYTHONPATH": f"{self.root / 'ci/mutants/programs'}:{self.root}",
            "TMPDIR": str(self._scratch / "temporary"),
            "PYTHONPYCACHEPREFIX": str(self._scratch / "pycache"),
            "ENVPACK_TEST_CACHE": str(self._scratch / "cache"),
        }
        return subprocess.Popen(
            sandbox.command(self.root / "ci/mutants/child.py", self.root, self._scratch),
            cwd=self.root,
            env=variables,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )


class Trees:
    """Copies of the working tree for several processes."""

    def __init__(self, folder: Path, count: int) -> None:
        self._free: queue.Queue[Tree] = queue.Queue()
        self._pool = ThreadPoolExecutor(count)
        trees = [Tree(folder / str(number)) for number in range(count)]
        self.root = trees[0].root
        for tree in trees:
            self._free.put(tree)

    def close(self) -> None:
        """End all processes."""
        self._pool.shutdown(cancel_futures=True)
        while not self._free.empty():
            self._free.get().close()

    def measure(self, lists: list[list[str]]) -> Iterable[dict[str, Any]]:
        return self._pool.map(self._measure, lists)

    def judge(self, mutants: list[Mutant], reach: Reach) -> Iterator[Result]:
        return self._pool.map(lambda mutant: self._judge(mutant, reach), mutants)

    def _measure(self, files: list[str]) -> dict[str, Any]:
        tree = self._free.get()
        try:
            return tree.measure(files)
        finally:
            self._free.put(tree)

    def _judge(self, mutant: Mutant, reach: Reach) -> Result:
        tree = self._free.get()
        try:
            return tree.judge(mutant, reach)
        finally:
            self._free.put(tree)


class Sources:
    """The files to put faults into, as they are now."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._texts: dict[str, bytes] = {}
        self._trees: dict[str, str] = {}

    def in_groups(self, groups: Iterable[str]) -> list[Mutant]:
        """All faults for groups of `targets.GROUPS`."""
        return [
            mutant
            for group in groups
            for file in target_files(self._root, group)
            for mutant in self._mutants(file)
            if is_target(group, mutant.file, mutant.function)
        ]

    def at(self, places: list[str]) -> list[Mutant]:
        """All faults for some files, folders and lines."""
        return [mutant for place in places for mutant in self._at(place)]

    def is_fault(self, mutant: Mutant) -> bool:
        """Whether a mutant compiles, to another program."""
        try:
            return ast.dump(ast.parse(mutant.apply(self._texts[mutant.file]))) != self._trees[mutant.file]
        except SyntaxError:
            return False

    def changed(self, mutant: Mutant) -> tuple[list[str], list[str]]:
        """The lines without and with the fault."""
        return mutant.changed(self._texts[mutant.file])

    def _at(self, place: str) -> list[Mutant]:
        path, _, line = place.partition(":")
        found = [mutant for file in python_files([Path(path).resolve()]) for mutant in self._mutants(file)]
        return [mutant for mutant in found if not line or mutant.line == int(line)]

    def _mutants(self, file: Path) -> list[Mutant]:
        name = str(file.relative_to(self._root))
        self._texts[name] = file.read_bytes()
        self._trees[name] = ast.dump(ast.parse(self._texts[name]))
        return find_mutants(name, self._texts[name])


def main() -> None:
    arguments = _arguments()
    sources = Sources(ROOT)
    groups = GROUPS if arguments.targets == "all" else (arguments.targets,)
    candidates = sources.at(arguments.paths) if arguments.paths else sources.in_groups(groups)
    seed = arguments.seed if arguments.seed is not None else random.randrange(10**6)
    shuffled = filter(sources.is_fault, random.Random(seed).sample(candidates, len(candidates)))
    mutants = list(shuffled if arguments.all else itertools.islice(shuffled, arguments.sample))
    print(f"{len(mutants)} of {len(candidates)} mutants, seed {seed}", flush=True)
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="envpack-mutants-"))
        trees = Trees(Path(folder), arguments.processes)
        stack.callback(trees.close)
        code = [file for group in GROUPS for file in target_files(trees.root, group)]
        reach = measure_reach(trees.root, code, ROOT / "build/mutants", trees.measure, arguments.processes)
        print(f"{len(reach.seconds)} tests, {len(reach.unfit)} not fit for the sandbox", flush=True)
        results = []
        for number, result in enumerate(trees.judge(mutants, reach), 1):
            results.append(result)
            place = f"{result.mutant.file}:{result.mutant.line}"
            print(
                f"{number:4} {result.outcome:9} {result.seconds:5.1f} s  {place}  {result.mutant.operator}", flush=True
            )
    sys.exit(_report(results, sources, arguments.fail_under))


def _report(results: list[Result], sources: Sources, fail_under: float) -> int:
    known = accepted()
    survivors, equivalent = [], 0
    for result in sorted(results, key=lambda result: (result.mutant.file, result.mutant.start)):
        removed, added = sources.changed(result.mutant)
        if result.killed:
            continue
        if (result.mutant.file, " ".join(removed), " ".join(added)) in known:
            equivalent += 1
            continue
        survivors.append(result)
        print(f"\n{result.outcome}: {result.mutant.file}:{result.mutant.line}, {result.mutant.operator}")
        print("\n".join([*(f"  - {line}" for line in removed), *(f"  + {line}" for line in added)]))
    judged = len(results) - equivalent
    killed = judged - len(survivors)
    share = 100 * killed / judged if judged else 100.0
    print(f"\n{killed} of {judged} mutants killed ({share:.0f} %), {len(survivors)} survived, {equivalent} accepted")
    return int(share < fail_under)


def accepted() -> dict[tuple[str, str, str], str]:
    """Reasons by file, lines without the fault and lines with it: an entry stays valid when code moves."""
    texts = [(HERE / name).read_text(encoding="utf-8") for name in ("accepted.toml", "accepted_outer.toml")]
    entries = [entry for text in texts for entry in tomllib.loads(text).get("survivor", ())]
    return {(entry["file"], entry["line"], entry["mutant"]): entry["reason"] for entry in entries}


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paths", nargs="*", help="files, folders or FILE:LINE of envpack, instead of --targets")
    parser.add_argument(
        "--targets", choices=(*GROUPS, "all"), default="core", help="a group of targets.py, or both (default: core)"
    )
    parser.add_argument("--sample", type=int, default=100, help="number of mutants (default: 100)")
    parser.add_argument("--seed", type=int, help="seed of the sample; random by default")
    parser.add_argument("--all", action="store_true", help="all mutants instead of a sample; hours")
    parser.add_argument("--processes", type=int, default=2, help="mutants tested at the same time (default: 2)")
    parser.add_argument("--fail-under", type=float, default=95, help="lowest share of killed mutants (default: 95 %%)")
    return parser.parse_args()


if __name__ == "__main__":
    main()
