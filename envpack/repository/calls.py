"""The models that the code of a model sends requests to (business logic scripting)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from envpack.repository.model import CONFIG_NAME, looks_like_model, version_folders
from envpack.support.bounded_reading import read_text

_MOST_BYTES = 1 << 20  # of a source that is searched
_REQUEST = re.compile(r"InferenceRequest\s*\(")
_OVERRIDE = re.compile(r"\bload_model\s*\([^()]*(?:\([^()]*\)[^()]*)*\b(?:config|files)\s*=")
_DOCSTRING = re.compile(r'"""(?:\\.|[^\\])*?"""', re.DOTALL)
_QUOTED = re.compile(r"""(["'])((?:\\.|(?!\1)[^\\\n])*)\1""")
_NAME = re.compile(r"\w[\w.-]*")


def called_models(folder: Path) -> tuple[str, ...]:
    """Names of the models of its repository that a model has in a string of its code or configuration, sorted.

    A server loads no model because another one sends requests to it, and nothing declares these requests. A name that
    code puts together at run time is not found; a string that happens to be a model's name is.
    """
    if not folder.is_dir():
        return ()
    words = {word for source in _sources(folder) for word in _quoted_words(source)}
    # Words are compared with names of folders: one that is looked up in the file system may be too long for a path.
    others = [other for other in folder.parent.iterdir() if other.name in words and other.name != folder.name]
    return tuple(sorted(other.name for other in others if other.is_dir() and looks_like_model(other)))


def sends_requests(folder: Path) -> bool:
    """Whether the code of a model sends requests to models, whose names may only be known when it runs."""
    sources = (source for version in version_folders(folder) for source in version.rglob("*.py"))
    return any(_REQUEST.search(_DOCSTRING.sub("", _text(source))) for source in sources)


def gives_configurations(folder: Path) -> bool:
    """Whether the code of a model gives ``load_model()`` another configuration, or files."""
    sources = (source for version in version_folders(folder) for source in version.rglob("*.py"))
    return any(_OVERRIDE.search(_DOCSTRING.sub("", _text(source))) for source in sources)


def completes_itself(folder: Path) -> bool:
    """Whether the code of a model may add inputs and outputs to its configuration when it is loaded."""
    sources = (source for version in version_folders(folder) for source in version.rglob("*.py"))
    return any("auto_complete_config" in _text(source) for source in sources)


def _sources(folder: Path) -> Iterator[Path]:
    yield folder / CONFIG_NAME
    for version in version_folders(folder):
        yield from version.rglob("*.py")


def _quoted_words(source: Path) -> Iterator[str]:
    for quoted in _QUOTED.finditer(_DOCSTRING.sub("", _text(source))):
        yield from _NAME.findall(quoted[2])


def _text(source: Path) -> str:
    try:
        return read_text(source, most=_MOST_BYTES)
    except (OSError, ValueError):  # what is wrong with a file is said by those who load it
        return ""
