"""Measures how soon `envpack run` answers, and what `envpack build` of a built model and `envpack --help` take.

    python benchmarks/first_answer.py [--rounds 15]

Begins a model from the template `model`, which imports NumPy, and builds its environment. Then, in turns, runs it with
`envpack run`, from the start of the command to its end, and imports NumPy alone with the environment's Python. Prints
medians in seconds, what remains without the model's import, the ratio of the two, and the goals.
"""

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ENVPACK = (sys.executable, "-m", "envpack")


def seconds(*command: str | Path) -> float:
    started = time.perf_counter()
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - started


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    rounds = parser.parse_args().rounds
    runs, imports, builds, helps = [], [], [], []
    with tempfile.TemporaryDirectory(prefix="envpack-benchmark-") as folder:
        repository = Path(folder, "models")
        seconds(*ENVPACK, "init", "--quiet", "--template", "model", repository / "first")
        build = (*ENVPACK, "build", "--quiet", "--repository", repository)
        seconds(*build)
        (python,) = repository.glob("first/python*/bin/python3")
        run = (*ENVPACK, "run", "--quiet", "--repository", str(repository), "first")
        seconds(*run)  # the files are in memory from now on
        for _ in range(rounds):
            runs.append(seconds(*run))
            empty = seconds(python, "-c", "")
            imports.append(seconds(python, "-c", "import numpy") - empty)
            builds.append(seconds(*build))
            helps.append(seconds(*ENVPACK, "--help"))
    whole, imported = statistics.median(runs), statistics.median(imports)
    print(f"envpack run        {whole:6.3f} s, fastest {min(runs):.3f} s")
    print(f"the model's import {imported:6.3f} s")
    print(f"the rest           {whole - imported:6.3f} s (goal 0.3)")
    print(f"run / import: {whole / imported:.1f}")
    print(f"build, nothing new {statistics.median(builds):6.3f} s (goal 0.3)")
    print(f"--help             {statistics.median(helps):6.3f} s (goal 0.06)")


if __name__ == "__main__":
    main()
