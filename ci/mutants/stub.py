"""Put small faults into the part of the stub that talks to the server, and run the native tests against each.

    python ci/mutants/stub.py --sample 30 --seed 1
    python ci/mutants/stub.py --only abi/codec.cc:41 --only shm/queue.cc
    python ci/mutants/stub.py --sample 200 --list

Works on a copy of the sources, with cmake, ninja and a compiler. A fault is killed if a test fails or does not end. A
fault that does not compile, or that compiles to the same code, is not counted. Survivors that change no behaviour are
in stub_accepted.toml, with the reason. The exit status is 1 if another fault survives.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np
from stub_operators import Mutant, mutants_of

from envpack.conda.choice import interpreter_for
from envpack.stub.recipe import source_folder
from envpack.stub.target import target_from_interpreter
from envpack.stub.toolchain import find_tool, header_folders
from envpack.support.placed_files import STUB_NAME
from envpack.support.processes import clean_environment

# Reached by wire_tests.
WIRE = (
    "abi/base_session.h", "abi/base_wire.cc", "abi/base_wire.h", "abi/codec.cc", "abi/commands.h.in", "abi/epoch.cc",
    "abi/epoch_reader.h", "abi/epoch_writer.h", "abi/traits.h", "shm/queue.cc", "shm/sync.cc",
)  # fmt: skip
# Reached by stub_tests: BYTES and response senders.
MODULE = ("module/conversions.cc", "module/response.cc")
CASES = ("execute_test.cc", "release_test.cc", "senders_test.cc")
# Most faults show in one of these releases, which take seconds to compile; the others show in one of all.
FEW = "23.04;24.08;24.10;25.04"
ACCEPTED = Path(__file__).with_name("stub_accepted.toml")
MINOR = f"{sys.version_info.major}.{sys.version_info.minor}"
SECONDS = 120  # for all cases of a program, which take a tenth of it
COPIED = ("CMakeLists.txt", "envpack/releases.toml", "stub_src", "tests/native", "tests/fuzz", "benchmarks")


class Tree:
    """A copy of the sources with two builds: for a few releases, and for all."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.sources = folder / "source"
        for name in COPIED:
            origin, copy = source_folder() / name, self.sources / name
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copytree(origin, copy) if origin.is_dir() else shutil.copy(origin, copy)
        # A change compiles one file instead of a batch, and a warning about it stops nothing.
        for name in ("CMakeLists.txt", "common.cmake", "python.cmake"):
            file = self.sources / "stub_src" / name
            file.write_text(file.read_text().replace("UNITY_BUILD ON", "UNITY_BUILD OFF").replace(" -Werror", ""))

    def configure(self) -> None:
        target = target_from_interpreter(MINOR)
        for name, releases in (("few", FEW), ("all", "all")):
            command = [
                find_tool("cmake"), "-S", self.sources, "-B", self.folder / name, "-GNinja",
                f"-DCMAKE_MAKE_PROGRAM={find_tool('ninja')}",
                f"-DCMAKE_PREFIX_PATH={';'.join(map(str, header_folders(MINOR)))}",
                f"-DPython_INCLUDE_DIR={target.include}",
                f"-DPython_LIBRARY={target.library}",
                f"-DENVPACK_RELEASES={releases}",
                "-DENVPACK_NATIVE_TESTS=ON",
                "-DCMAKE_BUILD_TYPE=Mutants",
                "-DCMAKE_CXX_FLAGS=-O1",
            ]  # fmt: skip
            subprocess.run(command, env=clean_environment(), check=True, stdout=subprocess.DEVNULL)

    def build(self, name: str, *programs: str) -> bool:
        command = [find_tool("cmake"), "--build", self.folder / name, "--parallel", "2", "--target", *programs]
        return subprocess.run(command, env=clean_environment(), capture_output=True, check=False).returncode == 0

    def objects(self, name: str) -> str:
        """A digest of the stub's compiled code."""
        digest = hashlib.sha256()
        for file in sorted((self.folder / name / "stub_src").rglob("*.o")):
            if file.name != "embed.cc.o":  # contains the path of a temporary file
                digest.update(file.read_bytes())
        return digest.hexdigest()

    @contextmanager
    def mutated(self, mutant: Mutant) -> Iterator[None]:
        file = self.sources / "stub_src" / mutant.file
        text = file.read_text()
        file.write_text(mutant.apply(text))
        try:
            yield
        finally:
            file.write_text(text)


class Tests:
    """The programs of the native tests."""

    def __init__(self, tree: Tree) -> None:
        self.tree = tree
        self.errors: int | None = subprocess.DEVNULL  # where the programs report failures
        texts = [(tree.sources / "tests/native" / file).read_text() for file in CASES]
        self.cases = [name for text in texts for name in re.findall(r"^CASE\((\w+)\)", text, re.MULTILINE)]

    def wire(self, name: str) -> bool:
        """Whether all cases of wire_tests pass."""
        return self._passes([self.tree.folder / name / "tests/native/wire_tests"], {})

    def stub(self, name: str) -> bool:
        """Whether the cases of stub_tests pass, each with the stub as a child process."""
        build = self.tree.folder / name
        target = target_from_interpreter(MINOR)
        with tempfile.TemporaryDirectory(dir=self.tree.folder) as scratch:
            variables = {
                "ENVPACK_TEST_STUB": str(build / "stub_src" / STUB_NAME),
                "ENVPACK_TEST_LIBRARIES": str(interpreter_for(MINOR).prefix / "lib"),
                "ENVPACK_TEST_LIBPYTHON": target.library.name,
                "ENVPACK_TEST_PYTHONPATH": str(Path(np.__file__).parent.parent),
                "ENVPACK_TEST_SCRATCH": scratch,
                "ENVPACK_TEST_CUDA": str(build / "tests/native/cuda"),
            }
            return self._passes([build / "tests/native/stub_tests", *self.cases], variables)

    def _passes(self, command: Sequence[str | Path], variables: dict[str, str]) -> bool:
        regions = f"envpack_mutant_{os.getpid()}_"
        environment = {
            **clean_environment(), "ENVPACK_TEST_REGIONS": regions, "ENVPACK_TEST_SECONDS": "15", **variables,
        }  # fmt: skip
        process = subprocess.Popen(
            command, env=environment, stdout=subprocess.DEVNULL, stderr=self.errors, start_new_session=True
        )
        try:
            return process.wait(SECONDS) == 0
        except subprocess.TimeoutExpired:
            return False
        finally:
            _end_group(process)
            for left in Path("/dev/shm").glob(f"{regions}*"):
                left.unlink(missing_ok=True)


def _end_group(process: subprocess.Popen[bytes]) -> None:
    """End what the program has started, and the program."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, 9)
    process.wait()


class Judge:
    """Decides about mutants, one at a time."""

    def __init__(self, tree: Tree) -> None:
        self.tree = tree
        self.tests = Tests(tree)
        self.original: dict[str, str] = {}

    def prepare(self) -> None:
        """Build everything without a fault. Without one, the tests must pass."""
        self.tests.errors = None
        for name in ("few", "all"):
            if not self.tree.build(name, "wire_tests") or not self.tests.wire(name):
                raise SystemExit(f"the wire tests of the build {name!r} fail without a fault")
        if not self.tree.build("few", STUB_NAME, "stub_tests") or not self.tests.stub("few"):
            raise SystemExit("the stub's tests fail without a fault")
        self.tests.errors = subprocess.DEVNULL
        self.original = {name: self.tree.objects(name) for name in ("few", "all")}

    def outcome(self, mutant: Mutant) -> str:
        """One of killed, survived, same code, does not compile."""
        with self.tree.mutated(mutant):
            if mutant.file in MODULE:
                return self._try("few", (STUB_NAME, "stub_tests"), self.tests.stub)
            few = self._try("few", ("wire_tests",), self.tests.wire)
            if few in ("killed", "does not compile"):
                return few
            return self._try("all", ("wire_tests",), self.tests.wire)

    def _try(self, name: str, programs: tuple[str, ...], passes: Callable[[str], bool]) -> str:
        if not self.tree.build(name, *programs):
            return "does not compile"
        if self.tree.objects(name) == self.original[name]:
            return "same code"
        return "survived" if passes(name) else "killed"


def _chosen(options: argparse.Namespace) -> list[Mutant]:
    """The mutants to try, ordered so that each file is compiled without a fault once."""
    folder = source_folder() / "stub_src"
    every = [mutant for file in (*WIRE, *MODULE) for mutant in mutants_of(file, (folder / file).read_text())]
    if options.only:
        wanted = tuple(options.only)
        return [mutant for mutant in every if mutant.file in wanted or f"{mutant.file}:{mutant.line}" in wanted]
    chosen = random.Random(options.seed).sample(every, min(options.sample, len(every)))
    return sorted(chosen, key=lambda mutant: (mutant.file, mutant.line))


def _accepted() -> set[tuple[str, str, str]]:
    survivors = tomllib.loads(ACCEPTED.read_text())["survivor"]
    return {(survivor["file"], survivor["line"], survivor["mutant"]) for survivor in survivors}


def _report(mutant: Mutant, outcome: str, seconds: float) -> None:
    print(f"{outcome}: {mutant.file}:{mutant.line} ({mutant.operator}, {seconds:.0f} s)")
    print(f"    - {mutant.before.strip()}\n    + {mutant.after.strip()}", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sample", type=int, default=30, help="how many faults to choose at random")
    parser.add_argument("--seed", type=int, default=1, help="of the choice")
    parser.add_argument("--only", action="append", help="all faults of FILE, or of FILE:LINE, in place of a sample")
    parser.add_argument("--list", action="store_true", help="print the faults and stop")
    options = parser.parse_args()
    mutants = _chosen(options)
    accepted = _accepted()
    if options.list:
        for mutant in mutants:
            _report(mutant, "chosen", 0)
        return 0
    outcomes: Counter[str] = Counter()
    with tempfile.TemporaryDirectory(prefix="envpack-stub-mutants-") as folder:
        tree = Tree(Path(folder))
        tree.configure()
        judge = Judge(tree)
        judge.prepare()
        for mutant in mutants:
            started = time.monotonic()
            outcome = judge.outcome(mutant)
            if outcome == "survived" and (mutant.file, mutant.before.strip(), mutant.after.strip()) in accepted:
                outcome = "accepted"
            outcomes[outcome] += 1
            _report(mutant, outcome, time.monotonic() - started)
    counted = outcomes["killed"] + outcomes["survived"]
    print(f"{outcomes['killed']} of {counted} killed; not counted: "
          f"{outcomes['does not compile']} do not compile, {outcomes['same code']} compile to the same code, "
          f"{outcomes['accepted']} accepted")  # fmt: skip
    return 1 if outcomes["survived"] else 0


if __name__ == "__main__":
    sys.exit(main())
