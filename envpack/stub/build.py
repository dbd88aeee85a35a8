"""Compile a stub, once for each combination of sources, Python, release and tools."""

from __future__ import annotations

import hashlib
import json
import platform
import shutil
import subprocess
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import envpack
from envpack.atomic import replaced_file
from envpack.environment.disk import storage_errors
from envpack.environment.isolation import clean_environment
from envpack.errors import StubError
from envpack.locations import cache_root
from envpack.process import Finished, run
from envpack.progress import Progress, Silent
from envpack.releases import Release
from envpack.stub.acceptance import accept_stub
from envpack.stub.inspection import StubFacts, inspect_stub
from envpack.stub.source import source_digest, source_folder
from envpack.stub.target import StubTarget
from envpack.stub.toolchain import (
    OTHER_COMPILER,
    Toolchain,
    ToolchainName,
    find_tool,
    find_toolchain,
    required_package_folder,
)

# None stands for every release that the sources know.
Releases = Sequence[Release] | None

STUB_NAME = "triton_python_backend_stub"
_PACKAGES = {"pybind11": "pybind11", "libboost_headers": "libboost-headers"}


@dataclass(frozen=True)
class Stub:
    """A compiled stub.

    Attributes:
        path: the executable, in the cache; copy it, do not move it.
        facts: what was read from the file.
        fresh: whether this call compiled it.
        seconds: how long this call took.
    """

    path: Path
    facts: StubFacts
    fresh: bool
    seconds: float


def build_stub(
    target: StubTarget,
    releases: Releases = None,
    *,
    toolchain: ToolchainName = "auto",
    glibc: str = "",
    cache: Path | None = None,
    progress: Progress | None = None,
) -> Stub:
    """Compile the stub for one Python, or take it from the cache.

    Args:
        target: the Python to embed.
        releases: the Triton releases to talk to, ``None`` for every one that the sources know.
        toolchain: which compiler.
        glibc: the oldest glibc that the stub must run with; only zig can choose.
        cache: folder of compiled stubs, by default the user's cache.
        progress: told about the steps.

    Raises:
        UsageError: the compiler cannot do what is asked.
        StubError: no compiler, or it fails (the compiler's first error is in the message), or what it made is not
            what was asked for.
    """
    from filelock import FileLock

    started = time.monotonic()
    progress = progress or Silent()
    progress.begin(f"stub for Python {target.minor}, {_described(releases)}")
    tools, sources = find_toolchain(toolchain, glibc=glibc), source_folder()
    folder = (cache or cache_root() / "stubs") / _key(target, releases, tools, sources)
    binary = folder / STUB_NAME
    with storage_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        with FileLock(folder / "lock"):
            fresh = not _is_intact(binary)
            if fresh:
                _compile(binary, target, releases, tools, sources, progress)
    facts = inspect_stub(binary)
    seconds = time.monotonic() - started
    progress.end(f"compiled in {seconds:.1f} s" if fresh else "up to date")
    return Stub(binary, facts, fresh, seconds)


def _described(releases: Releases) -> str:
    return "every Triton" if releases is None else f"Triton {', '.join(release.name for release in releases)}"


def _chosen(releases: Releases) -> str:
    """The releases as CMake is told."""
    return "all" if releases is None else ";".join(sorted(release.name for release in releases))


def _key(target: StubTarget, releases: Releases, tools: Toolchain, sources: Path) -> str:
    """Name of the cache entry: everything that decides what comes out.

    The Python counts by its minor version and its own configuration header, since that is all the stub sees of it.
    """
    parts = [
        envpack.__version__,
        source_digest(sources),
        target.minor,
        hashlib.sha256((target.include / "pyconfig.h").read_bytes()).hexdigest(),
        _chosen(releases),
        tools.identity,
        *(str(required_package_folder(name, wheel).stat().st_mtime_ns) for name, wheel in _PACKAGES.items()),
    ]
    digest = hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]
    return f"cp{target.minor.replace('.', '')}-{_chosen(releases).replace(';', '-')}-{platform.machine()}-{digest}"


def _checksum_file(binary: Path) -> Path:
    return binary.with_name("sha256")


def _is_intact(binary: Path) -> bool:
    try:
        expected = _checksum_file(binary).read_text(encoding="ascii")
        return hashlib.sha256(binary.read_bytes()).hexdigest() == expected
    except OSError:
        return False


def _compile(
    binary: Path, target: StubTarget, releases: Releases, tools: Toolchain, sources: Path, progress: Progress
) -> None:
    with tempfile.TemporaryDirectory(prefix="envpack-stub-") as scratch:
        build = Path(scratch)
        progress.detail(f"configure with {tools.identity}")
        _step([find_tool("cmake"), "-S", sources, "-B", build, *_definitions(target, releases, tools)], build)
        progress.detail("compile")
        _step([find_tool("cmake"), "--build", build], build)
        made = build / "stub_src" / STUB_NAME
        accept_stub(made, target, releases, tools)
        with replaced_file(binary, mode=0o755) as temporary:
            shutil.copyfile(made, temporary)
        with replaced_file(_checksum_file(binary)) as temporary:
            temporary.write_text(hashlib.sha256(binary.read_bytes()).hexdigest(), encoding="ascii")


def _definitions(target: StubTarget, releases: Releases, tools: Toolchain) -> list[str]:
    prefixes = ";".join(str(required_package_folder(name, wheel)) for name, wheel in _PACKAGES.items())
    return [
        "-GNinja",
        f"-DCMAKE_MAKE_PROGRAM={find_tool('ninja')}",
        f"-DCMAKE_PREFIX_PATH={prefixes}",
        f"-DCMAKE_CXX_COMPILER={';'.join(tools.compiler)}",
        f"-DPython_EXECUTABLE={target.executable}",
        f"-DPython_INCLUDE_DIR={target.include}",
        f"-DPython_LIBRARY={target.library}",
        f"-DENVPACK_RELEASES={_chosen(releases)}",
        f"-DENVPACK_VERSION={envpack.__version__}",
    ]


def _step(command: list[str | Path], build: Path) -> None:
    try:
        done = run(command, env=_environment(build))
    except (FileNotFoundError, subprocess.SubprocessError) as error:
        raise StubError(
            f"{Path(command[0]).name} could not be started: {error}",
            kind="broken-install",
            hint=f"pip install --force-reinstall {Path(command[0]).name}",
        ) from error
    if done.returncode != 0:
        raise StubError(f"the stub does not compile:\n{_first_error(done)}", kind="compile-failed", hint=OTHER_COMPILER)


def _environment(build: Path) -> dict[str, str]:
    # zig keeps its caches in HOME unless told otherwise; the global one holds its C++ runtime, worth keeping.
    zig = {"ZIG_LOCAL_CACHE_DIR": str(build / "zig"), "ZIG_GLOBAL_CACHE_DIR": str(cache_root() / "zig")}
    return clean_environment() | zig


def _first_error(done: Finished) -> str:
    lines = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()]
    found = [i for sign in ("error:", "CMake Error") for i, line in enumerate(lines) if sign in line]
    first = found[0] if found else max(0, len(lines) - 10)
    return "\n".join(lines[first : first + 10])
