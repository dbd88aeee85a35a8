"""How long publishing takes, the first time and when nothing changed, and how much memory: the recipe `digits`.

    python benchmarks/publishing.py [--rounds 5]

Environments are those of envpack's cache, built before if they are missing. The S3 service is moto's, the registry
Debian's docker-registry, both on 127.0.0.1.
"""

import argparse
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests import registries  # noqa: E402
from tests.object_stores import BUCKET, VARIABLES, moto  # noqa: E402


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    print("|  | first | unchanged, median | slowest | memory |\n|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as temporary:
        repository = Path(temporary, "digits")
        envpack("init", str(repository), "--recipe", "digits")
        envpack("build", "--repository", str(repository), "--stub", "never")
        with moto(Path(temporary)) as address:
            measure(repository, f"s3://{address}/{BUCKET}/models", options.rounds)
        if registries.is_installed():
            with registries.registry(Path(temporary)) as host:
                measure(repository, f"oci://{host}/models:1", options.rounds)


def measure(repository: Path, url: str, rounds: int) -> None:
    """Publish again and again; prints a row."""
    first, most = envpack("publish", url, "--repository", str(repository))
    times = []
    for _ in range(rounds):
        seconds, memory = envpack("publish", url, "--repository", str(repository))
        times.append(seconds)
        most = max(most, memory)
    row = f"{first:.2f} s | {statistics.median(times):.2f} s | {max(times):.2f} s | {most} MB"
    print(f"| {url.partition(':')[0]} | {row} |", flush=True)


def envpack(*words: str) -> tuple[float, int]:
    """Run a command; returns the seconds and the megabytes that it took."""
    command = [sys.executable, "-m", "envpack.cli", *words, "--quiet"]
    started = time.monotonic()
    number = os.posix_spawn(sys.executable, command, os.environ | VARIABLES | {"PYTHONPATH": str(ROOT)})
    _, status, usage = os.wait4(number, 0)
    if status:
        sys.exit(f"{' '.join(words)} failed")
    return time.monotonic() - started, usage.ru_maxrss >> 10


if __name__ == "__main__":
    main()
