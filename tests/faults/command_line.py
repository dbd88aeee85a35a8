"""Runs the command line as users do, and looks at everything that it did: exit code, words, JSON, files."""

from __future__ import annotations

import hashlib
import json
import os
import stat
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Ended:
    """A command that has ended: exit code, standard output, standard error."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> dict:
        """The one JSON document on standard output."""
        return json.loads(self.out)


def variables(changes: dict[str, str | None] | None = None) -> dict[str, str]:
    """This process's environment, in which `python -m envpack` finds this checkout; None removes a variable."""
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    wanted = {**os.environ, "PYTHONPATH": path, **(changes or {})}
    return {name: value for name, value in wanted.items() if value is not None}


def command(*arguments: str | Path) -> list[str]:
    return [sys.executable, "-m", "envpack", *map(str, arguments)]


def envpack(*arguments: str | Path, changes: dict[str, str | None] | None = None, cwd: Path = Path("/")) -> Ended:
    """Run a command in a process of its own; ``changes`` are environment variables."""
    done = subprocess.run(
        command(*arguments), env=variables(changes), cwd=cwd, capture_output=True, text=True, check=False, timeout=300
    )
    return Ended(done.returncode, done.stdout, done.stderr)


def listing(folder: Path) -> dict[str, tuple[object, ...]]:
    """Every entry below a folder with its mode; links with their target, files with time and hash of the content."""
    found: dict[str, tuple[object, ...]] = {}
    for path in sorted(folder.rglob("*")):
        status = path.lstat()
        if path.is_symlink():
            content = (str(path.readlink()),)
        elif path.is_file():
            content = (status.st_mtime_ns, hashlib.sha256(path.read_bytes()).hexdigest())
        else:
            content = ()
        found[str(path.relative_to(folder))] = (stat.filemode(status.st_mode), *content)
    return found


def assert_refused(ended: Ended, code: int, kind: str, *says: str) -> None:
    """The command ended with ``code``, one line of error that contains ``says``, one fix, and the same as JSON.

    The command must have been given ``--json``.
    """
    lines = ended.err.splitlines()
    errors = [line for line in lines if line.startswith("error:")]
    fixes = [line for line in lines if line.startswith("  fix: ")]
    assert ended.code == code, ended
    assert (len(errors), len(fixes)) == (1, 1), ended.err
    assert "Traceback" not in ended.err, ended.err
    assert "\x1b" not in ended.err
    assert errors[0].endswith(f" ({kind})")
    told = ended.document
    assert set(told) == {"schema", "error"}
    assert set(told["error"]) == {"kind", "message", "where", "hint", "exit_code", "details"}
    assert (told["error"]["kind"], told["error"]["exit_code"]) == (kind, code)
    assert told["error"]["hint"] == fixes[0].removeprefix("  fix: ")
    for text in says:
        assert text in errors[0] or text in told["error"]["message"] or text in fixes[0], (text, ended.err)
