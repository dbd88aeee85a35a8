"""Byte code ahead of time: what a read-only or thrown-away environment cannot make for itself."""

from __future__ import annotations

from pathlib import Path

from envpack.environment.isolation import bare_environment
from envpack.process import run


def compile_tree(prefix: Path, folder: Path, *, minor: str) -> None:
    """Compile every module below a folder of an environment with the environment's own interpreter.

    The byte code is valid whatever the time stamps are ("unchecked hash") and holds only paths relative to the
    environment, so it is the same wherever the environment is built. Files that are no Python of this version (test
    data, templates) are left without.

    Args:
        prefix: root of the environment.
        folder: what to compile, relative to ``prefix``.
        minor: Python minor version of the environment.

    """
    if not (prefix / folder).is_dir():
        return
    program = (
        "import sys; del sys.path[0]; import compileall; compileall.main()"  # no folder of the caller's on the path
    )
    run(
        [
            *(prefix / "bin" / f"python{minor}", "-s", "-S", "-B", "-c", program, "-q", "-q", "-f", "-j", "0"),
            *("--invalidation-mode", "unchecked-hash", "-d", folder, prefix / folder),
        ],
        env=bare_environment() | {"PYTHONHASHSEED": "0"},  # the order of sets is part of byte code
    )
