"""The modules that a model's code imports, and where modules of the project lie; nothing is run."""

from __future__ import annotations

import ast
import contextlib
import itertools
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from envpack.repository.folders import version_folders
from envpack.requirements.import_names import package_part
from envpack.support.bounded_reading import read_source
from envpack.support.placed_files import CONFIG_NAME

_MOST_BYTES = 4 << 20  # of a file
_MOST_FILES = 200  # of a version
_OF_OTHERS = (CONFIG_NAME, "setup.py", "pyproject.toml")  # in another model, and in the checkout of a library
_LEVELS = 3  # folders above a model's: the repository, what it lies in, and the project
_UTILITIES = "triton_python_backend_utils"
_OF_BACKEND = {"__main__", _UTILITIES, "c_python_backend_utils"}
# What a stub adds to the utilities; a release's own does so when it has imported the model (seen with Triton 24.10).
ADDED = (
    *("InferenceRequest", "InferenceResponse", "Logger", "MetricFamily", "PreferredMemory", "Tensor", "TritonError"),
    *("TritonModelException", "get_model_dir", "is_model_ready", "load_model", "unload_model"),
)
_UNCERTAIN = (
    *(ast.If, ast.IfExp, ast.BoolOp, ast.Match, ast.Try, ast.TryStar),
    *(ast.For, ast.While, ast.With, ast.GeneratorExp),
)
# Modules of the standard library that envpack's own Python may not have. By the first minor version of Python 3 without
# them, those that a package provides since (PEP 594, PEP 632), and the others of older and newer versions.
_REPLACED = {
    12: {"asynchat", "asyncore", "distutils", "imp", "smtpd"},
    13: {
        *("aifc", "audioop", "cgi", "cgitb", "chunk", "crypt", "imghdr", "mailcap"),
        *("nntplib", "pipes", "sndhdr", "sunau", "telnetlib", "uu", "xdrlib"),
    },
}
_OF_OTHER_PYTHONS = {
    *("annotationlib", "binhex", "compression", "formatter", "lib2to3"),
    *("nis", "ossaudiodev", "parser", "spwd", "symbol"),
}


@dataclass(frozen=True)
class _Import:
    module: str  # dotted; "" in ``from . import a``
    names: tuple[str, ...]  # what is imported from it, which may be modules
    level: int  # dots in front of a relative import
    line: int

    def packages(self) -> Iterator[str]:
        for name in self.names or ("",):
            yield package_part(f"{self.module}.{name}")


def imported_modules(model_folder: Path, python: str, main: str = "model.py") -> dict[str, str]:
    """The modules from elsewhere that the code of a model's versions imports, each with its first place.

    ``python`` is the version that runs the model, for example ``"3.10"``; what its standard library no longer has must
    come from elsewhere.

    The imports of the file ``main`` are followed to other files of the model. Imports in a ``try``, a ``with`` or a
    condition are not counted, nor those that follow a change of ``sys.path``.

    Returns for the first part of each module's name, ``"FILE:LINE"``; for one in a namespace, like
    ``google.cloud.storage``, for the parts up to the package.
    """
    found: dict[str, str] = {}
    # What is given: no package provides it, or needs to provide it.
    minor = int(python.split(".")[1])
    replaced = set[str]().union(*(modules for since, modules in _REPLACED.items() if since <= minor))
    given = {*sys.stdlib_module_names, *_OF_OTHER_PYTHONS, *_OF_BACKEND}.union(*_REPLACED.values()) - replaced
    for version in version_folders(model_folder):
        local = {entry.name.partition(".")[0] for folder in (version, model_folder) for entry in folder.iterdir()}
        for file, one, _ in _followed(version, main):
            if not one.level and one.module.partition(".")[0] not in local | given:
                found.update({name: f"{file}:{one.line}" for name in one.packages() if name not in found})
    return found


def hidden_modules(model_folder: Path, main: str, environment: Path | None) -> dict[str, tuple[Path, Path]]:
    """The modules beside a model's code that its imports do not get, each with its file and the place of the import.

    Python looks into its standard library and its packages first, then into the version and the model (seen with
    Triton 24.10). Without the folder of an environment, only the standard library is known.
    """
    found: dict[str, tuple[Path, Path]] = {}
    for version in version_folders(model_folder):
        for file, one, near in _followed(version, main):
            name = one.module.partition(".")[0]
            if near and not one.level and name not in found and _is_elsewhere(name, environment):
                found[name] = near[0], file.with_name(f"{file.name}:{one.line}")
    return found


def _is_elsewhere(module: str, environment: Path | None) -> bool:
    if environment is None or not environment.is_dir():
        return module in sys.stdlib_module_names
    places = itertools.product(("", "lib-dynload/", "site-packages/"), (".py", "/__init__.py", ".*so"))
    return module in sys.builtin_module_names or any(
        next(environment.glob(f"lib/python3*/{folder}{module}{ending}"), None) for folder, ending in places
    )


def find_own_module(module: str, model_folder: Path) -> Path | None:
    """A module or package of the project in the folders around a model, where a server does not look for it."""
    above = model_folder.absolute().parents[:_LEVELS]
    for folder in (place for one in above for place in (one, one / "src")):
        package = folder / module
        with contextlib.suppress(OSError):  # the name may be too long, and the folder closed to this user
            if (file := folder / f"{module}.py").is_file():
                return file
            if next(package.glob("*.py"), None) and not any((package / name).exists() for name in _OF_OTHERS):
                return package
    return None


def _followed(version: Path, main: str) -> Iterator[tuple[Path, _Import, list[Path]]]:
    """The imports of a version's code, each with the file that has it and the files beside the code that it names."""
    files = [version / main]
    for file in files:  # which grows
        for one in _imports(file):
            near = [*_near(version, file, one)]
            files += [other for other in near if other not in files and len(files) < _MOST_FILES]
            yield file, one, near


def _near(version: Path, file: Path, one: _Import) -> Iterator[Path]:
    """The files of a model that an import in one of them runs."""
    around = [folder for folder in file.parents[: one.level] if folder.is_relative_to(version.parent)]
    return _files(around[one.level - 1 :] if one.level else [version, version.parent], one)


def _files(folders: Sequence[Path], one: _Import) -> Iterator[Path]:
    """The files below some folders that an import runs."""
    parts = one.module.split(".") if one.module else []
    for folder in folders:
        packages = [folder.joinpath(*parts[:count]) for count in range(1, len(parts) + 1)]
        inner = [folder.joinpath(*parts, name) for name in one.names if name != "*"]
        for path in (*packages, *inner):
            for file in (path / "__init__.py", path.with_name(f"{path.name}.py")):
                if os.path.isfile(file):  # noqa: PTH113 - what this user may not look at is none
                    yield file


def _imports(file: Path) -> Iterator[_Import]:
    text, tree = _parsed(file)
    before, changes, _ = text.partition("sys.path")
    if changes:  # what follows may lie anywhere
        ahead = (node for node in tree.body if node.lineno <= before.count("\n"))
        tree.body = [node for node in ahead if isinstance(node, (ast.Import, ast.ImportFrom))]
    pending: list[ast.AST] = [tree]
    while pending:
        node = pending.pop()
        yield from _imported(node)
        if not isinstance(node, (ast.Try, ast.TryStar, ast.If, ast.With)):  # with suppress(ImportError)
            pending.extend(reversed(list(ast.iter_child_nodes(node))))


def _imported(node: ast.AST) -> Iterator[_Import]:
    if isinstance(node, ast.Import):
        yield from (_Import(alias.name, (), 0, node.lineno) for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        yield _Import(node.module or "", tuple(alias.name for alias in node.names), node.level, node.lineno)


def _parsed(file: Path) -> tuple[str, ast.Module]:
    """A file's text and code; nothing of a file that cannot be read, which is reported by whatever runs it."""
    try:
        text = read_source(file, most=_MOST_BYTES)
        return text, ast.parse(text)
    except (OSError, ValueError, SyntaxError, RecursionError, MemoryError):
        return "", ast.Module([], [])


def used_too_early(model_folder: Path, main: str) -> tuple[str, Path] | None:
    """A name that a release's own stub adds to `pb_utils` later than the code of a model uses it, and ``FILE:LINE``.

    None unless the code, or a file of the model that it imports, does so for certain when it is imported.
    """
    for version in version_folders(model_folder):
        files = [version / main]
        for file in files:  # which grows
            text, tree = _parsed(file)
            nodes = [*_run_by_import(tree, annotates="from __future__ import annotations" not in text)]
            names = (node for node in ast.walk(tree) if isinstance(node, ast.alias) and node.name == _UTILITIES)
            aliases = {name.asname or _UTILITIES for name in names}
            for node in nodes:
                used = [name for one in _imported(node) if one.module == _UTILITIES for name in one.names]
                if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in aliases:
                    used = [node.attr]
                if early := next((name for name in used if name in ADDED), ""):
                    return early, file.with_name(f"{file.name}:{getattr(node, 'lineno', 1)}")
            imports = (one for node in nodes for one in _imported(node))
            local = (one for one in imports if one.level or not _is_elsewhere(one.module.partition(".")[0], None))
            found = (other for one in local for other in _near(version, file, one))
            files += [other for other in found if other not in files and len(files) < _MOST_FILES]
    return None


def _run_by_import(tree: ast.Module, *, annotates: bool) -> Iterator[ast.AST]:
    """What runs for certain when a module is imported; annotations do unless the module says otherwise."""
    pending: list[ast.AST] = [tree]
    while pending:
        node = pending.pop()
        if isinstance(node, _UNCERTAIN):
            continue
        yield node
        later = {"body"} if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)) else set()
        later |= set() if annotates else {"annotation", "returns"}
        for name, value in ast.iter_fields(node):
            parts = value if isinstance(value, list) else [value]
            pending.extend(part for part in parts if isinstance(part, ast.AST) and name not in later)
