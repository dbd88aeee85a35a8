"""Makes an execution environment independent of its folder: records, scripts, activation and the prefix placeholder.

Files may be hard links to an installer's cache, so they are replaced, never edited in place.
"""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import json
import os
import re
from collections.abc import Sequence
from pathlib import Path

from envpack.conda.engine import PREFIX_PLACEHOLDER
from envpack.environment.inventory import PlaceholderKind
from envpack.environment.records import conda_record_files, read_conda_record, read_record_rows
from envpack.support.bounded_reading import read_bytes
from envpack.support.errors import UsageError
from envpack.support.replacement import replaced_file, write_text

_RECORD_PATHS = ("extracted_package_dir", "package_tarball_full_path")
ACTIVATE = """\
# Activates the environment that this file lies in. For bash: source it; it always succeeds.
# Servers up to 25.07 source it before they start the model; later ones do by themselves what matters of it.
_envpack_root="${BASH_SOURCE[0]:-}"
case "$_envpack_root" in
*/*) _envpack_root="${_envpack_root%/*}" ;;
*) _envpack_root="." ;;
esac
_envpack_root="$(CDPATH="" builtin cd -P -- "$_envpack_root/.." >/dev/null 2>&1 && builtin pwd -P)"
if [ -n "$_envpack_root" ]; then
    case "${PATH:-}:" in
    "$_envpack_root/bin:"*) ;;
    *) PATH="$_envpack_root/bin${PATH:+:$PATH}" ;;
    esac
    export PATH
    export CONDA_PREFIX="$_envpack_root"
    export PYTHONNOUSERSITE=1
    unset PYTHONHOME
    hash -r 2>/dev/null || true
    for _envpack_script in "$_envpack_root"/etc/conda/activate.d/*.sh; do
        if [ -r "$_envpack_script" ]; then
            builtin source "$_envpack_script" || true
        fi
    done
fi
unset _envpack_root _envpack_script
return 0 2>/dev/null || true
"""

# Disables the user's site-packages on servers that never run activate. A "home" line is left out on purpose: without it
# the environment is its own base, wherever it is moved.
PYVENV_CFG = "include-system-site-packages = false\n"
# From the placeholder to the end of its string. It also matches without a zero, so that no byte is scanned twice.
_STRINGS = re.compile(re.escape(PREFIX_PLACEHOLDER.encode()) + rb"[^\0]*(\0?)")


def relocate(prefix: Path, built_at: Sequence[Path], *, minor: str) -> None:
    """Make an environment independent of its folder: scripts find Python by ``PATH``, records name the new files."""
    changed = _rewrite_scripts(prefix / "bin", built_at, minor)
    for site in sorted(prefix.glob("lib/python3.*/site-packages")):
        for record in sorted(site.glob("*.dist-info/RECORD")):
            _forget_local_origin(record)
            _update_record(record, changed)
    for record in conda_record_files(prefix):
        _forget_cache(record)
    for leftover in ("CACHEDIR.TAG", ".lock"):
        (prefix / leftover).unlink(missing_ok=True)


def _rewrite_scripts(folder: Path, built_at: Sequence[Path], minor: str) -> set[Path]:
    changed = set()
    for script in sorted(folder.iterdir()):
        if script.is_symlink() or not script.is_file():
            continue
        with script.open("rb") as content:
            if content.read(2) != b"#!":
                continue
        before = script.read_bytes()
        after = relocatable_script(before, built_at, minor=minor)
        if after != before:
            _replace(script, after)
            changed.add(script)
    return changed


def relocatable_script(content: bytes, built_at: Sequence[Path], *, minor: str) -> bytes:
    """A script without an interpreter below ``built_at``, which long paths let ``/bin/sh`` start in two forms."""
    folders = b"|".join(re.escape(os.fsencode(folder)) for folder in built_at)
    direct = rb"#![ \t]*(?:" + folders + rb")/bin/python[\d.]*([^\n]*)\n"
    trampoline = rb"#!/bin/sh\n'''exec' ['\"]?(?:" + folders + rb")/bin/python[\d.]*['\"]?([^\n]*)\n' '''\n"
    comment = rb"#!/bin/sh\n'''exec' ['\"]?(?:" + folders + rb")/bin/python[\d.]*['\"]? \"\$0\" \"\$@\" #'''\n"
    env_line = b"#!/usr/bin/env python" + minor.encode() + b"\n"
    for pattern in (direct, trampoline, comment):
        if match := re.match(pattern, content):
            return env_line + content[match.end() :]
    return content


def _replace(file: Path, content: bytes) -> None:
    with replaced_file(file, mode=file.stat().st_mode & 0o777) as partial:
        partial.write_bytes(content)


def _forget_local_origin(record: Path) -> None:
    origin = record.with_name("direct_url.json")
    if origin.is_file() and b'"file:' in read_bytes(origin):
        origin.unlink()
        kept = [row for row in read_record_rows(record) if Path(row[0]).name != origin.name]
        _write_rows(record, kept)


def update_records(prefix: Path, changed: set[Path]) -> None:
    for record in sorted(prefix.glob("lib/python3.*/site-packages/*.dist-info/RECORD")):
        _update_record(record, changed)


def _update_record(record: Path, changed: set[Path]) -> None:
    site, rows, touched = str(record.parent.parent), [], False
    paths = {str(file) for file in changed}
    for row in read_record_rows(record):
        target = os.path.normpath(f"{site}/{row[0]}")  # text is faster than Path, and there may be a hundred thousand
        if target in paths and len(row) == 3:
            content = Path(target).read_bytes()
            digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
            rows.append([row[0], f"sha256={digest}", str(len(content))])
            touched = True
        else:
            rows.append(row)
    if touched:
        _write_rows(record, rows)


def _write_rows(record: Path, rows: list[list[str]]) -> None:
    text = io.StringIO(newline="")
    csv.writer(text, lineterminator="\n").writerows(rows)
    _replace(record, text.getvalue().encode("utf-8"))


def _forget_cache(record: Path) -> None:
    """Blank references to the package cache, from which packers would copy unmodified files."""
    metadata = read_conda_record(record)
    for key in _RECORD_PATHS:
        if key in metadata:
            metadata[key] = ""
    metadata["link"] = {"type": 1, "source": ""}
    if str(metadata.get("url", "")).startswith("file:"):
        metadata["url"] = str(metadata.get("fn", ""))
        metadata["channel"] = "local"
    with replaced_file(record) as partial:
        partial.write_text(json.dumps(metadata, indent=1, sort_keys=True), encoding="utf-8")


def write_activation(prefix: Path) -> None:
    """Write ``bin/activate`` and ``pyvenv.cfg`` into an environment, over files that packages installed there."""
    write_text(prefix / "bin" / "activate", ACTIVATE)
    write_text(prefix / "pyvenv.cfg", PYVENV_CFG)


def replace_placeholder(content: bytes, prefix: str, kind: PlaceholderKind) -> bytes:
    old, new = PREFIX_PLACEHOLDER.encode(), os.fsencode(prefix)
    if kind != "binary":
        return content.replace(old, new)
    return _STRINGS.sub(
        lambda text: text[0].replace(old, new).ljust(len(text[0]), b"\0") if text[1] else text[0], content
    )


def check_prefix(prefix: str) -> None:
    if len(os.fsencode(prefix)) > len(PREFIX_PLACEHOLDER):
        what = f"the path has more than {len(PREFIX_PLACEHOLDER)} bytes, too long for the files that must contain it"
        raise UsageError("path-too-long", what, "put the model repository into a folder with a shorter path", prefix)
