"""The one place that starts programs and waits for them (servers, which live on, have their own)."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Finished:
    """A program that has ended.

    Attributes:
        returncode: exit status; negative is the number of the signal that ended it.
        stdout: what it wrote to standard output, decoded as UTF-8 with replacement characters.
        stderr: the same for standard error.
    """

    returncode: int
    stdout: str
    stderr: str

    def last_lines(self, count: int = 12) -> str:
        """The last lines of what it said (standard error first, else output), for an error message."""
        lines = (self.stderr.strip() or self.stdout.strip()).splitlines()
        return "\n".join(lines[-count:])


def run(
    command: Sequence[str | Path],
    *,
    env: Mapping[str, str],
    cwd: Path | None = None,
    timeout: float | None = None,
) -> Finished:
    """Run a program to its end with exactly the environment given, and capture what it writes.

    Args:
        command: program and arguments; never passed through a shell.
        env: the whole environment of the program. There is no default, so nothing of the caller's leaks in unseen.
        cwd: working directory, the caller's by default.
        timeout: seconds.

    Raises:
        FileNotFoundError: the program does not exist.
        subprocess.TimeoutExpired: it ran longer than ``timeout`` seconds and was killed.
    """
    done = subprocess.run(
        [str(part) for part in command],
        env=dict(env),
        cwd=cwd,
        timeout=timeout,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
    )
    return Finished(
        done.returncode,
        done.stdout.decode("utf-8", "replace"),
        done.stderr.decode("utf-8", "replace"),
    )
