"""Configures and compiles a build tree with CMake and Ninja, and reports failures."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from envpack.stub.toolchain import OTHER_COMPILER, Toolchain, find_tool
from envpack.support.entry_locks import in_use
from envpack.support.errors import StubError
from envpack.support.failures import DISK_FULL_TEXT, disk_full
from envpack.support.folders import cache_folder
from envpack.support.installation import repair_command
from envpack.support.isolation import clean_environment
from envpack.support.processes import CompletedProcess, run

# Bytes: less than any object file of a stub.
_ROOM = 16 * 1024


@dataclass(frozen=True)
class BuildTree:
    """A folder in which CMake builds.

    Attributes:
        folder: the build folder; created if it is missing.
        sources: folder of the top ``CMakeLists.txt``.
        tools: the compiler.
        jobs: number of compilers that run at once; 0 for Ninja's default.
    """

    folder: Path
    sources: Path
    tools: Toolchain
    jobs: int = 0

    def configure(self, definitions: dict[str, str]) -> None:
        """Configure with ``-D`` options."""
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
        """Compile everything."""
        self._cmake("--build", self.folder, *(["--parallel", str(self.jobs)] if self.jobs else []))

    def install(self, prefix: Path) -> None:
        """Install the results into a folder."""
        self._cmake("--install", self.folder, "--prefix", prefix)

    def _cmake(self, *arguments: str | Path) -> None:
        # By default zig keeps its caches in HOME. The global one contains its C++ runtime, which is worth keeping.
        runtime = cache_folder("zig")
        caches = {"ZIG_LOCAL_CACHE_DIR": str(self.folder / "zig"), "ZIG_GLOBAL_CACHE_DIR": str(runtime)}
        try:
            with in_use(runtime) if self.tools.name == "zig" else contextlib.nullcontext():
                done = run([find_tool("cmake"), *arguments], env=clean_environment() | caches)
        except (FileNotFoundError, subprocess.SubprocessError) as error:
            raise StubError(
                f"CMake could not be started: {error}",
                kind="broken-install",
                hint=repair_command(),
            ) from error
        if done.returncode != 0:
            raise self._failure(done)

    def _failure(self, done: CompletedProcess) -> Exception:
        # CMake's own trials fail on a full disk with errors of other kinds.
        if DISK_FULL_TEXT in done.stdout + done.stderr or shutil.disk_usage(self.folder).free < _ROOM:
            return disk_full(self.folder)
        return StubError(
            f"the stub does not compile:\n{_first_error(done)}", kind="compile-failed", hint=OTHER_COMPILER
        )


def _first_error(done: CompletedProcess) -> str:
    lines = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()]
    found = [i for sign in ("error:", "CMake Error") for i, line in enumerate(lines) if sign in line]
    first = found[0] if found else max(0, len(lines) - 10)
    return "\n".join(lines[first : first + 10])
