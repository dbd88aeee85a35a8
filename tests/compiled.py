"""The one place that compiles what tests run: stubs, and the C++ programs of tests/native and tests/fuzz.

    python -m tests.compiled        compile all of it, with every core, instead of one test waiting for the other

It is kept in the cache of the tests. A stub is named by the content it was compiled from; the programs are compiled in
trees that stay, so that after a change to a source only what depends on it is compiled again.
"""

import hashlib
import shutil
import subprocess
import sys
import time
from functools import partial

import click
import pytest
from filelock import FileLock

from envpack.pythons import SUPPORTED
from envpack.stub import build_stub, find_toolchain, target_from_interpreter
from envpack.stub.build import compile_shared
from envpack.stub.cmake import BuildTree
from envpack.stub.recipe import Recipe, source_folder
from envpack.stub.toolchain import find_tool
from envpack.support.cache_locations import cache_root
from envpack.support.errors import EnvpackError
from envpack.support.isolation import clean_environment
from envpack.support.progress import NoProgress
from tests.cache import kept_cache, use_kept_cache
from tests.newer_pythons import target_of

PROGRAMS = ("wire_tests", "stub_tests")
SANITIZED_PROGRAMS = ("wire_tests", "fuzz_replay")
SANITIZERS = ("address,undefined", "thread")
MINOR = f"{sys.version_info.major}.{sys.version_info.minor}"


def native_programs(target, *, toolchain="auto", programs=PROGRAMS, sanitize=""):
    """Compile programs of tests/native for a target; returns the folder that contains them."""
    recipe = Recipe(target, None, find_toolchain(toolchain, machine=target.machine), source_folder())
    name = f"native-{target.machine}-{_digest(recipe.sources, recipe.tools.identity, target.include, sanitize)}"
    folder = kept_cache() / "native" / name
    folder.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{folder}.lock"):
        _configure(folder, recipe, sanitize)
        command = [find_tool("cmake"), "--build", folder, "--target", *programs]
        # The runtime of zig that the stubs are linked with, instead of another one in HOME.
        caches = {"ZIG_LOCAL_CACHE_DIR": str(folder / "zig"), "ZIG_GLOBAL_CACHE_DIR": str(cache_root() / "zig")}
        variables = clean_environment() | caches
        done = subprocess.run(command, env=variables, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return folder / "tests/native"


def _configure(folder, recipe, sanitize):
    definitions = {
        "CMAKE_PREFIX_PATH": ";".join(map(str, recipe.header_folders)),
        "Python_INCLUDE_DIR": str(recipe.target.include),
        "Python_LIBRARY": str(recipe.target.library),
        "ENVPACK_NATIVE_TESTS": "ON",
        "CMAKE_CXX_COMPILER_LAUNCHER": _launcher(recipe.tools),
    }
    if recipe.tools.name == "zig":  # which otherwise adds checks that end a program
        definitions["CMAKE_BUILD_TYPE"] = "Release"
    if sanitize:
        definitions["ENVPACK_SANITIZE"] = sanitize
        definitions |= {
            "CMAKE_BUILD_TYPE": "Debug",
            "CMAKE_CXX_FLAGS_DEBUG": "-O0",
        }  # optimising takes most of the time
    else:  # most of a stub is the same code, which is compiled for it anyway
        shared = compile_shared(recipe, cache=kept_cache() / "stubs", progress=NoProgress())
        definitions["ENVPACK_COMMON"] = str(shared)
    BuildTree(folder, recipe.sources, recipe.tools).configure(definitions)


def _launcher(tools):
    """The path of ccache, if it is installed and knows the compiler."""
    return "" if tools.name == "zig" else shutil.which("ccache") or ""


def _digest(*parts):
    return hashlib.sha256("\0".join(map(str, parts)).encode()).hexdigest()[:16]


def steps():
    """Everything that more than one test needs: names, and what compiles it."""
    for minor in SUPPORTED:
        yield f"stub for Python {minor}", lambda minor=minor: build_stub(target_of(minor))
    yield "programs of tests/native", lambda: native_programs(target_from_interpreter(MINOR))
    for sanitize in SANITIZERS:
        yield f"the same with sanitizers: {sanitize}", partial(_sanitized, sanitize)
    for machine in ("x86_64", "aarch64"):
        yield f"what all stubs share, by zig for {machine}", partial(_shared_by_zig, machine)


def _sanitized(sanitize):
    native_programs(target_from_interpreter(MINOR), programs=SANITIZED_PROGRAMS, sanitize=sanitize)


def _shared_by_zig(machine):
    recipe = Recipe(target_from_interpreter(MINOR), None, find_toolchain("zig", machine=machine), source_folder())
    compile_shared(recipe, progress=NoProgress())


def main():
    use_kept_cache()
    for name, compile_it in steps():
        started = time.monotonic()
        try:
            compile_it()
        except (EnvpackError, pytest.skip.Exception) as error:  # the tests that need it skip, or fail, by themselves
            click.echo(f"{name}: not compiled here: {error}")
        else:
            click.echo(f"{name}: {time.monotonic() - started:.1f} s")


if __name__ == "__main__":
    main()
