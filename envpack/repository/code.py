"""What the code of a model shows without being run: the models that it calls, and the modules that it imports."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from envpack.repository.folders import looks_like_model, version_folders
from envpack.support.bounded_reading import read_source
from envpack.support.placed_files import CONFIG_NAME

_MOST_SEARCHED = 1 << 20  # of a source that is searched
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
        return read_source(source, most=_MOST_SEARCHED)
    except (OSError, ValueError):  # what is wrong with a file is said by those who load it
        return ""


_MOST_BYTES = 4 << 20
_MOST_FILES = 200
# Of the backend, and of the standard library of older Pythons.
_GIVEN = {"triton_python_backend_utils", "c_python_backend_utils", "asynchat", "asyncore", "distutils", "imp", "smtpd"}


def imported_modules(model_folder: Path) -> dict[str, str]:
    """The modules from elsewhere that the Python files of a model's versions import, each with its first place.

    Imports that a ``try`` or a condition guards are not counted, nor those of a file that changes ``sys.path``.

    Returns:
        For the first part of each module's name, ``"FILE:LINE"``.
    """
    found: dict[str, str] = {}
    own = _names(model_folder)
    for version in version_folders(model_folder):
        files = sorted(version.glob("*.py"))[:_MOST_FILES]
        local = own | _names(version)
        for file in files:
            for module, line in _imports(file):
                if module not in local:
                    found.setdefault(module, f"{file}:{line}")
    return found


def _names(folder: Path) -> set[str]:
    """What a folder's modules and packages may be called."""
    return {entry.name.partition(".")[0] for entry in folder.iterdir()}


def _imports(file: Path) -> Iterator[tuple[str, int]]:
    try:
        text = read_source(file, most=_MOST_BYTES)
        tree = ast.parse(text)
    except (OSError, ValueError, SyntaxError, RecursionError, MemoryError):  # whatever runs the file reports it
        return
    if "sys.path" in text:
        return
    pending: list[ast.AST] = [tree]
    while pending:
        node = pending.pop()
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [node.module] if node.module and not node.level else []
        else:
            if not isinstance(node, (ast.Try, ast.TryStar, ast.If)):
                pending.extend(reversed(list(ast.iter_child_nodes(node))))
            continue
        for name in names:
            module = name.partition(".")[0]
            if module not in sys.stdlib_module_names | _GIVEN:
                yield module, node.lineno
