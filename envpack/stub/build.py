"""Compiles a stub once for each combination of sources, Python, releases and compiler."""

from __future__ import annotations

import contextlib
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import envpack
from envpack.settings.pythons import pybind11_for
from envpack.settings.table import ToolchainName
from envpack.stub.inspection import StubFacts, inspect_stub
from envpack.stub.prebuilt import find_prebuilt, prebuilt_pythons
from envpack.stub.recipe import Cell, Recipe, ensure_entry, is_intact
from envpack.stub.target import StubTarget
from envpack.stub.toolchain import (
    OTHER_COMPILER,
    Toolchain,
    check_glibc,
    find_tool,
    find_toolchain,
    header_folders,
    old_cmake,
)
from envpack.support.elf import version_key
from envpack.support.entry_locks import in_use, kept
from envpack.support.errors import StorageError, StubError, UsageError, disk_full, scarce_folder
from envpack.support.folders import cache_folder
from envpack.support.installation import repair_command
from envpack.support.placed_files import STUB_NAME
from envpack.support.platforms import this_machine
from envpack.support.processes import CompletedProcess, clean_environment, run
from envpack.support.progress import SILENT, Progress

# Bytes: less than any object file of a stub.
_ROOM = 16 * 1024
# Characters that CMake reads as something else in some of its files.
_NOT_FOR_CMAKE = re.compile(r"""[;"\\\[\]<>\n]|\$[({]""")
# Libraries of a C++ runtime. An environment may contain older ones than the stub was compiled with.
_RUNTIMES = ("libstdc++.so", "libgcc_s.so", "libc++.so", "libc++abi.so", "libunwind.so")


@dataclass(frozen=True)
class BuildTree:
    """A folder in which CMake builds; created if it is missing."""

    folder: Path
    sources: Path  # folder of the top CMakeLists.txt
    tools: Toolchain
    jobs: int = 0  # compilers that run at once; 0 for Ninja's default

    def configure(self, definitions: dict[str, str]) -> None:
        own = {
            "CMAKE_MAKE_PROGRAM": str(find_tool("ninja")),
            "CMAKE_CXX_COMPILER": ";".join(self.tools.compiler),
            # With a system name CMake cross-compiles: it never runs what it compiled.
            "CMAKE_SYSTEM_NAME": "Linux",
            "CMAKE_SYSTEM_PROCESSOR": self.tools.machine,
        }
        options = [f"-D{name}={value}" for name, value in (own | definitions).items()]
        self._cmake("-S", self.sources, "-B", self.folder, "-GNinja", *options)

    def build(self) -> None:
        try:
            self._cmake("--build", self.folder, *(["--parallel", str(self.jobs)] if self.jobs else []))
        except StorageError as error:
            if error.kind != "system-limit" or self.jobs == 1:
                raise
            # As many compilers as a host has cores need more memory than a container may have; one may fit.
            self._cmake("--build", self.folder, "--parallel", "1")

    def install(self, prefix: Path) -> None:
        self._cmake("--install", self.folder, "--prefix", prefix)

    def _cmake(self, *arguments: str | Path) -> None:
        # By default zig keeps its caches in HOME. The global one contains its C++ runtime, which is worth keeping.
        runtime = cache_folder("zig")
        caches = {"ZIG_LOCAL_CACHE_DIR": str(self.folder / "zig"), "ZIG_GLOBAL_CACHE_DIR": str(runtime)}
        try:
            with in_use(runtime) if self.tools.name == "zig" else contextlib.nullcontext():
                done = run([find_tool("cmake"), *arguments], env=clean_environment() | caches)
        except (FileNotFoundError, subprocess.SubprocessError) as error:
            raise StubError("broken-install", f"CMake could not be started: {error}", repair_command()) from error
        if done.returncode != 0:
            raise self._failure(done)

    def _failure(self, done: CompletedProcess) -> Exception:
        storage = self.folder if self.folder.exists() else self.folder.parent
        # CMake's own trials fail on a full disk with errors of other kinds.
        if refused := done.refused_by_system(storage):
            return refused
        if shutil.disk_usage(scarce := scarce_folder(storage)).free < _ROOM:
            return disk_full(scarce)
        if old := _OLD_CMAKE.search(done.stderr):
            return old_cmake(find_tool("cmake"), old[1])
        return StubError("compile-failed", f"the stub does not compile:\n{_first_error(done)}", OTHER_COMPILER)


_OLD_CMAKE = re.compile(r"CMake \S+ or higher is required\.\s+You are running version (\d+(?:\.\d+)*)")


def _first_error(done: CompletedProcess) -> str:
    lines = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()]
    found = [i for sign in ("error:", "CMake Error") for i, line in enumerate(lines) if sign in line]
    first = found[0] if found else max(0, len(lines) - 10)
    return "\n".join(lines[first : first + 10])


@dataclass(frozen=True)
class Stub:
    """A compiled stub.

    Attributes:
        path: the executable in the cache; copy it, do not move it.
        facts: the facts in the file.
        fresh: whether this call compiled it.
        seconds: duration of this call.
    """

    path: Path
    facts: StubFacts
    fresh: bool
    seconds: float


def build_stub(cell: Cell, *, cache: Path | None = None, jobs: int = 0, progress: Progress = SILENT) -> Stub:
    """Compile a stub, or use the one in ``triton-envpack-stubs`` or the cache.

    The parts that are the same for every Python are compiled once, and cached as well.

    Args:
        cell: the Python to embed, and how.
        cache: folder of compiled stubs, by default the user's cache.
        jobs: number of compilers that run at once; 0 for one per core.
        progress: receives the steps.

    Raises:
        UsageError: the compiler does not support the target or the glibc.
        StubError: no compiler, or it fails (the compiler's first error is in the message), or the compiled
            stub does not meet its specification.
        StorageError: the cache cannot be written to, or the disk is full.
    """
    started = time.monotonic()
    releases = f"Triton {', '.join(cell.release_names)}" if cell.releases else "every Triton"
    progress.begin(f"stub for Python {cell.target.minor}, {releases}")
    check_glibc(cell.glibc)
    prebuilt = find_prebuilt(cell, cache or stub_cache(), progress)
    if prebuilt is not None:
        progress.end("prebuilt")
        return Stub(prebuilt, inspect_stub(prebuilt), fresh=False, seconds=time.monotonic() - started)
    stub = build_from_recipe(cell.recipe(), cache=cache, jobs=jobs, progress=progress)
    progress.end(f"compiled in {stub.seconds:.1f} s" if stub.fresh else "up to date")
    return stub


def check_compiling(minor: str, machine: str, toolchain: ToolchainName) -> None:
    """Raise what `build_stub` would for a compiler, headers or paths that do not fit; for use before other work."""
    if toolchain != "auto" or minor not in prebuilt_pythons(machine):
        tools = find_toolchain(toolchain, machine=machine)
        _check_paths(stub_cache(), *tools.compiler[:1], *header_folders(minor))


def _check_paths(*paths: Path | str) -> None:
    """Raise a StubError for a path that CMake does not take as it is."""
    for path in paths:
        if found := _NOT_FOR_CMAKE.search(str(path)):
            what = f"the path contains {found[0]!r}, and CMake compiles nothing with such a path"
            fix = "use another path; ENVPACK_CACHE_DIR=FOLDER moves the cache"
            raise StubError("bad-path", what, fix, str(path))


def find_stub(cell: Cell) -> Stub | None:
    """The stub that needs no compiling, also one that `keep_stub` has put into the cache; ``None`` if there is none."""
    found = find_prebuilt(cell, stub_cache(), SILENT) or _compiled_here(cell)
    if found is None and is_intact(_shared(cell)):
        found = _shared(cell) / STUB_NAME
    return None if found is None else Stub(found, inspect_stub(found), fresh=False, seconds=0.0)


def _compiled_here(cell: Cell) -> Path | None:
    try:
        return cached_stub(cell.recipe())
    except (StubError, UsageError):  # no compiler here, or not its headers
        return None


def _shared(cell: Cell) -> Path:
    return stub_cache() / f"shared-{cell.key}"


def keep_stub(cell: Cell, fill: Callable[[Path], None], progress: Progress) -> Stub:
    """Put a stub that another machine compiled into the cache, unless it is there."""
    started = time.monotonic()
    target, folder = cell.target, _shared(cell)

    def made(into: Path) -> None:
        file = into / STUB_NAME
        fill(file)
        facts = inspect_stub(file)
        if (facts.python, facts.machine) != (target.minor, target.machine):
            what = f"this stub is for Python {facts.python} on {facts.machine}, not {target.minor} on {target.machine}"
            raise StubError("wrong-stub", what, "build one with `envpack stub`", str(file))
        file.chmod(0o755)

    ensure_entry(folder, made, progress)
    path = folder / STUB_NAME
    return Stub(path, inspect_stub(path), fresh=False, seconds=time.monotonic() - started)


def build_from_recipe(recipe: Recipe, *, cache: Path | None = None, jobs: int = 0, progress: Progress = SILENT) -> Stub:
    started = time.monotonic()
    build = _StubBuild(recipe, cache or stub_cache(), jobs, progress)
    folder = build.cache / recipe.entry
    fresh = ensure_entry(folder, build.compile_stub, build.progress)
    return Stub(folder / STUB_NAME, inspect_stub(folder / STUB_NAME), fresh, time.monotonic() - started)


def compile_shared(recipe: Recipe, *, cache: Path | None = None, jobs: int = 0, progress: Progress) -> Path:
    """The folder with the parts of a stub that are the same for every Python; compiles them if the cache lacks them."""
    return _StubBuild(recipe, cache or stub_cache(), jobs, progress).shared_parts()


def cached_stub(recipe: Recipe) -> Path | None:
    """The stub in the cache; ``None`` if it is missing or damaged."""
    folder = stub_cache() / recipe.entry
    return folder / STUB_NAME if is_intact(folder) else None


def stub_cache() -> Path:
    return cache_folder("stubs")


@dataclass(frozen=True)
class _StubBuild:
    recipe: Recipe
    cache: Path
    jobs: int
    progress: Progress

    def compile_stub(self, into: Path) -> None:
        target = self.recipe.cell.target
        with kept(self.shared_parts, lambda folder: folder) as common:
            self.progress.detail(f"compile the part for Python {target.minor}")
            tree = self._configured_tree(
                into / "build",
                ENVPACK_COMMON=str(common),
                ENVPACK_VERSION=envpack.__version__,
                ENVPACK_PYBIND11=pybind11_for(target.minor).version,
                ENVPACK_MULTIARCH_INCLUDE=str(target.multiarch_include or ""),
                Python_INCLUDE_DIR=str(target.include),
                Python_LIBRARY=str(target.library),
            )
            tree.build()
        made = tree.folder / "stub_src" / STUB_NAME
        check_compiled_stub(made, self.recipe.cell, self.recipe.tools)
        made.chmod(0o755)
        made.rename(into / STUB_NAME)
        shutil.rmtree(tree.folder)

    def shared_parts(self) -> Path:
        common = self.cache / self.recipe.common_entry
        if ensure_entry(common, self._compile_common, self.progress):
            self.progress.detail("compiled the part that all Pythons share")
        return common

    def _compile_common(self, into: Path) -> None:
        self.progress.detail(f"compile with {self.recipe.tools.identity}")
        tree = self._configured_tree(into / "build", ENVPACK_ONLY_COMMON="ON")
        tree.build()
        tree.install(into)
        shutil.rmtree(tree.folder)

    def _configured_tree(self, folder: Path, **definitions: str) -> BuildTree:
        sources, tools, target = self.recipe.sources, self.recipe.tools, self.recipe.cell.target
        headers = header_folders(target.minor)
        _check_paths(folder, sources, tools.compiler[0], *headers, target.include, target.library)
        tree = BuildTree(folder, sources, tools, self.jobs)
        common = {
            "CMAKE_PREFIX_PATH": ";".join(map(str, headers)),
            "ENVPACK_RELEASES": self.recipe.cell.cmake_releases or "all",
        }
        tree.configure(common | definitions)
        return tree


def check_compiled_stub(made: Path, cell: Cell, tools: Toolchain) -> None:
    """Check the facts of a stub that was just compiled, and start it if it is for this machine."""
    if wrong := [*_mismatches(inspect_stub(made), cell, tools), *_failures(made, cell.target)]:
        what = f"the compiled stub is unusable: {'; '.join(wrong)}"
        raise StubError("compile-failed", what, OTHER_COMPILER, str(made))


def _mismatches(facts: StubFacts, cell: Cell, tools: Toolchain) -> Iterator[str]:
    target = cell.target
    if facts.machine != target.machine:
        yield f"it is for {facts.machine}, not for {target.machine}"
    if facts.python != target.minor:
        yield f"it is for Python {facts.python}, not for {target.minor}"
    unknown = [release.name for release in cell.releases if release.stub_abi not in facts.epochs]
    if unknown:
        yield f"it does not support Triton {', '.join(unknown)}"
    if tools.glibc and version_key(facts.glibc) > version_key(tools.glibc):
        yield f"it requires glibc {facts.glibc}, newer than {tools.glibc}"
    yield from (f"it requires {library}" for library in facts.needs if library.startswith(_RUNTIMES))


def _failures(made: Path, target: StubTarget) -> Iterator[str]:
    if target.machine != this_machine():
        return
    # The server's trial run: without arguments and without any library path it must exit with status 1.
    status = run([made], env={}).returncode
    if status != 1:
        yield f"it exits with status {status}; the server expects 1"
