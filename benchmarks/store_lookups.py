"""What models cost a store if each looks up its environment, if a command looks up each once, and if it does so side by
side before it needs them.

    python benchmarks/store_lookups.py [--models 1000] [--environments 50] [--workers 200] [--delay 0.01]

One worker is measured, on an S3 service on 127.0.0.1 behind a proxy that delays each request; all others do the same.
"""

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from envpack.environment.store import Environment, read_environment  # noqa: E402
from envpack.lock.lockfile import Lock  # noqa: E402
from envpack.requirements.model import PipPackage  # noqa: E402
from envpack.requirements.target import Target  # noqa: E402
from envpack.store.shared import SharedStore, open_store  # noqa: E402
from envpack.support.progress import NoProgress  # noqa: E402
from envpack.workflow.shared import Fill, find_lock, obtain_environment, push_lock  # noqa: E402
from tests.object_stores import BUCKET, VARIABLES, Faulty, faulty, moto  # noqa: E402
from tests.unit.archive.conftest import Prefixes  # noqa: E402

QUIET = NoProgress()
EACH, AHEAD = "for each model", "once, side by side"


@dataclass
class Cost:
    """The requests of one worker."""

    requests: int = 0
    size: int = 0
    seconds: float = 0.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", type=int, default=1000)
    parser.add_argument("--environments", type=int, default=50)
    parser.add_argument("--workers", type=int, default=200)
    parser.add_argument("--delay", type=float, default=0.01, help="seconds of each request")
    options = parser.parse_args()
    keys = [f"{number:032x}" for number in range(options.environments)]
    os.environ |= VARIABLES
    with tempfile.TemporaryDirectory() as temporary, moto(Path(temporary)) as address, faulty(address) as proxy:
        url, first = f"s3://{proxy.url}/{BUCKET}/store", Path(temporary, "first")
        fill_store(open_store(url, push=True), keys, first)
        proxy.refuses = lambda *_: bool(time.sleep(options.delay))
        wanted = [keys[number % len(keys)] for number in range(options.models)]
        print(f"| {options.workers} workers | looked up | requests | MB | s each | fewer requests | bytes | seconds |")
        print("|---|---|---|---|---|---|---|---|")
        for name, push in (("fetch", False), ("have all, and push", True)):
            costs = []
            for how in (EACH, "once", AHEAD):
                cache = first if push else Path(temporary, f"new {how}")
                costs.append(measured(proxy, partial(work, url, wanted, cache, push=push, how=how)))
                show(name, how, costs[-1], costs[0], options.workers)


def fill_store(store: SharedStore, keys: list[str], cache: Path) -> None:
    """Put locks and environments into a store."""
    for key in keys:
        packages = tuple(
            PipPackage(f"{key}-{number}", "1", "https://files.example/x.whl", key * 2, 1) for number in range(60)
        )
        push_lock(store, key, Lock(Target("linux-64", "3.8", "2.35", ""), ("local",), (), packages))
    work_on(store, keys, cache)


def work(url: str, keys: list[str], cache: Path, *, push: bool, how: str) -> None:
    """What a command does for its models, with a store for each model or one for all."""
    shared = open_store(url, push=push)
    if how == AHEAD:
        shared.look_up("lock", keys)
        shared.look_up("environment", keys)
    for key in keys:
        work_on(open_store(url, push=push) if how == EACH else shared, [key], cache)


def work_on(store: SharedStore, keys: list[str], cache: Path) -> None:
    os.environ["ENVPACK_CACHE_DIR"] = str(cache)
    for key in keys:
        find_lock(store, key, QUIET)
        obtain_environment(store, key, maker(cache, key), cache=cache, progress=QUIET)


def maker(cache: Path, key: str) -> Callable[[Fill | None], Environment]:
    """Makes a small environment, or fills it from the store."""

    def make(fill: Fill | None) -> Environment:
        folder = cache / "environments" / key
        if fill is None:
            return Prefixes(folder.parent).make(key, lambda prefix: (prefix / "lib/own").write_text(key))
        folder.mkdir(parents=True)
        fill(folder)
        found = read_environment(folder)
        assert found is not None
        return found

    return make


def measured(proxy: Faulty, run: Callable[[], None]) -> Cost:
    cost = Cost()

    def count(*answer: Any) -> tuple[Any, ...]:
        cost.requests += 1
        cost.size += len(answer[-1])
        return answer[2:]

    proxy.fault = count
    begun = time.monotonic()
    run()
    cost.seconds = time.monotonic() - begun
    return cost


def show(name: str, how: str, cost: Cost, before: Cost, workers: int) -> None:
    total = f"{cost.requests * workers:,} | {cost.size * workers / 1e6:,.0f} | {cost.seconds:.1f}"
    pairs = ((before.requests, cost.requests), (before.size, cost.size), (before.seconds, cost.seconds))
    print(f"| {name} | {how} | {total} | {' | '.join(f'{was / now:.1f}x' for was, now in pairs)} |")


if __name__ == "__main__":
    main()
