"""How long a second machine needs for what a first one built: the recipe `digits`, through an S3 service on 127.0.0.1.

    python benchmarks/shared_store.py [--rounds 3] [--stubs]

Each machine has an empty cache. The second one has no compiler and no package index, and the lockfiles of the first.
Wheels come from uv's own cache, so that the speed of an index does not count. With --stubs, stubs are compiled, and
fetched, too.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests.object_stores import BUCKET, VARIABLES, moto  # noqa: E402


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--stubs", action="store_true")
    options = parser.parse_args()
    stub = ("--stub", "auto" if options.stubs else "never")
    times: dict[str, list[float]] = {"build and push": [], "fetch": []}
    with tempfile.TemporaryDirectory() as temporary, moto(Path(temporary)) as address:
        for number in range(options.rounds):
            first, second = (machine(Path(temporary, f"{name}{number}")) for name in ("first", "second"))
            store = ("--store", f"s3://{address}/{BUCKET}/{number}")
            times["build and push"].append(envpack(first, "build", *stub, *store, "--set", "push=true"))
            envpack(first, "lock")
            for lock in first.glob("*/envpack.lock"):
                (second / lock.parent.name / lock.name).write_bytes(lock.read_bytes())
            times["fetch"].append(envpack(second, "build", *stub, *store, UV_OFFLINE="1", CXX="/nonexistent/c++"))
            compare(first, second)
    show(times)


def machine(folder: Path) -> Path:
    """A repository, with a cache beside it that belongs to it alone."""
    folder.mkdir()
    repository = folder / "models"
    envpack(repository, "init", "--recipe", "digits", where=str(repository))
    return repository


def envpack(repository: Path, command: str, *words: str, where: str = "", **changes: str) -> float:
    """Run a command on a machine; returns the seconds that it took."""
    place = [where] if where else ["--repository", str(repository)]
    cache = {"ENVPACK_CACHE_DIR": str(repository.parent / "cache"), "PYTHONPATH": str(ROOT)}
    started = time.monotonic()
    subprocess.run(
        [sys.executable, "-m", "envpack", command, *place, *words, "--quiet"],
        env=os.environ | VARIABLES | cache | changes,
        check=True,
    )
    return time.monotonic() - started


def compare(first: Path, second: Path) -> None:
    """Both machines must have the same environments."""
    contents = [
        sorted(file.read_bytes() for file in machine.parent.glob("cache/environments/*/envpack-files.json"))
        for machine in (first, second)
    ]
    assert contents[0] == contents[1]
    assert len(contents[0]) == 3


def show(times: dict[str, list[float]]) -> None:
    slow = statistics.median(times["build and push"])
    print("|  | median | minimum | |\n|---|---|---|---|")
    for name, seconds in times.items():
        median = statistics.median(seconds)
        print(f"| {name} | {median:.1f} | {min(seconds):.1f} | {slow / median:.1f}x |")


if __name__ == "__main__":
    main()
