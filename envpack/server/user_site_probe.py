"""A home folder whose packages betray that Python has read them.

A model whose Python takes packages from ``~/.local`` of the user that runs the server works on one machine and not on
the next. So each server that is verified gets a home with a ``usercustomize`` for every Python: a Python that uses the
user's own packages imports it at start, and it says so.
"""

from __future__ import annotations

from pathlib import Path

_MARKER = "envpack-user-site-was-read"
_MINORS = range(6, 16)


def set_trap(home: Path) -> None:
    """Put the packages into the home folder ``home``."""
    for minor in _MINORS:
        packages = home / f".local/lib/python3.{minor}/site-packages"
        packages.mkdir(parents=True)
        (packages / "usercustomize.py").write_text(
            f"import sys\nsys.stderr.write('{_MARKER}\\n')\nsys.stderr.flush()\n", encoding="utf-8"
        )


def was_sprung(log: str) -> bool:
    """Whether a Python whose output is in ``log`` has read them."""
    return _MARKER in log
