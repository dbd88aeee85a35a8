"""What a run without a server can do to a model beside running it: let a debugger in, profile it, record its memory."""

from __future__ import annotations

import contextlib
import json
import socket
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from envpack.local.starting import Python
from envpack.support.errors import EnvironmentBuildError, ServerError
from envpack.support.progress import Progress
from envpack.support.temp_dirs import temp_dir

HOST = "127.0.0.1"
_VARIABLE = "ENVPACK_RUN"


def check_debug_port(port: int) -> None:
    """Check that a debugger can listen at a port of 127.0.0.1."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError as error:
            what = f"the debugger cannot listen: {error.strerror}"
            fix = "choose another port: --debug PORT"
            raise ServerError("port-taken", what, fix, f"{HOST}:{port}") from error


@dataclass(frozen=True)
class Instruments:
    """What to do to a model.

    Attributes:
        debug_port: where a debugger can connect on this machine; the model waits for one. 0 for none.
        profile: measure the time of each Python function.
        memory: record allocations with memray, if the environment has it.
        folder: for what is recorded.
    """

    folder: Path
    debug_port: int = 0
    profile: bool = False
    memory: bool = False

    @property
    def are_used(self) -> bool:
        """Whether anything is done to the model beside running it."""
        return bool(self.debug_port or self.profile or self.memory)

    @property
    def profile_file(self) -> Path:
        """Where the profile is, once the model has ended."""
        return self.folder / "profile.json"

    @property
    def memray_file(self) -> Path:
        """Where memray's records are, once the model has ended."""
        return self.folder / "memray.bin"

    def variables(self, python: Python, progress: Progress) -> Mapping[str, str]:
        """The variables of a model that runs on this Python."""
        settings: dict[str, Any] = {}
        if self.debug_port:
            check_debug_port(self.debug_port)
            settings["debug"] = [HOST, self.debug_port]
            settings["debugger"] = self._debugger(python, progress)
        if self.profile:
            settings["profile"] = str(self.profile_file)
        if self.memory:
            settings["memray"] = str(self.memray_file)
        return {_VARIABLE: json.dumps(settings)} if settings else {}

    def functions(self) -> list[dict[str, Any]]:
        """The functions that took longest, the slowest first; empty without a profile."""
        if not self.profile_file.is_file():
            return []
        found: list[dict[str, Any]] = json.loads(self.profile_file.read_text(encoding="utf-8"))
        return found

    def _debugger(self, python: Python, progress: Progress) -> str:
        """A folder that has debugpy, ``""`` if the environment has it."""
        if next(python.prefix.glob("lib/python3.*/site-packages/debugpy"), None) is not None:
            return ""
        from envpack.support.uv import run_uv

        folder = self.folder / "debugger"
        progress.begin("install debugpy")
        program = python.prefix / "bin/python3"
        ended = run_uv(["pip", "install", "--target", folder, "--python", program, "--no-deps", "debugpy"])
        if ended.returncode:
            what = "debugpy cannot be installed"
            fix = "add debugpy to the requirements of the model, or see the output"
            raise EnvironmentBuildError("debugger-missing", what, fix, str(python.prefix), details=ended.stderr)
        progress.end("ready")
        return str(folder)


@contextlib.contextmanager
def opened_instruments(*, debug_port: int = 0, profile: bool = False, memory: bool = False) -> Iterator[Instruments]:
    """Instruments that keep what they record during the block."""
    with temp_dir("run") as folder:
        yield Instruments(folder, debug_port, profile, memory)
