"""A small execution environment whose bytes are the same on every machine; nothing in it runs."""

import json

from envpack.environment.inventory import find_owners, take_inventory, write_inventory
from envpack.environment.relocation import write_activation
from envpack.environment.store import MANIFEST, SCHEMA, read_environment

KEY = "0123456789abcdef" * 2
FILES = {
    "bin/tool": b"#!/bin/sh\n",
    "lib/large.so": bytes(range(256)) * 1024 + b"and a bit",
    "lib/nothing": b"",
    "lib/sp ace \u00fc.txt": b"a name",
    f"lib/{'long/' * 30}name.txt": b"found",
    "lib/python3.10/site-packages/y/__init__.py": b"y = 1\n",
    "lib/python3.10/site-packages/y/tests/test_y.py": b"left out\n",
    "include/x.h": b"left out\n",
}
_OWNERS = {"x": ("bin/tool", "bin/link", "lib/large.so", "include/x.h"), "y": tuple(p for p in FILES if "/y/" in p)}


def make_environment(prefix):
    """Write the environment and read it as one of the store."""
    for path, content in FILES.items():
        (prefix / path).parent.mkdir(parents=True, exist_ok=True)
        (prefix / path).write_bytes(content)
    (prefix / "bin/tool").chmod(0o755)
    (prefix / "bin/link").symlink_to("tool")
    (prefix / "lib64").symlink_to("lib")
    (prefix / "lib/empty").mkdir()
    (prefix / "conda-meta").mkdir()
    for name, files in _OWNERS.items():
        record = {"name": name, "version": "1", "url": "", "files": files, "link": {"source": "", "type": 1}}
        (prefix / f"conda-meta/{name}-1-0.json").write_text(json.dumps(record))
    write_activation(prefix)
    (prefix / MANIFEST).write_text(json.dumps(_manifest(prefix)))
    return read_environment(prefix)


def _manifest(prefix):
    entries = take_inventory(prefix, find_owners(prefix, "3.10"))
    about = {"source": "conda", "license": "MIT", "url": "", "sha256": "", "size": 1}
    return {
        "schema": SCHEMA,
        "key": KEY,
        "python": "3.10.13",
        "minor": "3.10",
        "packages": [{"name": name, "version": "1", **about} for name in _OWNERS],
        "glibc": "2.17",
        "glibcxx": "3.4.29",
        "platform": "linux-64",
        "size": sum(entry.size for entry in entries),
        "content": write_inventory(prefix, entries),
        "stand_ins": 0,
    }
