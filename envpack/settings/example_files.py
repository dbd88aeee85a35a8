"""The recipes and the templates, as files: those of a checkout, or of one archive in the wheel.

Hundreds of small files, with the byte code that an installer compiles, would take a megabyte of every installation.
"""

from __future__ import annotations

import functools
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

Kind = Literal["recipes", "templates"]
Files = Mapping[str, bytes]

_PACKAGE = Path(__file__).parents[1]
_ARCHIVE = _PACKAGE / "_source" / "examples.zip"


@functools.cache
def example_files(kind: Kind) -> Mapping[str, Files]:
    """The files of each recipe or template: its name → paths in it, with ``/``, in order → contents."""
    files = _packed(kind) if _ARCHIVE.is_file() else _in_checkout(kind)
    examples: dict[str, dict[str, bytes]] = {}
    for path in sorted(files):
        name, _, rest = path.partition("/")
        examples.setdefault(name, {})[rest] = files[path]
    return examples


def _packed(kind: Kind) -> Files:
    prefix = f"{kind}/"
    with zipfile.ZipFile(_ARCHIVE) as archive:
        names = [name for name in archive.namelist() if name.startswith(prefix) and not name.endswith("/")]
        return {name.removeprefix(prefix): archive.read(name) for name in names}


def _in_checkout(kind: Kind) -> Files:
    folder = _PACKAGE.parent / kind
    files = (path for path in folder.rglob("*") if path.is_file() and path.suffix != ".pyc")
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}
