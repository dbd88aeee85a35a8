"""How much faster two workers of this machine build than one: twelve environments of NumPy and another package.

    python benchmarks/fleet.py [--rounds 3] [--models 12] [--workers 1,2] [--store-only]

Each round has a cache of its own with the interpreter in it. Wheels come from uv's cache, so downloads do not count.
With --store-only, results go to a store in a folder and this process places nothing, which it would do alone. The ratio
depends on how many cores are free.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
CONFIG = 'backend: "python"\n'
CODE = "class TritonPythonModel:\n    def execute(self, requests):\n        return []\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--models", type=int, default=12)
    parser.add_argument("--workers", default="1,2", help="numbers of workers, with commas")
    parser.add_argument("--store-only", action="store_true")
    options = parser.parse_args()
    workers = [int(count) for count in options.workers.split(",")]
    times: dict[int, list[float]] = {count: [] for count in workers}
    tasks: dict[int, list[float]] = {count: [] for count in workers}
    for _ in range(options.rounds):
        for count in workers:
            with tempfile.TemporaryDirectory() as temporary:
                repository, cache = Path(temporary, "models"), Path(temporary, "cache")
                add_model(repository, "first", "numpy==1.26.4\n")
                envpack(repository, cache, "first")
                for number in range(options.models):
                    add_model(repository, f"model{number}", f"numpy==1.26.4\nsix==1.{5 + number}.0\n")
                (Path(temporary) / "store").mkdir()
                store = ("--store", f"file://{temporary}/store", "--store-only") if options.store_only else ()
                started = time.monotonic()
                done = envpack(repository, cache, "--on", f"local:{count}", *store)
                times[count].append(time.monotonic() - started)
                tasks[count] += [task["seconds"] for task in done["cluster"]["tasks"] if task["made"]]
    alone = statistics.median(times[workers[0]])
    for count in workers:
        seconds, each = statistics.median(times[count]), statistics.median(tasks[count])
        print(f"{count} workers: {seconds:.1f} s, {alone / seconds:.2f} times as fast; an environment {each:.1f} s")


def add_model(repository: Path, name: str, requirements: str) -> None:
    (repository / name / "1").mkdir(parents=True)
    for path, content in {"config.pbtxt": CONFIG, "1/model.py": CODE, "requirements.txt": requirements}.items():
        (repository / name / path).write_text(content, encoding="utf-8")


def envpack(repository: Path, cache: Path, *words: str) -> dict[str, dict[str, list[dict[str, float]]]]:
    """Build models; returns the document."""
    command = [
        sys.executable,
        "-m",
        "envpack",
        "build",
        "--repository",
        str(repository),
        "--stub",
        "never",
        "--json",
    ]
    everywhere = os.environ | {"ENVPACK_CACHE_DIR": str(cache), "PYTHONPATH": str(ROOT)}
    done = subprocess.run([*command, "--quiet", *words], env=everywhere, stdout=subprocess.PIPE, check=True)
    document: dict[str, dict[str, list[dict[str, float]]]] = json.loads(done.stdout)
    return document


if __name__ == "__main__":
    main()
