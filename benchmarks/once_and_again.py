"""Measures what the caches and the folder format save, as ratios between two runs of envpack.

    python benchmarks/once_and_again.py [--repeat 3]

Builds the recipe's `core` model (Python 3.10, scikit-learn) with empty caches (including uv's), again, and with one
more requirement. Compiles its stub twice. Loads the model in the real server from a folder and from a tar.gz. Prints
medians in seconds, and ratios.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path


def seconds(*command: str, cwd: Path) -> float:
    started = time.perf_counter()
    subprocess.run([sys.executable, "-m", "envpack", *command, "--quiet"], cwd=cwd, check=True)
    return time.perf_counter() - started


def load_seconds(repository: Path) -> float:
    import json

    command = [sys.executable, "-m", "envpack", "verify", "core", "--json", "--quiet"]
    report = subprocess.run(command, cwd=repository, stdout=subprocess.PIPE, check=True).stdout
    return json.loads(report)["verdict"]["models"][0]["load_seconds"]


def measure(folder: Path) -> dict[str, float]:
    os.environ |= {"ENVPACK_CACHE_DIR": str(folder / "cache"), "UV_CACHE_DIR": str(folder / "uv")}
    seconds("init", "--recipe", "digits", "digits", cwd=folder)
    repository = folder / "digits"
    build = ("build", "core", "--stub", "never")
    stub = ("stub", "--python", "3.10", "--output", "core")
    durations = {"build, first": seconds(*build, cwd=repository), "build, again": seconds(*build, cwd=repository)}
    with (repository / "core/requirements.txt").open("a") as requirements:
        requirements.write("six\n")
    durations["build, one more"] = seconds(*build, cwd=repository)
    durations |= {"stub, first": seconds(*stub, cwd=repository), "stub, again": seconds(*stub, cwd=repository)}
    train = "source core/python3.10/bin/activate && python core/training/train.py >/dev/null"
    subprocess.run(["bash", "-c", train], cwd=repository, check=True)
    durations["load, folder"] = load_seconds(repository)
    durations["pack tar.gz"] = seconds(*build, "--format", "tar.gz", cwd=repository)
    durations["load, tar.gz"] = load_seconds(repository)
    return durations


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeat", type=int, default=1)
    runs = []
    for _ in range(parser.parse_args().repeat):
        with tempfile.TemporaryDirectory(prefix="envpack-benchmark-") as folder:
            runs.append(measure(Path(folder)))
    median = {name: statistics.median(run[name] for run in runs) for name in runs[0]}
    for name, value in median.items():
        print(f"{name:16} {value:8.2f} s")
    for slow, fast in (
        ("build, first", "build, again"),
        ("build, first", "build, one more"),
        ("stub, first", "stub, again"),
        ("load, tar.gz", "load, folder"),
    ):
        print(f"{slow} / {fast}: {median[slow] / median[fast]:.1f}")


if __name__ == "__main__":
    main()
