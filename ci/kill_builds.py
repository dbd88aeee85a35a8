"""Kill `envpack build` at random moments, and check after each kill that everything is old or new.

    .venv/bin/python ci/kill_builds.py --times 100 [--seed 1] [--source prefix]

Builds alternate between two sets of requirements and all formats, from the requirements or from a virtual environment
that has them, with a cache whose parts are removed at random. After each kill, the environment in config.pbtxt and all
environments in the store verify file by file, and the virtual environments are unchanged. In the end, complete builds
succeed and leave no incomplete files. The packages come from an index on 127.0.0.1.
"""

import argparse
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from uv import find_uv_bin

CHECKOUT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(CHECKOUT))

from envpack.archive.inspection import inspect_environment  # noqa: E402
from envpack.conda.choice import interpreter_here  # noqa: E402
from envpack.environment.inventory import Entry, find_owners, read_inventory, take_inventory  # noqa: E402
from envpack.environment.prefix_copy import UNKNOWN  # noqa: E402
from envpack.environment.store import Environment, read_environment  # noqa: E402
from envpack.settings.releases import find_release  # noqa: E402
from envpack.settings.table import DEFAULT_RELEASE  # noqa: E402
from envpack.workflow.python_choice import usable_pythons  # noqa: E402
from tests.web import serve  # noqa: E402
from tests.wheels import make_wheel, write_index  # noqa: E402

FORMATS = ("dir", "tar.gz", "tar")
VERSIONS = ("1.0", "2.0")
SOURCES = ("requirements", "prefix")
CONFIG = 'name: "m"\nbackend: "python"\n# a comment of mine\n'
VALUE = f"VALUE = {'x' * 2000!r}\n"


@dataclass(frozen=True)
class Order:
    """One build: the version of the packages, their source, and the format."""

    version: str
    source: str
    format: str

    def __str__(self) -> str:
        return f"{self.format} of {self.source} {self.version}"


class BuildSandbox:
    """A model, virtual environments with two versions of its packages, and a private cache."""

    def __init__(self, folder: Path, index: str, python: str) -> None:
        self.model = folder / "repository/m"
        self.cache = folder / "cache"
        self.temporary = folder / "temporary"
        self.temporary.mkdir()
        (self.model / "1").mkdir(parents=True)
        (self.model / "1/model.py").write_text("class TritonPythonModel:\n    pass\n")
        (self.model / "config.pbtxt").write_text(CONFIG)
        self.variables = {
            "PATH": "/usr/bin:/bin", "HOME": os.environ["HOME"], "UV_DEFAULT_INDEX": index,
            "UV_CACHE_DIR": str(folder / "uv"), "ENVPACK_CACHE_DIR": str(self.cache), "TMPDIR": str(self.temporary),
        }  # fmt: skip
        self.variables |= {name: os.environ[name] for name in ("PYENV_ROOT",) if name in os.environ}
        self.python = python
        self.prefixes = {version: folder / f"venv-{version}" for version in VERSIONS}
        self.untouched = {}

    def make_prefixes(self, executable: Path) -> None:
        """Make the virtual environments, and record their files."""
        for version, root in self.prefixes.items():
            for arguments in (
                ("venv", "--quiet", "--python", executable, root),
                ("pip", "install", "--quiet", "--python", root / "bin/python", *needs(version)),
            ):
                subprocess.run([find_uv_bin(), *arguments], env=self.variables, check=True)
            self.untouched[version] = snapshot(root)

    def command(self, order: Order) -> list[str]:
        (self.model / "requirements.txt").write_text("\n".join(needs(order.version)))
        build = [sys.executable, "-m", "envpack", "build", "m", "--python", self.python, "--format", order.format]
        if order.source == "prefix":
            build += ["--from-prefix", str(self.prefixes[order.version])]
        return [*build, "--stub", "never", "--quiet", "--repository", str(self.model.parent)]

    def start(self, order: Order) -> "subprocess.Popen[str]":
        return subprocess.Popen(
            self.command(order), env=self.variables, cwd=CHECKOUT, stderr=subprocess.PIPE, text=True,
            start_new_session=True,
        )  # fmt: skip

    def build(self, order: Order) -> None:
        child = self.start(order)
        errors = child.communicate()[1]
        assert child.returncode == 0, errors

    def prune(self) -> None:
        """Remove what killed builds left of entries that no later build makes; the entries stay."""
        prune = [sys.executable, "-m", "envpack", "cache", "prune", "--days", "1", "--quiet"]
        subprocess.run(prune, env=self.variables, cwd=CHECKOUT, check=True)

    def remove_from_cache(self, chance: random.Random) -> None:
        """Remove parts of the cache, so that the next build makes them again."""
        kinds = ["environments", "archives", "bytecode", "solutions", "channel", "conda-packages", "prefixes"]
        for kind in chance.sample(kinds, chance.randrange(1, 4)):
            shutil.rmtree(self.cache / kind, ignore_errors=True)

    def check(self) -> str:
        """Check config.pbtxt, the store and the virtual environments; returns the environment in config.pbtxt.

        Raises:
            AssertionError: something is neither old nor new.
        """
        config = (self.model / "config.pbtxt").read_text()
        assert "# a comment of mine" in config, config
        named = config.partition("$$TRITON_MODEL_DIRECTORY/")[2].partition('"')[0]
        if named:
            found = inspect_environment(self.model / named)
            assert not found.findings, (named, found.findings[:3])
            assert found.verified > 1000, found.verified
        for folder in (self.cache / "environments").glob("[!.]*"):
            self.check_environment(folder)
        for version, seen in self.untouched.items():
            assert snapshot(self.prefixes[version]) == seen, f"the virtual environment {version} was changed"
        return named

    def check_environment(self, folder: Path) -> None:
        environment = read_environment(folder)
        assert isinstance(environment, Environment), f"{folder} is not an environment"
        recorded, found = read_inventory(folder), take_inventory(folder, find_owners(folder, environment.minor))
        if any(
            entry.package == UNKNOWN for entry in recorded
        ):  # from a prefix: owners are not derived from files alone
            recorded, found = contents(recorded), contents(found)
        assert recorded == found, folder

    def age_temporary_files(self) -> None:
        """Set the files of killed builds in the temporary folder to a day ago; younger ones may be in use."""
        for path in self.temporary.iterdir():
            os.utime(path, (time.time() - 86400,) * 2)

    def leftovers(self) -> list[str]:
        kept = [path for kind in ("environments", "archives") for path in (self.cache / kind).rglob(".*")]
        partial = [path for path in (*self.model.glob(".*"), *kept) if "partial" in path.name]
        return [str(path) for path in (*partial, *self.temporary.iterdir())]


def needs(version: str) -> tuple[str, ...]:
    return f"numpy=={version}", f"bulk=={version}"


def contents(entries: tuple[Entry, ...]) -> tuple[tuple[str, str, str, str], ...]:
    return tuple((entry.path, entry.kind, entry.sha256, entry.target) for entry in entries)


def snapshot(root: Path) -> dict[str, tuple[int, int]]:
    """The inode and the change time of each file."""
    return {str(file): (file.lstat().st_ino, file.lstat().st_ctime_ns) for file in sorted(root.rglob("*"))}


def fill_index(root: Path) -> None:
    for version in VERSIONS:
        modules = {f"bulk/module_{number}.py": VALUE for number in range(200)}
        make_wheel(root / "files", "bulk", version, {"bulk/__init__.py": "", **modules})
        make_wheel(root / "files", "numpy", version, {"numpy/__init__.py": f"__version__ = {version!r}\n"})
    write_index(root)


def kill_once(sandbox: BuildSandbox, order: Order, chance: random.Random, longest: float) -> str:
    """Start a build and kill it at a random moment; returns the outcome."""
    sandbox.remove_from_cache(chance)
    child = sandbox.start(order)
    time.sleep(longest * chance.random() ** 2)  # most builds make only a part again
    done = child.poll() is not None
    # Only envpack is killed, as by the kernel when memory is short: its child processes must end too.
    child.send_signal(signal.SIGKILL)
    errors = child.communicate()[1]
    wait_for_session(child.pid)
    assert not done or child.returncode == 0, errors
    return f"{order} {'ended before' if done else 'killed'}"


def wait_for_session(number: int) -> None:
    """Wait until all processes of a build have ended; until then they may write to its temporary files."""
    end = time.monotonic() + 60
    while any(session_of(process) == number for process in Path("/proc").glob("[0-9]*")):
        assert time.monotonic() < end, "a process of a killed build goes on"
        time.sleep(0.02)


def session_of(process: Path) -> int:
    """The session of a process in /proc; 0 if it has ended, or is about to."""
    try:
        state, _, _, session = (process / "stat").read_text().rpartition(")")[2].split()[:4]
    except OSError:
        return 0
    return 0 if state == "Z" else int(session)


def kill_many(sandbox: BuildSandbox, sources: tuple[str, ...], times: int, seed: int) -> None:
    print(f"seed {seed}", flush=True)
    chance = random.Random(seed)
    start = time.monotonic()
    sandbox.build(Order("1.0", sources[0], "dir"))
    longest = 1.1 * (time.monotonic() - start)
    kills = faster = 0
    while kills < times:
        order = Order(chance.choice(VERSIONS), chance.choice(sources), chance.choice(FORMATS))
        outcome = kill_once(sandbox, order, chance, longest)
        kills, faster = kills + outcome.endswith("killed"), faster + outcome.endswith("before")
        print(f"{kills}: {outcome}; config.pbtxt names {sandbox.check()}", flush=True)
    sandbox.age_temporary_files()
    for version, archive_format in (("1.0", "tar.gz"), ("2.0", "tar"), ("1.0", "dir")):
        for source in sources:
            sandbox.build(Order(version, source, archive_format))
            sandbox.check()
    sandbox.prune()
    assert sandbox.leftovers() == [], sandbox.leftovers()
    print(f"{kills} kills and {faster} builds that were faster: always old or new")


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("--times", type=int, default=100)
    options.add_argument("--seed", type=int, default=random.randrange(10**6))
    options.add_argument("--source", choices=SOURCES, help="source of the builds, both by default")
    arguments = options.parse_args()
    glibc = find_release(DEFAULT_RELEASE).glibc
    minors = sorted(usable_pythons("system", glibc))
    python = interpreter_here(minors[0], glibc=glibc) if minors else None
    if not python:
        sys.exit("error: there is no Python with a shared library on this machine")
    sources = (arguments.source,) if arguments.source else SOURCES
    with tempfile.TemporaryDirectory() as folder:
        fill_index(Path(folder) / "index")
        with serve(Path(folder) / "index") as site:
            sandbox = BuildSandbox(Path(folder), site.url("/simple"), python.minor)
            if "prefix" in sources:
                sandbox.make_prefixes(python.executable)
            kill_many(sandbox, sources, arguments.times, arguments.seed)


if __name__ == "__main__":
    main()
