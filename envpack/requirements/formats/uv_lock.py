"""``uv.lock``, which uv itself writes out as a ``pylock.toml``: without the project, and without its default groups."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

from envpack.requirements.format import Source, reads
from envpack.requirements.formats.pylock import select_wheels
from envpack.requirements.formats.pyproject import read_selection
from envpack.requirements.location import read_text
from envpack.requirements.model import Requirements
from envpack.support.errors import InputError
from envpack.support.folders import real_path
from envpack.support.tables import Location, parse_toml, quote
from envpack.support.temp_dirs import temp_dir

_NO_HASH = re.compile(r"Failed to download `(?P<wheel>[^`]{1,2000})` to compute missing hashes")
_WITHOUT_HASHES = (
    "uv export --no-emit-project --no-default-groups --no-hashes --emit-index-url --output-file requirements.txt"
)


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
        completed = run_uv(  # offline: for hashes that are missing, uv would download the wheels of all platforms
            [
                *("export", "--project", path.parent.absolute(), "--frozen", "--offline", "--format", "pylock.toml"),
                *("--no-emit-project", "--no-default-groups", "--no-header", "--quiet", "--output-file", pylock),
                *(part for extra in extras for part in ("--extra", extra)),
                *(part for group in groups for part in ("--group", group)),
            ]
        )
        if completed.returncode != 0:
            raise _unreadable(location, " ".join(completed.stderr.split()).removeprefix("error: "))
        exported = read_text(pylock)
        content = _with_absolute_paths(parse_toml(exported, location), folder)
    found = select_wheels(content, replace(source, text=exported))
    return replace(found, files=(path, project))


def _unreadable(location: Location, reason: str) -> InputError:
    if missing := _NO_HASH.match(reason):  # as from PyTorch's index
        what = f"has no hash of {quote(missing['wheel'])}, since its index names none"
        return location.error(what, hint=f"run there: {_WITHOUT_HASHES}, and name that file")
    unknown = reason.startswith(("Extra ", "Group "))
    hint = "correct extras and groups in [tool.envpack]" if unknown else "write it again: uv lock"
    return location.error(f"uv cannot read it: {quote(reason)[1:-1]}", hint=hint)


def _with_absolute_paths(value: Any, folder: Path) -> Any:
    """A value of the exported lock whose paths do not depend on the folder that uv wrote it into."""
    if isinstance(value, list):
        return [_with_absolute_paths(item, folder) for item in value]
    if not isinstance(value, dict):
        return value
    found = {key: _with_absolute_paths(item, folder) for key, item in value.items()}
    if isinstance(value.get("path"), str):
        found["path"] = str(real_path(folder / value["path"]))
    return found
