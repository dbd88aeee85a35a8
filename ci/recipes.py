"""Run each recipe as its README says: build, train, test and verify on the real server.

    python ci/recipes.py                     all recipes, and the template torch; gigabytes of packages
    python ci/recipes.py router geofence
    python ci/recipes.py --record            keep what ran in ci/recipes_ran.json, which docs/guides/recipes.md shows
    python ci/recipes.py --constraints FILE  versions of packages, as pip reads them, for example a build of PyTorch
    python ci/recipes.py --wheel-channel     conda packages made of wheels, where conda-forge cannot be reached

The commands are those of the README, unchanged. The cache of the tests keeps what is built. If a command fails, its
repository is kept, and the exit status is 1.
"""

import argparse
import contextlib
import datetime
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from envpack.repository.selection import named_models
from envpack.settings.examples import example_files
from envpack.settings.releases import find_release
from envpack.settings.table import DEFAULT_RELEASE

CHECKOUT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(CHECKOUT))

from ci.recipe_records import Ran, digest_of, record  # noqa: E402
from ci.wheel_channel import wheel_channel  # noqa: E402
from tests.cache import use_kept_cache  # noqa: E402

LARGE_TEMPLATE = "torch"  # its packages are too large for every run of CI
_COMMAND = re.compile(r"^    (\S.*)$", re.MULTILINE)


def commands_of(recipe: str) -> list[str]:
    """The commands in a recipe's README."""
    readme = (CHECKOUT / "recipes" / recipe / "README.md").read_text(encoding="utf-8")
    return [match[1] for match in _COMMAND.finditer(readme)]


def run_recipe(name: str, folder: Path, options: argparse.Namespace) -> Ran:
    """Copy a recipe, or begin a repository with a template, and run the commands."""
    if name in example_files("recipes"):
        run(folder.parent, shlex.join(["envpack", "init", "--recipe", name, str(folder)]))
        commands = commands_of(name)
    else:
        run(folder.parent, shlex.join(["envpack", "init", "--template", name, str(folder / "first")]))
        commands = [f"envpack build --python {options.python}", "envpack test", "envpack verify"]
    for file in folder.rglob("requirements.txt") if options.constraints else ():
        file.write_text(f"-c {options.constraints}\n{file.read_text(encoding='utf-8')}", encoding="utf-8")
    seconds = {}
    for command in commands:
        took = run(folder, command)
        if command.startswith("envpack "):
            seconds.setdefault(command.split()[1], round(took, 1))
    return Ran(
        date=datetime.datetime.now(datetime.UTC).date().isoformat(),
        digest=digest_of(name),
        release=DEFAULT_RELEASE,
        pythons=pythons(folder),
        megabytes=megabytes(folder),
        packages=chosen_packages(folder, options),
        seconds={word: seconds[word] for word in ("test", "verify")},
    )


def run(folder: Path, command: str) -> float:
    """Run a command as a user does; returns the seconds it took."""
    print(f"$ {command}", flush=True)
    started = time.monotonic()
    variables = os.environ | {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    subprocess.run(["bash", "-c", command], cwd=folder, env=variables, check=True)
    return time.monotonic() - started


def environments(repository: Path) -> Iterator[Path]:
    """The environments of the models, each once, also if several models share its files."""
    seen = set()
    for model in named_models(repository, ()):
        environment = model.environment
        if environment is None:
            continue
        manifest = (environment / "envpack-environment.json").read_bytes()
        if manifest not in seen:
            seen.add(manifest)
            yield environment


def manifest_of(environment: Path) -> dict[str, Any]:
    return json.loads((environment / "envpack-environment.json").read_text(encoding="utf-8"))


def pythons(repository: Path) -> list[str]:
    """The minor versions of the models."""
    found = {".".join(manifest_of(folder)["python"].split(".")[:2]) for folder in environments(repository)}
    return sorted(found, key=lambda minor: int(minor.partition(".")[2]))


def megabytes(repository: Path) -> int:
    """The size of all environments on disk."""
    files = (path for folder in environments(repository) for path in folder.rglob("*") if not path.is_symlink())
    return round(sum(path.stat().st_size for path in files if path.is_file()) / 1e6)


def chosen_packages(repository: Path, options: argparse.Namespace) -> str:
    """How the packages differ from those that a user gets."""
    found = {package["name"] for folder in environments(repository) for package in manifest_of(folder)["packages"]}
    lines = options.constraints.read_text(encoding="utf-8").split() if options.constraints else []
    notes = [line for line in lines if line.partition("==")[0] in found]
    if options.wheel_channel and any(repository.rglob("environment.yml")):
        notes.append("conda packages made of wheels")
    return ", ".join(notes)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    known = [*example_files("recipes"), LARGE_TEMPLATE]
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"{', '.join(known)}")
    parser.add_argument("--record", action="store_true")
    parser.add_argument("--constraints", type=lambda name: Path(name).resolve(strict=True))
    parser.add_argument("--python", default=find_release(DEFAULT_RELEASE).python, help="of the template")
    parser.add_argument("--wheel-channel", action="store_true")
    options = parser.parse_args()
    use_kept_cache()
    failed = []
    with wheel_channel("3.12", ("numpy", "shapely")) if options.wheel_channel else contextlib.nullcontext():
        for name in options.names or known:
            print(f"\n== {name}", flush=True)
            folder = Path(tempfile.mkdtemp(prefix=f"envpack-recipe-{name}-"))
            try:
                ran = run_recipe(name, folder / "models", options)
            except subprocess.CalledProcessError as error:
                print(f"failed: {error}; see {folder}", flush=True)
                failed.append(name)
                continue
            shutil.rmtree(folder)
            if options.record:
                record(name, ran)
    print(f"\nfailed: {', '.join(failed)}" if failed else "\nall passed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
