"""Runs the checks; see docs/guides/gpu.md."""

from __future__ import annotations

import argparse
import contextlib
import re
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

from envpack.server.kserve import RequestError
from envpack.server.launch import find_server
from envpack.server.log import last_lines
from envpack.support.errors import EnvpackError
from envpack.support.interruption import once_interruptible
from gpu.checks import CHECKS, Check, SkippedError
from gpu.driver import NO_GPU, NoGpuError, count_devices
from gpu.environment import REQUIREMENTS, ModelSetup, SetupOptions, UnpreparedError, prepare_setup
from gpu.serving import Site, fill, serving

FAILED, UNPREPARED = 1, 2
FOLDER = Path(__file__).resolve().parents[2] / "build/gpu-check"
POOL_BYTES = 256 << 20  # enough for the largest tensor, its copy and the rest
SMALL_POOL_BYTES = 1 << 20
CHECK_SECONDS = 180
_LOG_LINES = 25
_INFORMATION = re.compile(r"I\d{4} ")  # the server's verbose lines, which would fill the screen


class TimeUpError(BaseException):
    """A check exceeded its time limit; a BaseException, so that no handler on the way catches it."""


@dataclass
class Tally:
    """Counts of the results."""

    counts: dict[str, int] = field(default_factory=lambda: {"ok": 0, "FAIL": 0, "skip": 0})

    def record(self, result: str, name: str, text: str) -> None:
        self.counts[result] += 1
        joint = ": " if result != "ok" else " – "
        print(f"{result:4} {name}{joint + ' '.join(text.split()) if text else ''}", flush=True)


@dataclass
class Round:
    """Checks that run on servers with the same options.

    Attributes:
        label: prefix of the names of its checks.
        pool: bytes of the CUDA memory pool of each device.

    """

    label: str
    pool: dict[int, int]
    checks: list[Check]


def rounds(checks: Sequence[Check], devices: int) -> list[Round]:
    """All checks, and those of large tensors once more where the server must share them by CUDA IPC.

    None without a pool: given a size of 0, 24.10 crashes with its own stub for the first output on a GPU.
    """
    large, small = (dict.fromkeys(range(devices), size) for size in (POOL_BYTES, SMALL_POOL_BYTES))
    again = [check for check in checks if check.small_pool]
    return [Round("", large, list(checks)), Round("pool of 1 MiB: ", small, again)]


def run_round(current: Round, setup: ModelSetup, repository: Path, devices: int, tally: Tally) -> None:
    """Run the checks; a server that ends or hangs is replaced for the remaining checks."""
    left = list(current.checks)
    for check in [check for check in left if check.devices > devices]:
        tally.record("skip", current.label + check.name, f"{check.devices} devices, here is {devices}")
        left.remove(check)
    while left:
        done = 0
        try:
            with serving(setup, repository, pool=current.pool) as site:
                site.load({model for check in left for model in check.models})
                for check in left:
                    done += 1
                    if not run_check(check, site, current.label, tally):
                        break
        except EnvpackError as error:
            for check in left[done:]:
                tally.record("FAIL", current.label + check.name, f"no server: {error}")
            return
        left = left[done:]


def run_check(check: Check, site: Site, label: str, tally: Tally) -> bool:
    """Run one check; returns whether the server can be used for another one."""
    name, mark = label + check.name, len(site.server.log())
    failed = [f"{model} did not load: {site.failures[model]}" for model in check.models if model in site.failures]
    if failed:
        tally.record("FAIL", name, "; ".join(failed))
        return True
    try:
        with time_limit(CHECK_SECONDS):
            note = check.run(site)
    except SkippedError as error:
        tally.record("skip", name, str(error))
    except TimeUpError:
        tally.record("FAIL", name, f"not done within {CHECK_SECONDS} s")
        show_log(site, mark)
        return False
    except Exception as error:  # every fault belongs to this check alone
        tally.record("FAIL", name, str(error) or type(error).__name__)
        show_log(site, mark)
        return not without_answer(error)
    else:
        tally.record("ok", name, note or "")
    return not site.server.ended()


def without_answer(error: Exception) -> bool:
    """Whether the server gave none: it crashed, which takes it seconds, or hangs."""
    return error.status == 0 if isinstance(error, RequestError) else isinstance(error, OSError)


def show_log(site: Site, mark: int) -> None:
    """Print the last lines that the server and its stubs wrote since the check began."""
    written = "\n".join(line for line in site.server.log()[mark:].splitlines() if not _INFORMATION.match(line))
    for line in last_lines(written, _LOG_LINES):
        print(f"       | {line[:300]}", flush=True)


@contextlib.contextmanager
def time_limit(seconds: int) -> Iterator[None]:
    def ring(_number: int, _frame: FrameType | None) -> None:
        raise TimeUpError

    before = signal.signal(signal.SIGALRM, ring)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def run(setup: ModelSetup, checks: Sequence[Check], devices: int, repository: Path) -> Tally:
    """Run checks on this many devices and print one line for each."""
    tally = Tally()
    fill(repository, setup)
    for current in rounds(checks, devices):
        if current.checks:
            run_round(current, setup, repository, devices, tally)
    return tally


def choose(only: Sequence[str]) -> list[Check]:
    chosen = [check for check in CHECKS if not only or any(text in check.name for text in only)]
    if not chosen:
        raise UnpreparedError(f"no check has {' or '.join(only)} in its name")
    return chosen


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="ci/gpu-check.sh", description="Our stub on a GPU, under the real server.")
    parser.add_argument("--venv", help="virtual environment with envpack and the server; created if missing")
    parser.add_argument("--prepare", action="store_true", help="install and compile what is missing, then end")
    parser.add_argument("--python", default="", help="version that the models run with, such as 3.10")
    parser.add_argument(
        "--library", default="", choices=tuple(REQUIREMENTS), help="library with which the models use the GPU"
    )
    parser.add_argument(
        "--packages",
        type=Path,
        action="append",
        default=[],
        metavar="DIR",
        help="folder that contains the library already, such as another environment's site-packages",
    )
    parser.add_argument(
        "--requirement",
        action="append",
        default=[],
        metavar="REQ",
        help="install this instead of the default, such as torch==2.5.1; name numpy as well",
    )
    parser.add_argument("--stub", type=Path, help="an existing stub for that Python")
    parser.add_argument("--only", action="append", default=[], metavar="TEXT", help="checks with this in their name")
    return parser.parse_args()  # fmt: skip


def main() -> int:
    given = parse_arguments()
    options = SetupOptions(given.python, given.library, tuple(given.packages), tuple(given.requirement), given.stub)
    try:
        checks = choose(given.only)
        devices = 0 if given.prepare else count_devices()
        FOLDER.mkdir(parents=True, exist_ok=True)
        find_server()
        setup = prepare_setup(options, FOLDER)
    except NoGpuError as error:
        print(f"no GPU: {error}")
        return NO_GPU
    except (UnpreparedError, EnvpackError) as error:
        print(f"error: {error}")
        return UNPREPARED
    print(f"models: {setup.environment.name}, stub: {setup.stub}", flush=True)
    if given.prepare:
        return 0
    started = time.monotonic()
    with once_interruptible(), tempfile.TemporaryDirectory(prefix="envpack-gpu-") as folder:
        tally = run(setup, checks, devices, Path(folder))
    counts = tally.counts
    print(f"{counts['ok']} ok, {counts['FAIL']} failed, {counts['skip']} skipped in {time.monotonic() - started:.0f} s")
    return FAILED if counts["FAIL"] else 0


if __name__ == "__main__":
    sys.exit(main())
