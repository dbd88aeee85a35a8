"""The one place that compiles what tests run: stubs, and the C++ programs of tests/native and tests/fuzz.

    python -m tests.compiled gate       compile what the tests of a part need, with every core, instead of one test
                                        waiting for the other
    python -m tests.compiled            compile all of it

It is kept in the cache of the tests, named by the content that it was compiled from.
"""

import hashlib
import shutil
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import NamedTuple

import click
import pytest
from filelock import FileLock

from envpack.settings.pythons import SUPPORTED
from envpack.settings.releases import find_release
from envpack.settings.table import DEFAULT_RELEASE
from envpack.stub.build import BuildTree, build_stub, compile_shared
from envpack.stub.recipe import Cell, Recipe, source_digest, source_folder
from envpack.stub.target import target_from_interpreter
from envpack.stub.toolchain import find_tool, find_toolchain, header_folders
from envpack.support.errors import EnvpackError
from envpack.support.folders import cache_root
from envpack.support.processes import clean_environment
from envpack.support.progress import NoProgress
from envpack.support.replacement import replaced_folder
from tests.cache import kept_cache, use_kept_cache
from tests.newer_pythons import target_of
from tests.rings import ALL, GATE, part_of_python, part_of_sanitizer, slice_of

PROGRAMS = ("wire_tests", "stub_tests")
TREES = Path(__file__).parents[1] / "build/native-trees"


class Sanitized(NamedTuple):
    """A build of the native programs with sanitizers."""

    sanitize: str
    programs: tuple[str, ...] = ("wire_tests", "fuzz_replay")
    releases: str = "all"


# The one of the gate leaves out the epochs that differ little from others: their wires take most of the time.
SANITIZED = {
    "some epochs": Sanitized("address,undefined", ("wire_tests",), "23.04;24.06;24.10;25.04;26.03"),
    "address,undefined": Sanitized("address,undefined", ("wire_tests", "fuzz_replay", "fuzz_recovery")),
    "thread": Sanitized("thread"),
}
# The Python of the native tests.
MINOR = find_release(DEFAULT_RELEASE).python


def native_programs(target, *, toolchain="auto", programs=PROGRAMS, sanitize="", releases="all"):
    """Compile programs of tests/native for a target; returns the folder that contains them.

    They are kept by the content of their sources; they are compiled in a tree of this checkout, which stays, so that
    after a change to a source only what depends on it is compiled again.
    """
    # They run here: this machine's compiler is taken although its C library may be too new for a stub.
    tools = find_toolchain(toolchain, machine=target.machine)
    recipe = Recipe(Cell(target, toolchain=toolchain), tools, source_folder())
    key = (recipe.tools.identity, target.machine, target.include, target.library, sanitize, releases, *sorted(programs))
    kept = kept_cache() / "native" / f"native-{target.machine}-{_digest(_content(recipe.sources), *key)}"
    tree = TREES / f"{target.machine}-{_digest(*key)}"
    kept.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{kept}.lock"):
        if not kept.is_dir():
            _configure(tree, recipe, sanitize, releases)
            _compile(tree, programs)
            with replaced_folder(kept) as folder:
                for made in _made(tree, programs):
                    place = folder / made.relative_to(tree)
                    place.parent.mkdir(parents=True, exist_ok=True)
                    shutil.copy2(made, place)
    return kept / "tests/native"


def write_headers(folder, sources):
    """Write the headers that CMake makes of the stub's data, ``abi/*.h``, into a folder."""
    command = [find_tool("cmake"), "-DENVPACK_RELEASES=all", "-P", sources / "stub_src/abi/headers.cmake"]
    subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)


def _content(sources):
    """A digest of everything that the programs are compiled from."""
    folders = [sources / "tests" / name for name in ("native", "fuzz")]
    files = [file for folder in folders for file in sorted(folder.rglob("*")) if file.is_file()]
    texts = [f"{file.relative_to(sources)} {file.read_bytes().hex()}" for file in files if file.suffix != ".pyc"]
    return _digest(source_digest(sources), *texts)


def _made(tree, programs):
    """The programs, and the fake CUDA driver that some of them load."""
    files = [file for folder in ("native", "fuzz") for file in (tree / "tests" / folder).rglob("*")]
    return [file for file in files if file.name in {*programs, "libcuda.so.1"}]


def _compile(tree, programs):
    command = [find_tool("cmake"), "--build", tree, "--target", *programs]
    # The runtime of zig that the stubs are linked with, instead of another one in HOME.
    caches = {"ZIG_LOCAL_CACHE_DIR": str(tree / "zig"), "ZIG_GLOBAL_CACHE_DIR": str(cache_root() / "zig")}
    variables = clean_environment() | caches
    done = subprocess.run(command, env=variables, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]


def _configure(tree, recipe, sanitize, releases):
    definitions = {
        "ENVPACK_RELEASES": releases,
        "CMAKE_PREFIX_PATH": ";".join(map(str, header_folders(recipe.cell.target.minor))),
        "Python_INCLUDE_DIR": str(recipe.cell.target.include),
        "Python_LIBRARY": str(recipe.cell.target.library),
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
    BuildTree(tree, recipe.sources, recipe.tools).configure(definitions)


def _launcher(tools):
    """The path of ccache, if it is installed and knows the compiler."""
    return "" if tools.name == "zig" else shutil.which("ccache") or ""


def _digest(*parts):
    return hashlib.sha256("\0".join(map(str, parts)).encode()).hexdigest()[:16]


def steps(part):
    """What more than one test of a part needs: names, and what compiles it."""
    for minor in SUPPORTED:
        if part in {part_of_python(minor), ALL}:
            yield f"stub for Python {minor}", lambda minor=minor: build_stub(Cell(target_of(minor)))
    if part in {GATE, ALL}:
        yield "programs of tests/native", lambda: native_programs(target_from_interpreter(MINOR))
    for name in SANITIZED:
        if part in {part_of_sanitizer(name), ALL}:
            yield f"the same with sanitizers: {name}", partial(sanitized_programs, name)
    if part in {slice_of("portability"), ALL}:
        for machine in ("x86_64", "aarch64"):
            yield f"what all stubs share, by zig for {machine}", partial(_shared_by_zig, machine)


def sanitized_programs(name):
    """Compile a build of `SANITIZED`; returns the folder that contains its programs."""
    return native_programs(target_from_interpreter(MINOR), **SANITIZED[name]._asdict())


def _shared_by_zig(machine):
    recipe = Recipe(Cell(target_from_interpreter(MINOR)), find_toolchain("zig", machine=machine), source_folder())
    compile_shared(recipe, progress=NoProgress())


def main():
    use_kept_cache()
    for name, compile_it in steps(*sys.argv[1:] or [ALL]):
        started = time.monotonic()
        try:
            compile_it()
        except (EnvpackError, pytest.skip.Exception) as error:  # the tests that need it skip, or fail, by themselves
            click.echo(f"{name}: not compiled here: {error}")
        else:
            click.echo(f"{name}: {time.monotonic() - started:.1f} s")


if __name__ == "__main__":
    main()
