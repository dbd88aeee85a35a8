"""Keys: the names under which caches and stores keep locks, environments and stubs.

A key that changes makes every cache and every store work for nothing. What changes with each commit or with an upgrade
of another package (envpack's version, the sources of the stub, the headers) is fixed here.
"""

import contextlib
import hashlib

import envpack
from envpack.conda.settings import CondaSettings
from envpack.lock.lockfile import Lock, digest_requirements, lock_key
from envpack.lock.resolve import LockOptions, lock_memory
from envpack.requirements.format import read_requirements
from envpack.requirements.model import CondaPackage, PipPackage
from envpack.requirements.target import Target
from envpack.settings.releases import find_release
from envpack.stub import recipe
from envpack.stub.target import StubTarget
from envpack.stub.toolchain import Toolchain
from tests.golden.json_text import json_text
from tests.golden.requirement_files import CASES, write_case

_CHANNELS = ("https://channel.example/conda",)
_TARGET = Target("linux-64", "3.10", "2.35", "12.6")
_FIXED_VERSION = "1.2.3"
_OTHERS = {
    "another Python": {"target": Target("linux-64", "3.12", "2.35", "12.6")},
    "another platform": {"target": Target("linux-aarch64", "3.10", "2.35", "12.6")},
    "another release": {"target": Target("linux-64", "3.10", "2.39", "13.0")},
    "without CUDA": {"target": Target("linux-64", "3.10", "2.35")},
    "two channels": {"channels": ("conda-forge", *_CHANNELS)},
    "sources": {"sources": ("b", "a")},
    "every source": {"sources": (":all:",)},
}


def texts(place):
    """Keys of locks and environments, by requirement file and by option; keys of stubs, by what they are for."""
    assert len(CASES) >= 20
    files = {name: _keys(write_case(name, place.folder / "case")) for name in CASES}
    file = write_case("requirements.txt", place.folder / "case")
    options = {name: _keys(file, **other) for name, other in _OTHERS.items()}
    return {
        "locks-and-environments.json": json_text({"requirement files": files, "requirements.txt, with": options}),
        "stubs.json": json_text(_stub_keys(place.folder)),
    }


def _keys(file, *, target=_TARGET, channels=_CHANNELS, **options):
    """All names that follow from one requirement file."""
    asked = read_requirements(file, platform=target.platform, python=target.python, glibc=target.glibc)
    how = LockOptions(channels=channels, settings=CondaSettings(), cache=file.parent, **options)
    digest = digest_requirements(asked, channels)
    lock = Lock(target, channels, *_packages(asked), digest)
    return {
        "digest of the requirements": digest,
        "lock in a store": lock_key(asked, target, how.channels, how.sources),
        "lock in the cache": lock_memory(asked, target, how).name,
        "environment": lock.environment_key(strip=False),
        "stripped environment": lock.environment_key(strip=True),
    }


def _packages(asked):
    """The packages of a lock; for requirements to be resolved, one package each, with a digest of its name."""
    conda = tuple(
        CondaPackage(name=name, version="1", build="0", subdir="noarch", url=f"https://x/{name}", sha256=_sha256(name))
        for name in asked.conda
    )
    wheels = tuple(PipPackage(name, "1", f"https://x/{name}", _sha256(name)) for name in asked.pip)
    return asked.locked_conda or conda, asked.locked_pip or wheels


def _sha256(text):
    return hashlib.sha256(text.encode()).hexdigest()


def _stub_keys(folder):
    with _fixed_inputs(folder):
        releases = {"every release": (), "24.10": ("24.10",), "25.08 and 23.04": ("25.08", "23.04")}
        return {
            f"Python {minor} on {machine}, {name}": _keys_of_stub(
                _target(folder, minor, machine), tuple(map(find_release, names)), folder
            )
            for minor, machine in (("3.8", "x86_64"), ("3.14", "x86_64"), ("3.10", "aarch64"))
            for name, names in releases.items()
        }


def _keys_of_stub(target, releases, sources):
    tools = Toolchain("system", ("c++",), "g++ 1.2.3", target.machine)
    made = recipe.Recipe(recipe.Cell(target, releases), tools, sources)
    return {
        "identifier": made.identifier,
        "stub in the cache": made.entry,
        "shared parts in the cache": made.common_entry,
        "stub in a store": recipe.Cell(target, releases).key,
        "stub by zig for glibc 2.31 in a store": recipe.Cell(target, releases, "zig", "2.31").key,
    }


def _target(folder, minor, machine):
    include = folder / f"include/python{minor}"
    include.mkdir(parents=True, exist_ok=True)
    (include / "pyconfig.h").write_text(f"#define MINOR {minor}\n")
    return StubTarget(minor, machine, include, folder / f"lib/libpython{minor}.so.1.0")


@contextlib.contextmanager
def _fixed_inputs(folder):
    """The version, the sources and the headers that decide a key, as if they never changed."""
    (folder / "stub_src").mkdir()
    (folder / "stub_src/main.cc").write_text("int main() { return 0; }\n")
    (folder / "CMakeLists.txt").write_text("project(stub)\n")
    (folder / "envpack").mkdir()
    (folder / "envpack/releases.toml").write_text("[releases]\n")
    for name, version in (("boost", recipe.BOOST_VERSION), ("pybind11", recipe.PYBIND11_VERSION)):
        (folder / name / version).parent.mkdir(parents=True)
        (folder / name / version).write_text(f"#define {name.upper()}_VERSION 1\n")
    fixed = {
        "source_folder": lambda: folder,
        "boost_folder": lambda: folder / "boost",
        "pybind11_folder": lambda _: folder / "pybind11",
    }
    before, version = {name: getattr(recipe, name) for name in fixed}, envpack.__version__
    vars(recipe).update(fixed)
    envpack.__version__ = _FIXED_VERSION
    try:
        yield
    finally:
        vars(recipe).update(before)
        envpack.__version__ = version
