"""``uv.lock``, which uv itself writes out as a ``pylock.toml``: without the project, and without its default groups."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from envpack.requirements.format import Source, reads
from envpack.requirements.formats.pylock import select_wheels
from envpack.requirements.formats.pyproject import read_selection
from envpack.requirements.location import read_text
from envpack.requirements.model import Requirements
from envpack.support.tables import parse_toml, quote
from envpack.support.temp_dirs import temp_dir


@reads("uv.lock", order=12)
def read_uv_lock(source: Source) -> Requirements:
    """`uv.lock`

    Read: what `uv export` writes as a `pylock.toml` without the project and its default groups; extras and groups as
    `[tool.envpack]` in the `pyproject.toml` beside it selects them

    Refused: as in `pylock.toml`, and a lock without its `pyproject.toml`
    """
    from envpack.support.uv import run_uv

    location, path, project = source.location, source.path, source.project.path
    if not project.is_file():
        raise location.error(
            "is read together with the pyproject.toml of its project, which is not beside it",
            hint="run uv export --no-emit-project --format pylock.toml --output-file pylock.toml there, and name that",
        )
    extras, groups = read_selection(source.project)
    with temp_dir("uv-lock") as folder:
        pylock = folder / "pylock.toml"
        completed = run_uv(  # not offline: uv downloads wheels whose index names no hashes, such as PyTorch's
            [
                *("export", "--project", path.parent.absolute(), "--frozen", "--format", "pylock.toml"),
                *("--no-emit-project", "--no-default-groups", "--no-header", "--quiet", "--output-file", pylock),
                *(part for extra in extras for part in ("--extra", extra)),
                *(part for group in groups for part in ("--group", group)),
            ]
        )
        if completed.returncode != 0:
            reason = quote(" ".join(completed.stderr.split()).removeprefix("error: "))[1:-1]
            raise location.error(f"uv cannot read it: {reason}", hint=_hint(reason))
        exported = read_text(pylock)
        content = _with_absolute_paths(parse_toml(exported, location), folder)
    found = select_wheels(content, replace(source, text=exported))
    return replace(found, files=(path, project))


def _hint(reason: str) -> str:
    if reason.startswith(("Extra ", "Group ")):
        return "correct extras and groups in [tool.envpack]"
    if reason.startswith("Failed to download"):
        return "the lock has no hash of this file, so uv downloads it: make its address reachable"
    return "write it again: uv lock"


def _with_absolute_paths(value: Any, folder: Path) -> Any:
    """A value of the exported lock whose paths do not depend on the folder that uv wrote it into."""
    if isinstance(value, list):
        return [_with_absolute_paths(item, folder) for item in value]
    if not isinstance(value, dict):
        return value
    found = {key: _with_absolute_paths(item, folder) for key, item in value.items()}
    if isinstance(value.get("path"), str):
        found["path"] = str((folder / value["path"]).resolve())
    return found
