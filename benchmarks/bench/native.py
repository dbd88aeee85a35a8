"""Times a stub without a server: stub_clock.cc acts as the server, with the peer of the native tests."""

from __future__ import annotations

import hashlib
import os
import subprocess
from pathlib import Path

from bench.preparation import PYTHON, Preparation
from envpack.server.launch import find_server
from envpack.stub.recipe import source_folder
from envpack.stub.target import target_from_prefix
from envpack.stub.toolchain import find_tool, header_folders
from envpack.support.folders import cache_root
from envpack.support.processes import clean_environment

PROGRAM = "stub_clock"
_SPAWN = 'source "$0/bin/activate" && LD_LIBRARY_PATH=$0/lib:$LD_LIBRARY_PATH exec "$@"'  # as the server does


def build(preparation: Preparation) -> Path:
    """Compile the program unless its sources are unchanged; returns its path."""
    sources = source_folder()
    # CMake rejects a build folder of another checkout.
    folder = cache_root() / "benchmarks" / hashlib.sha256(str(sources).encode()).hexdigest()[:16]
    target = target_from_prefix(preparation.environment)
    configure = [
        str(find_tool("cmake")), "-S", str(sources), "-B", str(folder), "-GNinja",
        f"-DCMAKE_MAKE_PROGRAM={find_tool('ninja')}",
        f"-DCMAKE_PREFIX_PATH={';'.join(map(str, header_folders(target.minor)))}",
        f"-DPython_INCLUDE_DIR={target.include}",
        f"-DPython_LIBRARY={target.library}",
        "-DENVPACK_NATIVE_TESTS=ON",
        "-DCMAKE_BUILD_TYPE=Release",
    ]  # fmt: skip
    for command in (configure, [str(find_tool("cmake")), "--build", str(folder), "--target", PROGRAM]):
        subprocess.run(command, env=clean_environment(), stdout=subprocess.DEVNULL, check=True)
    return folder / "tests/native" / PROGRAM


def clock(program: Path, preparation: Preparation, stub: Path, model: Path) -> tuple[float, float]:
    """Seconds to a stub's first message and to its response to initialize; `build` returns the program."""
    server = find_server()
    own = {"LD_LIBRARY_PATH": server.library_path, "HOME": os.devnull}
    arguments = [program, stub, model, server.backends / "python"]
    command = ["bash", "-c", _SPAWN, preparation.environment, *arguments]
    done = subprocess.run(
        command,
        env={**clean_environment(), **own},
        stdout=subprocess.PIPE,
        check=True,
        text=True,
        timeout=120,
    )
    announced, initialized = map(float, done.stdout.split())
    return announced, initialized


def release_stub() -> Path:
    return find_server().stubs[PYTHON]
