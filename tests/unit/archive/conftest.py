"""A small environment without an interpreter; real ones are in tests/environment."""

import json
import os
import tarfile
from dataclasses import dataclass
from pathlib import Path

import pytest

from envpack.environment.inventory import find_owners, take_inventory, write_inventory
from envpack.environment.relocation import write_activation
from envpack.environment.store import MANIFEST, SCHEMA, Environment, read_environment

LARGE = bytes(range(256)) * (5 << 12) + b"and a bit"  # bytes: more than two portions


@dataclass(frozen=True)
class Prefixes:
    """Makes environments in a store of its own."""

    store: Path

    def make(self, key: str, change=lambda prefix: None) -> Environment:
        """An environment of three packages; ``change`` adds what the test is about."""
        prefix = self.store / key
        for folder in ("bin", "conda-meta", "lib/empty", "lib/python3.8/site-packages/y/tests/data", "include"):
            (prefix / folder).mkdir(parents=True)
        (prefix / "bin/tool").write_text("#!/bin/sh\n")
        (prefix / "bin/tool").chmod(0o755)
        (prefix / "bin/link").symlink_to("tool")
        (prefix / "lib64").symlink_to("lib")
        (prefix / "lib/large.so").write_bytes(LARGE)
        (prefix / "lib/changed-by-pip.txt").write_text("as tested")
        (prefix / "lib/nothing").touch()
        (prefix / "lib/sp ace \u00fc.txt").write_text("a name")
        (prefix / "include/x.h").write_text("left out")
        (prefix / f"lib/{'long/' * 30}name.txt").parent.mkdir(parents=True)
        (prefix / f"lib/{'long/' * 30}name.txt").write_text("found")
        y = prefix / "lib/python3.8/site-packages/y"
        (y / "__init__.py").write_text("y = 1\n")
        (y / "tests/test_y.py").write_text("left out")
        (y / "tests/data/big").write_text("left out")
        (prefix / "conda-meta/history").touch()
        (prefix / "conda-meta/x.lock").touch()
        (prefix / "CACHEDIR.TAG").touch()
        _record(prefix, "x", ["lib/changed-by-pip.txt", "lib/large.so", "bin/tool", "bin/link", "lib64", "include/x.h"])
        _record(prefix, "y", [str(file.relative_to(prefix)) for file in y.rglob("*") if file.is_file()])
        write_activation(prefix)
        change(prefix)
        _describe(prefix, key)
        return read_environment(prefix)


def _record(prefix: Path, name: str, files: list[str]) -> None:
    record = {"name": name, "version": "1", "url": "", "files": files, "link": {"source": "", "type": 1}}
    (prefix / f"conda-meta/{name}-1-0.json").write_text(json.dumps(record))


def _describe(prefix: Path, key: str) -> None:
    entries = take_inventory(prefix, find_owners(prefix, "3.8"))
    packages = [
        {"name": name, "version": "1", "source": "conda", "license": "MIT", "url": "", "sha256": "", "size": 1}
        for name in ("x", "y")
    ]
    manifest = {
        "schema": SCHEMA, "key": key, "python": "3.8.1", "minor": "3.8", "packages": packages, "glibc": "2.17",
        "glibcxx": "3.4.29", "platform": "linux-64", "size": sum(entry.size for entry in entries),
        "content": write_inventory(prefix, entries),
        "stand_ins": 0,
    }  # fmt: skip
    (prefix / MANIFEST).write_text(json.dumps(manifest))


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("ENVPACK_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def prefixes(tmp_path, cache):
    return Prefixes(tmp_path / "store")


@pytest.fixture
def environment(prefixes):
    return prefixes.make("one")


def names_in(folder: Path) -> list[str]:
    return sorted(file.name for file in folder.iterdir())


def files_below(folder: Path) -> dict[str, tuple[str, object]]:
    """Every file, link and empty folder with its kind and content."""
    found = {}
    for path in folder.rglob("*"):
        name = str(path.relative_to(folder))
        if path.is_symlink():
            found[name] = ("link", os.readlink(path))
        elif path.is_file():
            found[name] = ("program" if os.access(path, os.X_OK) else "file", path.read_bytes())
        elif not any(path.iterdir()):
            found[name] = ("folder", None)
    return found


def members(archive: Path) -> dict[str, tarfile.TarInfo]:
    with tarfile.open(archive) as content:
        found = content.getmembers()
    assert len({member.name for member in found}) == len(found)
    return {member.name: member for member in found}


def text(archive: Path, name: str) -> str:
    with tarfile.open(archive) as content:
        return content.extractfile(name).read().decode()
