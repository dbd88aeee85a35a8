"""What a model is started from, its stub, as a server starts it, and what its process prints.

A debugger can be let in, and the run be profiled or its memory be recorded.
"""

from __future__ import annotations

import codecs
import contextlib
import dataclasses
import json
import os
import shutil
import socket
import subprocess
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from envpack.repository.config import ModelConfig
from envpack.support.errors import EnvironmentBuildError, ServerError
from envpack.support.processes import is_no_program
from envpack.support.progress import Progress
from envpack.support.temp_dirs import temp_dir
from envpack.support.text import printable

_CHUNK = 64 << 10
_KEPT = 64 << 10  # bytes
_END_SECONDS = 1.0  # in which what a process has written before its end arrives


class Output:
    """Takes what a process writes to `write_end`, which its starter closes, and passes it on to another descriptor."""

    def __init__(self, target: int) -> None:
        self._target = target
        self._is_terminal = os.isatty(target)
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._tail = b""
        # A program that writes to a terminal does not hold lines back, and may ask questions (breakpoint()).
        self._read_end, self.write_end = os.openpty() if self._is_terminal else os.pipe()
        self._thread = threading.Thread(target=self._forward, name="output", daemon=True)
        self._thread.start()

    def end(self) -> str:
        """Wait for what has been written when the process has ended; returns the last 64 KiB of it.

        A process that the model has started may hold the descriptor for any time: it is not waited for.
        """
        self._thread.join(_END_SECONDS)
        return self._tail.decode("utf-8", "replace")

    def _forward(self) -> None:
        with contextlib.suppress(OSError):  # a terminal's other end is closed, or the target has no reader
            while chunk := os.read(self._read_end, _CHUNK):  # no limit: the end of the process ends it
                self._tail = (self._tail + chunk)[-_KEPT:]
                shown = self._shown(chunk)
                while shown:
                    shown = shown[os.write(self._target, shown) :]
        os.close(self._read_end)

    def _shown(self, chunk: bytes) -> bytes:
        if not self._is_terminal:
            return chunk
        lines = self._decoder.decode(chunk).replace("\r\n", "\n")
        return printable(lines).encode()


_LAST_WITH_ACTIVATE = 2507  # later servers start stubs without the environment's activate


@dataclass(frozen=True)
class Python:
    """What a model's process runs on."""

    stub: Path  # our stub for this Python
    prefix: Path  # folder of the Python, with bin and lib


def start_stub(
    python: Python, release: int, socket: int, variables: Mapping[str, str], *, stdout: int, output: Output
) -> subprocess.Popen[bytes]:
    """Start the stub with its end of the connection. What goes to a terminal or to standard error goes through us."""
    try:
        return subprocess.Popen(
            _command_line(python, release, f"--local={socket}"),
            env=_environment(python, variables),
            pass_fds=[socket],
            stdout=output.write_end if os.isatty(stdout) else stdout,
            stderr=output.write_end,
        )
    except OSError as error:
        if not is_no_program(error):
            raise
        what = f"the stub cannot be started: {error.strerror}"
        fix = "set ENVPACK_CACHE_DIR to a folder whose programs can be run"
        raise ServerError("stub-failed", what, fix, str(python.stub)) from error
    finally:
        os.close(output.write_end)


def _command_line(python: Python, release: int, argument: str) -> list[str]:
    """What starts the stub: itself or, as a server does it, a shell that activates the environment before."""
    activate = python.prefix / "bin/activate"
    if release > _LAST_WITH_ACTIVATE or not activate.is_file():
        return [str(python.stub), argument]
    bash = shutil.which("bash") or "/bin/bash"  # a user may have a PATH without it, and a server has one of its own
    return [bash, "-c", 'source "$0" && exec "$1" "$2"', str(activate), str(python.stub), argument]


def _environment(python: Python, variables: Mapping[str, str]) -> dict[str, str]:
    found = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME")}
    found.pop("VIRTUAL_ENV", None)
    libraries = found.get("LD_LIBRARY_PATH", "")
    found["LD_LIBRARY_PATH"] = f"{python.prefix}/lib:{libraries}" if libraries else f"{python.prefix}/lib"
    found["PATH"] = f"{python.prefix}/bin:{found.get('PATH', os.defpath)}"
    found["PYTHONNOUSERSITE"] = "1"
    return {**found, **variables}


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModelSource:
    """What to load."""

    name: str
    folder: Path
    version: str
    config: ModelConfig  # the content of its config.pbtxt
    python: Python  # what it runs on
    # Variables that it gets beside those of all models.
    variables: Mapping[str, str] = dataclasses.field(default_factory=dict)

    @property
    def file(self) -> Path:
        """The file that holds its class."""
        return self.folder / self.version / (self.config.default_model_filename or "model.py")


HOST = "127.0.0.1"
_VARIABLE = "ENVPACK_RUN"


def check_debug_port(port: int) -> None:
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
    """What to do to a model."""

    folder: Path  # for what is recorded
    debug_port: int = 0  # where a debugger can connect on this machine; the model waits for one. 0 for none
    profile: bool = False  # measure the time of each Python function
    memory: bool = False  # record allocations with memray, if the environment has it

    @property
    def are_used(self) -> bool:
        return bool(self.debug_port or self.profile or self.memory)

    @property
    def profile_file(self) -> Path:
        return self.folder / "profile.json"

    @property
    def memray_file(self) -> Path:
        return self.folder / "memray.bin"

    def variables(self, python: Python, progress: Progress) -> Mapping[str, str]:
        settings: dict[str, Any] = {}
        if self.debug_port:
            check_debug_port(self.debug_port)
            settings["debug"] = [HOST, self.debug_port]
            settings["debugger"] = self._debugger(python, progress)
            claim = self.folder / "claim"
            claim.touch()
            settings["claim"] = str(claim)
        if self.profile:
            settings["profile"] = str(self.profile_file)
        if self.memory:
            settings["memray"] = str(self.memray_file)
        return {_VARIABLE: json.dumps(settings)} if settings else {}

    def functions(self) -> list[dict[str, Any]]:
        if not self.profile_file.is_file():
            return []
        found: list[dict[str, Any]] = json.loads(self.profile_file.read_text(encoding="utf-8"))
        return found

    def _debugger(self, python: Python, progress: Progress) -> str:
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
            failed = EnvironmentBuildError("debugger-missing", what, fix, str(python.prefix), details=ended.stderr)
            raise ended.refused_by_system(folder) or failed
        progress.end("ready")
        return str(folder)


@contextlib.contextmanager
def opened_instruments(*, debug_port: int = 0, profile: bool = False, memory: bool = False) -> Iterator[Instruments]:
    """Instruments that keep what they record during the block."""
    with temp_dir("run") as folder:
        yield Instruments(folder, debug_port, profile, memory)
