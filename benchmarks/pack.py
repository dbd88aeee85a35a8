"""Measures packing, loading and sharing an environment, in comparison with conda-pack and GNU tar.

    python benchmarks/pack.py [--rounds 5] [--loads 3] [--models] [--plot docs/images/archives.svg]

The environment has Python 3.10, NumPy, SciPy, pandas and scikit-learn. Each round runs every packer once, in its own
process; the time includes the start of Python. For load times the real server loads a model that imports all four
packages, until it is READY. conda-pack's archive is loaded twice: with the byte code that envpack compiled, as pip
does, and without any byte code.
--models places the same environment for 1 to 100 models and prints seconds and disk usage, including the first packing,
in comparison with copies of conda-pack's archive. --plot draws these figures with matplotlib.
Prints medians and minima in seconds, and ratios to conda-pack's default.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from bench.packers import Cost, packers, run

from envpack.archive.folder import place_folder
from envpack.archive.tarball import TarFormat, pack_archive, pack_with_conda_pack
from envpack.environment.store import Environment
from envpack.repository.config_editor import set_execution_environment
from envpack.requirements.model import Requirements
from envpack.server.choice import ServerSpec
from envpack.settings.table import Settings
from envpack.verification.run import verify
from tests.built import build_environment

REQUIREMENTS = ("numpy==1.26.4", "scipy==1.13.1", "pandas==2.2.3", "scikit-learn==1.5.2")
COUNTS = (1, 2, 5, 10, 20, 50, 100)
CONFIG = """backend: "python"
input [ { name: "IN", data_type: TYPE_FP32, dims: [ 4 ] } ]
output [ { name: "OUT", data_type: TYPE_FP32, dims: [ 4 ] } ]
"""


def pack_rounds(environment: Environment, folder: Path, rounds: int) -> None:
    costs: dict[str, list[Cost]] = {packer.name: [] for packer in packers(environment)}
    for number in range(rounds + 1):  # the first round fills the disk's cache and is not counted
        for packer in packers(environment):
            cost = run(packer, folder)
            if number:
                costs[packer.name].append(cost)
    base = costs["conda-pack"]
    columns = ("wall", "min", "cpu", "MB", "memory", "wall", "min", "cpu", "size")
    print(f"{'packer':34}" + "".join(f"{column:>8}" for column in columns))
    for name, found in costs.items():
        wall, cpu = median(found, "wall"), median(found, "cpu")
        least, size = min(cost.wall for cost in found), found[0].size
        quicker = (median(base, "wall") / wall, min(cost.wall for cost in base) / least, median(base, "cpu") / cpu)
        ratios = "".join(f"{ratio:7.1f}x" for ratio in quicker) + f"{size / base[0].size:8.2f}"
        memory = max(cost.memory for cost in found)
        print(f"{name:34}{wall:8.2f}{least:8.2f}{cpu:8.2f}{size:8.1f}{memory:8.0f}{ratios}")


def median(costs: list[Cost], field: str) -> float:
    return statistics.median(getattr(cost, field) for cost in costs)


def load_rounds(environment: Environment, folder: Path, rounds: int) -> None:
    model = folder / "repository/science"
    (model / "1").mkdir(parents=True)
    shutil.copy(Path(__file__).parent / "bench/models/science.py", model / "1/model.py")
    forms = placed_forms(environment, folder / "forms")
    seconds: dict[str, list[float]] = {name: [] for name in forms}
    for number in range(rounds):
        # Alternate the order: for a minute after files are removed, some file systems create files more slowly, and
        # the server removes the files that the previous load unpacked.
        for name, path in reversed(forms.items()) if number % 2 else forms.items():
            text = set_execution_environment(CONFIG, str(path), model / "config.pbtxt")
            (model / "config.pbtxt").write_text(text)
            os.sync()  # write back the files of the previous load before this one is timed
            seconds[name].append(load_seconds(model.parent))
    print(f"\n{'load to READY':34}{'median':>8}{'min':>8}{'median':>8}{'min':>8}   second pair: without byte code")
    peers = (seconds["conda-pack tar.gz"], seconds["conda-pack tar.gz, no byte code"])
    for name, found in seconds.items():
        typical, least = statistics.median(found), min(found)
        ratios = (ratio for peer in peers for ratio in (statistics.median(peer) / typical, min(peer) / least))
        print(f"{name:34}{typical:8.2f}{least:8.2f}" + "".join(f"{ratio:7.2f}x" for ratio in ratios))


def placed_forms(environment: Environment, folder: Path) -> dict[str, Path]:
    forms: tuple[TarFormat, ...] = ("tar.gz", "tar")
    pack_archive(environment, folder / "conda-pack.tar.gz", packer="conda-pack")
    place_folder(environment, folder / "dir")
    for form in forms:
        pack_archive(environment, folder / f"env.{form}", form=form)
    return {
        "conda-pack tar.gz": folder / "conda-pack.tar.gz",
        "conda-pack tar.gz, no byte code": without_byte_code(environment, folder / "without"),
        **{f"envpack {form}": folder / f"env.{form}" for form in forms},
        "envpack dir": folder / "dir",
    }


def without_byte_code(environment: Environment, prefix: Path) -> Path:
    """Pack the same environment without byte code with conda-pack."""
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(environment.prefix, prefix, symlinks=True, ignore=ignored, copy_function=os.link)
    archive = prefix.with_name("conda-pack-without.tar.gz")
    pack_with_conda_pack(prefix, archive, "tar.gz")
    return archive


def load_seconds(repository: Path) -> float:
    verdict = verify(repository, spec=ServerSpec(Settings(runtime="process")))
    (model,) = verdict.models
    if model.failure or model.load_seconds is None:
        raise SystemExit(f"the model was not loaded: {model.failure}")
    return model.load_seconds


def many_models(environment: Environment, folder: Path, plot: Path | None) -> None:
    os.environ["ENVPACK_CACHE_DIR"] = str(folder / "new-store")  # an empty store, so that nothing is packed yet
    peer_archive = folder / "conda-pack.tar.gz"
    started = time.perf_counter()
    pack_archive(environment, peer_archive, packer="conda-pack")
    methods: dict[str, Callable[[Path], object]] = {
        "envpack dir": lambda path: place_folder(environment, path),
        "envpack tar.gz": lambda path: pack_archive(environment, path),
        "conda-pack copied": lambda path: shutil.copy(peer_archive, path),
    }
    packed = {"conda-pack copied": time.perf_counter() - started}
    print(f"\n{'models':>6} " + " ".join(f"{name + ', s':>20} {'MB':>8}" for name in methods))
    seconds = {name: packed.get(name, 0.0) for name in methods}
    points: dict[str, list[tuple[float, float]]] = {name: [] for name in methods}
    for count, before in zip(COUNTS, (0, *COUNTS), strict=False):
        row = []
        for name, place in methods.items():
            root = folder / name.replace(" ", "-")
            for number in range(before, count):
                (root / f"m{number}").mkdir(parents=True)
                started = time.perf_counter()
                place(root / f"m{number}/env")
                seconds[name] += time.perf_counter() - started
            points[name].append((seconds[name], disk(environment.prefix, root)))
            row.append("{:20.2f} {:8.1f}".format(*points[name][-1]))
        print(f"{count:6} " + " ".join(row), flush=True)
    if plot:
        draw(points, plot)


def draw(points: dict[str, list[tuple[float, float]]], file: Path) -> None:
    """Draw seconds and megabytes against the number of models, on logarithmic scales."""
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
    for axis, index, label in zip(axes, (0, 1), ("seconds in all", "MB beside the store"), strict=True):
        for name, found in points.items():
            axis.plot(COUNTS, [values[index] for values in found], marker="o", label=name)
        axis.set(xscale="log", yscale="log", xlabel="models with one environment", ylabel=label)
    axes[0].legend()
    figure.savefig(file, metadata={"Date": None})


def disk(store: Path, root: Path) -> float:
    """Megabytes that a folder uses in addition to the environment in the store, with which it may share files."""
    both = subprocess.run(["du", "-sk", "--total", store, root], capture_output=True, text=True, check=True).stdout
    alone = subprocess.run(["du", "-sk", store], capture_output=True, text=True, check=True).stdout
    return (int(both.splitlines()[-1].split()[0]) - int(alone.split()[0])) / 1000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5, help="rounds of packing; 0 for none")
    parser.add_argument("--loads", type=int, default=3, help="rounds of loading; 0 for none")
    parser.add_argument("--models", action="store_true")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="draw the figures of --models; needs matplotlib")
    options = parser.parse_args()
    environment = build_environment(Requirements(pip=REQUIREMENTS), python="3.10")
    print(f"{environment.size / 1e6:.1f} MB in the store, {len(environment.packages)} packages\n", flush=True)
    # In the file system of the store, so that hard links are possible.
    with tempfile.TemporaryDirectory(prefix=".benchmark-", dir=environment.prefix.parents[1]) as folder:
        if options.rounds:
            pack_rounds(environment, Path(folder), options.rounds)
        if options.loads:
            load_rounds(environment, Path(folder), options.loads)
        if options.models:
            many_models(environment, Path(folder), options.plot)


if __name__ == "__main__":
    main()
