"""A repository of one model whose lock names an environment that the cache has, so that nothing is installed."""

import hashlib
import json
from dataclasses import replace
from pathlib import Path

import pytest

from envpack.environment.store import MANIFEST, read_environment
from envpack.lock.lockfile import Lock, digest_requirements, write_lock
from envpack.repository.model import open_model
from envpack.requirements.model import CondaPackage, PipPackage
from envpack.settings.project import open_project
from envpack.settings.table import Settings
from envpack.stub.build import Stub
from envpack.stub.inspection import inspect_stub
from envpack.support.placed_files import STUB_NAME
from envpack.workflow.build import build_model
from envpack.workflow.requests import lock_request
from tests.steps import Steps
from tests.unit.archive.conftest import Prefixes
from tests.unit.stub.elf_files import write_library, write_stub

CONFIG = 'backend: "python"\ninput { name: "X" data_type: TYPE_FP32 dims: [1] }\n'
CHANNEL = "https://channel.example/conda"


class Machine:
    """A repository with the model m, and a cache."""

    def __init__(self, folder):
        self.repository, self.cache, self.steps = folder / "models", folder / "cache", Steps()
        (self.repository / "m/1").mkdir(parents=True)
        (self.repository / "m/1/model.py").touch()
        (self.repository / "m/config.pbtxt").write_text(CONFIG)
        (self.repository / "m/requirements.txt").write_text("numpy\n")
        (self.repository / "envpack.toml").write_text(f'channels = ["{CHANNEL}"]\n')

    @property
    def project(self):
        return open_project(self.repository)

    @property
    def folder(self):
        return self.repository / "m"

    def request(self, **options):
        return lock_request(self.project.saying(Settings(**options)), open_model(self.folder))[0]

    def lock(self, numpy="1.26.4", **options):
        """A lock for what the model requires."""
        request = self.request(**options)
        python = CondaPackage(
            name="python",
            version=f"{request.target.python}.1",
            build="0",
            subdir="linux-64",
            url=f"{CHANNEL}/linux-64/python.conda",
            sha256="1" * 64,
        )
        sha256 = hashlib.sha256(numpy.encode()).hexdigest()
        wheel = PipPackage("numpy", numpy, f"https://files.example/numpy-{numpy}-py3-none-any.whl", sha256, 1)
        digest = digest_requirements(request.requirements, request.channels)
        return Lock(request.target, (CHANNEL,), (python,), (wheel,), digest)

    def write_lock(self, lock=None):
        write_lock(lock or self.lock(), self.folder / "envpack.lock")

    def install(self, lock=None, *, strip=False):
        """Put the environment of a lock into the cache."""
        lock = lock or self.lock()
        key, minor = lock.environment_key(strip=strip), lock.target.python

        def python(prefix):
            write_library(prefix / f"lib/libpython{minor}.so.1.0")
            for name in ("Python.h", "pyconfig.h"):
                (prefix / f"include/python{minor}").mkdir(exist_ok=True)
                (prefix / f"include/python{minor}" / name).touch()

        prefix = Prefixes(self.cache / "environments").make(key, python).prefix
        document = json.loads((prefix / MANIFEST).read_text())
        packages = [
            {**document["packages"][0], "name": package.name, "version": package.version, "url": package.url}
            for package in (*lock.conda, *lock.pip)
        ]
        document |= {"packages": packages, "python": lock.conda[0].version, "minor": minor}
        (prefix / MANIFEST).write_text(json.dumps(document))
        return read_environment(prefix)


@pytest.fixture
def machine(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("ENVPACK_CACHE_DIR", str(tmp_path / "cache"))
    return Machine(tmp_path)


def other_target(lock, **changes):
    """A lock that was resolved for another target."""
    return replace(lock, target=replace(lock.target, **changes))


def names(folder):
    """What lies in a folder."""
    return sorted(path.name for path in Path(folder).iterdir())


@pytest.fixture
def ready(machine):
    """A machine whose cache has the environment of the model's lock."""
    machine.write_lock()
    machine.install()
    return machine


@pytest.fixture
def stubs(ready, monkeypatch, tmp_path):
    """Compiles nothing: notes for what a stub is wanted, and gives one."""
    asked = []

    def stub_for(cell, *, progress, store):
        asked.append((cell.target.minor, cell.releases, cell.toolchain))
        return kept(cell)

    def kept(cell):
        path = write_stub(tmp_path / f"stub-{cell.toolchain}" / STUB_NAME, cell.target.minor)
        return Stub(path, inspect_stub(path), fresh=True, seconds=1)

    monkeypatch.setattr("envpack.workflow.build.stub_for", stub_for)
    monkeypatch.setattr("envpack.workflow.plan.find_stub", kept)
    return asked


def build(machine, **options):
    return build_model(machine.project.saying(Settings(**options)), "m", machine.steps)
