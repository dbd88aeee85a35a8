"""Starts the stub of a model's process, as a server does for an execution environment."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from envpack.local.output import Output
from envpack.support.errors import ServerError

_LAST_WITH_ACTIVATE = 2507  # later servers start stubs without the environment's activate


@dataclass(frozen=True)
class Python:
    """What a model's process runs on.

    Attributes:
        stub: our stub for this Python.
        prefix: folder of the Python, with ``bin`` and ``lib``.
        is_environment: whether that is an execution environment, not the machine's Python.
    """

    stub: Path
    prefix: Path
    is_environment: bool = True


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
        raise ServerError(
            "stub-failed",
            f"the stub cannot be started: {error.strerror}",
            "set ENVPACK_CACHE_DIR to a folder whose programs can be run",
            str(python.stub),
        ) from error
    finally:
        os.close(output.write_end)


def _command_line(python: Python, release: int, argument: str) -> list[str]:
    """What starts the stub: itself or, as a server does it, a shell that activates the environment before."""
    activate = python.prefix / "bin/activate"
    if release > _LAST_WITH_ACTIVATE or not python.is_environment or not activate.is_file():
        return [str(python.stub), argument]
    return ["bash", "-c", 'source "$0" && exec "$1" "$2"', str(activate), str(python.stub), argument]


def _environment(python: Python, variables: Mapping[str, str]) -> dict[str, str]:
    """The variables of a process, as a server sets them for an execution environment."""
    found = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME")}
    found.pop("VIRTUAL_ENV", None)
    libraries = found.get("LD_LIBRARY_PATH", "")
    found["LD_LIBRARY_PATH"] = f"{python.prefix}/lib:{libraries}" if libraries else f"{python.prefix}/lib"
    found["PATH"] = f"{python.prefix}/bin:{found.get('PATH', os.defpath)}"
    found["PYTHONNOUSERSITE"] = "1"
    return {**found, **variables}
