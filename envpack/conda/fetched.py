"""Interpreters that uv fetches into the cache, verified by uv's hashes: ``pythons/3.10/cpython-3.10.13-…``.

uv installs to the final place, because it writes that place into files of the installation. The file `_RECORD` comes
after it, in one step; an installation without it was interrupted, is never used, and is made again.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from envpack.conda.probe import Facts, ProbeMemory
from envpack.support.bounded_reading import parse_json, read_json
from envpack.support.entry_locks import being_made, mark_used
from envpack.support.errors import storage_errors
from envpack.support.folders import cache_folder, real_path
from envpack.support.processes import CompletedProcess
from envpack.support.progress import Progress
from envpack.support.replacement import write_text
from envpack.support.text import one_line
from envpack.support.uv import run_uv

_RECORD = "envpack-python.json"
_FORBIDDING = ("never", "manual")  # values of UV_PYTHON_DOWNLOADS; `manual` is for the user's own uv only
_VERSION = re.compile(r"\d{1,9}\.\d{1,9}\.\d{1,9}")  # a final release


class FetchError(Exception):
    """An interpreter could not be fetched."""

    def __init__(self, reason: str, details: str = "", remedy: str = "") -> None:
        super().__init__(reason)
        self.reason = reason  # one line, without secrets
        self.details = details  # the output of uv
        self.remedy = remedy  # what the user can do about the reason, "" if nothing more than about any failure


@dataclass(frozen=True)
class _Download:
    """An interpreter that uv can install: uv's name for it, its version, and the address of the archive."""

    key: str
    version: str
    url: str


def fetched_root() -> Path:
    return cache_folder("pythons")


def fetched_folders() -> Iterator[Path]:
    try:
        entries = sorted(fetched_root().iterdir())
    except OSError:  # no cache yet, or another user's
        return
    for entry in entries:
        if installation := _installation(entry):
            yield installation / "bin"


def mark_fetched_used(executable: Path) -> None:
    """Record the use of an interpreter if it is one of the cache."""
    root = real_path(fetched_root())
    if executable.is_relative_to(root):
        mark_used(root / executable.relative_to(root).parts[0])


def fetching_forbidden() -> FetchError | None:
    setting = os.environ.get("UV_PYTHON_DOWNLOADS", "").lower()
    if setting not in _FORBIDDING:
        return None
    return FetchError(f"UV_PYTHON_DOWNLOADS={setting} forbids it", remedy="unset UV_PYTHON_DOWNLOADS")


def fetch_python(minor: str, why: str, progress: Progress) -> None:
    """Let uv install an interpreter into the cache, unless it is there. One process does it, others wait for it."""
    if forbidden := fetching_forbidden():
        raise forbidden
    entry = fetched_root() / minor
    with storage_errors(entry), being_made(entry, lambda: progress.detail("wait for another process that fetches it")):
        if _works(entry, minor):
            return
        progress.begin(f"fetch Python {minor}: {why}")
        try:
            every = _listed(f"cpython@{minor}")
            if not every:
                raise FetchError(f"uv knows no Python {minor} for this machine")
            download = every[-1]
            _install(download, entry)
        except FetchError:
            progress.end("not fetched")
            raise
        progress.end(f"Python {download.version} from {urlsplit(download.url).hostname or download.url}")


def fetchable(seconds: float | None = None) -> Mapping[str, str]:
    """The minor versions of Python in uv's list for this machine, each with the address of its archive."""
    if forbidden := fetching_forbidden():
        raise forbidden
    try:
        every = _listed("cpython", seconds)
    except subprocess.TimeoutExpired as error:
        raise FetchError(f"no list of interpreters within {seconds:g} s") from error
    return {download.version.rpartition(".")[0]: download.url for download in every}


def _listed(request: str, seconds: float | None = None) -> list[_Download]:
    """The final releases that uv knows for this machine, in order: no debug build, none without the GIL."""
    words = ("list", request, "--only-downloads", "--all-versions", "--output-format", "json")
    listed = _run(*words, seconds=seconds)
    if listed.returncode != 0:
        raise _failed(listed)
    try:
        every = [_Download(str(entry["key"]), str(entry["version"]), str(entry["url"])) for entry in _fitting(listed)]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise FetchError("uv's list of interpreters cannot be read", listed.stdout) from error
    return sorted(every, key=lambda download: [int(part) for part in download.version.split(".")])


def _fitting(listed: CompletedProcess) -> Iterator[dict[str, Any]]:
    for entry in parse_json(listed.stdout):
        usual = (entry["implementation"], entry["variant"], entry["libc"]) == ("cpython", "default", "gnu")
        if usual and _VERSION.fullmatch(entry["version"]):
            yield entry


def _install(download: _Download, entry: Path) -> None:
    # What a killed process has left is replaced as a whole. If its uv still runs, this one waits for it.
    again = ["--reinstall"] if (entry / download.key).exists() else []
    completed = _run("install", download.key, "--install-dir", entry, "--no-bin", *again)
    if completed.returncode != 0:
        raise completed.refused_by_system(entry) or _failed(completed)
    _check(entry / download.key, download)
    write_text(entry / _RECORD, json.dumps({"schema": 1, "installation": download.key}))


def _check(installation: Path, download: _Download) -> None:
    """Refuse an installation that is not what was asked for, or that no stub can embed."""
    facts = _facts(installation, download.version.rpartition(".")[0])
    missing = "the interpreter does not start" if facts is None else _missing(facts, download)
    if missing:
        raise FetchError(f"{download.url}: {missing}")


def _works(entry: Path, minor: str) -> bool:
    """Whether the entry is complete and nobody has removed files from it since."""
    installation = _installation(entry)
    facts = _facts(installation, minor) if installation else None
    return facts is not None and bool(facts["library"])


def _facts(installation: Path, minor: str) -> Facts | None:
    return ProbeMemory().facts(real_path(installation / "bin" / f"python{minor}"))


def _missing(facts: Facts, download: _Download) -> str:
    if (facts["version"], facts["implementation"], facts["release"]) != (download.version, "cpython", True):
        return f"it is {facts['implementation']} {facts['version']}, not Python {download.version}"
    if facts["free_threaded"]:
        return "it is free-threaded"
    if not facts["library"]:
        return "it has no shared library"
    return "" if (Path(facts["include"]) / "Python.h").is_file() else "it has no headers"


def _installation(entry: Path) -> Path | None:
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        installation = entry / str(read_json(entry / _RECORD)["installation"])
        if installation.is_dir():
            return installation
    return None


def _run(*arguments: str | Path, seconds: float | None = None) -> CompletedProcess:
    # uv keeps lists of downloads for a while, also those that name what cannot be had.
    fresh = [] if os.environ.get("UV_OFFLINE") else ["--no-cache"]
    return run_uv(["python", *arguments, *fresh], timeout=seconds, may_fetch_python=True)


def _failed(completed: CompletedProcess) -> FetchError:
    """The error for a failed run: what failed, where, and the last cause, which is the system's or the server's."""
    lines = [line.strip() for line in completed.last_lines(40).splitlines() if line.strip()]
    start = next((number for number, line in enumerate(lines) if line.startswith("error:")), 0)
    parts = [line.removeprefix("error:").removeprefix("cause:").strip() for line in lines[start:]]
    if any("Hash mismatch" in part for part in parts):
        parts = [part for part in parts if "Hash mismatch" in part]
    between = [part for part in parts[1:-1] if "://" in part] or parts[1:-1]  # uv counts its retries first
    chosen = [*parts[:1], *between[:1], *parts[1:][-1:]]
    offline = any("connectivity is disabled" in part for part in parts)
    return FetchError(one_line("; ".join(chosen)), completed.stderr, "unset UV_OFFLINE" if offline else "")
