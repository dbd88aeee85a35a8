"""Runs the cases; see ci/bare.sh."""

import argparse
import os
import re
import shlex
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from bare.cases import CASES, Case
from bare.roots import SYSTEMS, Output, Root, UntriedError, make_root, what_is_missing

CHECKOUT = Path(__file__).resolve().parents[2]
FAILED, UNTRIED = 1, 2
# What the demo promises: a line within two seconds, and at least every ten; with some room for a busy machine.
_MOST_FIRST, _MOST_SILENCE = 4.0, 14.0
_REFUSAL_SECONDS = 10.0
_INDEX_VARIABLES = ("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "UV_DEFAULT_INDEX", "UV_INDEX", "UV_INDEX_URL")


@dataclass(frozen=True)
class Cost:
    """What a case took: seconds from the clone on, megabytes on the disk and from the network."""

    seconds: float
    disk: float
    downloaded: float
    silence: float

    def __str__(self) -> str:
        return (
            f"{self.seconds:.0f} s from the clone on, {self.disk:.0f} MB on disk, {self.downloaded:.0f} MB "
            f"downloaded, never silent for more than {self.silence:.1f} s"
        )


def try_demo(root: Root, case: Case, log: Path) -> Cost:
    """Clone this checkout in a root, run the demo there, and follow its last lines.

    Raises:
        AssertionError: something was not as it should be; the text has the output.
    """
    with log.open("w", encoding="utf-8") as written, case.prepare(root) as surroundings:
        variables = {"HOME": case.home} | _index_variables() | surroundings.variables

        def run(*command: str) -> Output:
            written.write(f"$ {shlex.join(command)}\n")
            return root.run(command, case.user, variables, lambda line: print(line, file=written, flush=True))

        disk, network = root.kilobytes(), _received()
        clone = f"{case.home}/{case.folder}"
        cloned = run("git", "clone", "--quiet", f"file://{_bare_clone(root, case)}", clone)
        _expect(cloned.status == 0, "git clone failed", cloned)
        demo = run("make", "--no-print-directory", "--directory", clone, "demo")
        spent = cloned.seconds + demo.seconds
        if case.refused:
            command = _refusal(case, demo)
            assert not (root.folder / clone.lstrip("/") / ".venv").exists(), "it was installed all the same"
            demo = run(command[0], "--no-print-directory", "--directory", clone, *command[1:])
            spent += demo.seconds
        _expect(demo.status == 0, "make demo failed", demo)
        _expect("VERDICT: yes – 4 of 4 models serve, nothing left behind" in demo.text, "no verdict", demo)
        assert demo.first < _MOST_FIRST, f"nothing was written for {demo.first:.1f} s"
        assert demo.silence < _MOST_SILENCE, f"nothing was written for {demo.silence:.1f} s"
        surroundings.check(demo.text)
        cost = Cost(spent, (root.kilobytes() - disk) / 1e3, (_received() - network) / 1e6, demo.silence)
        followed = run("bash", "-c", f"mkdir {case.home}/own && cd {case.home}/own && {_next(demo)}")
        _expect(followed.status == 0, "what the demo says to do next failed", followed)
        _expect("VERDICT: yes – 1 of 1 models serve" in followed.text, "no verdict about the own model", followed)
    return cost


def try_tests(root: Root, case: Case, log: Path) -> Cost:
    """Clone this checkout in a root, and run the tests there.

    Raises:
        AssertionError: a test failed; the text has the output.
    """
    with log.open("w", encoding="utf-8") as written, case.prepare(root) as surroundings:
        variables = {"HOME": case.home} | _index_variables() | surroundings.variables
        disk, network = root.kilobytes(), _received()
        clone = f"{case.home}/{case.folder}"

        def run(*command: str) -> Output:
            return root.run(command, case.user, variables, lambda line: print(line, file=written, flush=True))

        cloned = run("git", "clone", "--quiet", f"file://{_bare_clone(root, case)}", clone)
        _expect(cloned.status == 0, "git clone failed", cloned)
        tested = run("make", "--no-print-directory", "--directory", clone, "test")
        _expect(tested.status == 0, "make test failed", tested)
        seconds = cloned.seconds + tested.seconds
        return Cost(seconds, (root.kilobytes() - disk) / 1e3, (_received() - network) / 1e6, tested.silence)


def _bare_clone(root: Root, case: Case) -> str:
    """Where this checkout can be cloned from in a root."""
    repository = root.folder / "given.git"
    subprocess.run(["git", "clone", "--quiet", "--bare", CHECKOUT, repository], check=True)
    subprocess.run(["chown", "--recursive", f"{case.user}:{case.user}", repository], check=True)
    return "/given.git"


def _expect(condition: bool, what: str, output: Output) -> None:
    if not condition:
        raise AssertionError("\n".join((what, *output.lines[-20:])))


def _refusal(case: Case, demo: Output) -> list[str]:
    """The command that the demo's refusal names."""
    _expect(demo.status != 0 and case.refused in demo.text, f"not refused with {case.refused!r}", demo)
    _expect(demo.seconds < _REFUSAL_SECONDS, f"the refusal took {demo.seconds:.0f} s", demo)
    fix = re.search(r"fix: .*: (make demo .*)", demo.text)
    _expect(fix is not None, "the refusal names no command", demo)
    return shlex.split(fix[1]) if fix else []


def _next(demo: Output) -> str:
    """The commands at the end of the demo's output, as one command of a shell."""
    lines = [line for line in demo.lines if line.strip()][-4:]
    activate = re.search(r"\(first: (.*)\):", lines[0])
    _expect(activate is not None, "the demo does not say what to do next", demo)
    return " && ".join((activate[1] if activate else "", *(line.partition(" # ")[0].strip() for line in lines[1:])))


def _index_variables() -> dict[str, str]:
    """The package index of this machine, from variables or pip's configuration."""
    found = {name: os.environ[name] for name in _INDEX_VARIABLES if os.environ.get(name)}
    command = [sys.executable, "-m", "pip", "config", "get", "global.index-url"]
    configured = subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
    return ({"PIP_INDEX_URL": configured} if configured else {}) | found


def _received() -> int:
    """Bytes that this machine has received from others."""
    lines = Path("/proc/net/dev").read_text(encoding="ascii").splitlines()[2:]
    counters = (line.partition(":") for line in lines)
    return sum(int(numbers.split()[0]) for name, _, numbers in counters if name.strip() != "lo")


def _wanted(words: list[str]) -> list[tuple[str, str]]:
    """The pairs of system and case that the arguments name."""
    every = [(system, name) for system in SYSTEMS for name in CASES]
    found = [pair for pair in every if not words or pair[0] in words or "/".join(pair) in words]
    unknown = set(words) - {*SYSTEMS, *("/".join(pair) for pair in every)}
    if unknown:
        sys.exit(f"error: unknown: {', '.join(sorted(unknown))}\n  fix: ci/bare.sh --list")
    return found


def main() -> int:
    parser = argparse.ArgumentParser(prog="ci/bare.sh", description="Run the demo on bare systems.")
    parser.add_argument("names", nargs="*", metavar="SYSTEM[/CASE]", help="default: all")
    parser.add_argument("--tests", action="store_true", help="run make test instead of make demo; needs python3-dev")
    parser.add_argument("--list", action="store_true", help="print what there is, run nothing")
    parser.add_argument("--roots", type=Path, default=CHECKOUT / "build/bare", help="where root file systems are kept")
    options = parser.parse_args()
    if options.list:
        for system, name in _wanted(options.names):
            print(f"{system}/{name}: {CASES[name].what}")
        return 0
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # what runs in a root ends first
    missing = what_is_missing()
    if missing:
        print(f"nothing was tried: {missing}")
        return UNTRIED
    tried = try_tests if options.tests else try_demo
    states = [_run(system, name, options.roots.absolute(), tried) for system, name in _wanted(options.names)]
    return FAILED if FAILED in states else UNTRIED if all(state == UNTRIED for state in states) else 0


def _run(system: str, name: str, roots: Path, tried: Callable[[Root, Case, Path], Cost]) -> int:
    case, log = CASES[name], roots / f"{system}-{name}.log"
    print(f"{system}/{name}: {case.what} …", flush=True)
    try:
        made = make_root(system, roots, headers=case.headers)
        with tempfile.TemporaryDirectory(prefix="bare-", dir=roots) as folder:
            Path(folder).chmod(0o755)
            cost = tried(Root(made, Path(folder) / "root"), case, log)
    except UntriedError as error:
        print(f"  not tried: {error}", flush=True)
        return UNTRIED
    except AssertionError as error:
        print(f"  FAILED, see {log}: {error}", flush=True)
        return FAILED
    print(f"  yes: {cost}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
