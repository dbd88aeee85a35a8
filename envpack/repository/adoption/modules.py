"""Finds a function, the modules beside an artifact that it imports, and their packages. All are parsed only."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterable
from pathlib import Path

from envpack.repository.adoption.artifact import Artifact, bad_artifact, python_env, requirements_in
from envpack.requirements.import_names import package_part, requirement_of
from envpack.support.bounded_reading import read_source
from envpack.support.tables import Location

_MOST = 4 << 20  # bytes


def _yields(function: ast.FunctionDef) -> bool:
    """Whether a function itself is a generator, and none of those in it."""
    parts: list[ast.AST] = [*function.body]
    for part in parts:  # which grows
        if not isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef):
            parts += ast.iter_child_nodes(part)
    return any(isinstance(part, ast.Yield | ast.YieldFrom) for part in parts)


def read_function(module: str, name: str, python: str) -> Artifact:
    folder = Path.cwd()
    file = _file_of(folder, module)
    if file is None:
        meant = module.removesuffix(".py")
        fix = f"write {meant}:{name}" if _file_of(folder, meant) else "run it in the folder of the module"
        raise bad_artifact(f"there is no module {module} in this folder", fix, folder)
    found = [node for node in _parsed(file).body if getattr(node, "name", "") == name]
    if any(isinstance(node, ast.AsyncFunctionDef) for node in found):
        fix = "name a function that calls it by asyncio.run()"
        raise bad_artifact(f"{name} is a coroutine (async def), which cannot be called by itself", fix, file)
    if any(isinstance(node, ast.FunctionDef) and _yields(node) for node in found):
        fix = "name a function that joins what it yields to one answer"
        raise bad_artifact(f"{name} is a generator (yield), and a request has one answer", fix, file)
    if any(isinstance(node, ast.FunctionDef) and node.args.posonlyargs for node in found):
        raise bad_artifact(f"{name} takes parameters by their position alone", 'remove the "/" behind them', file)
    if not any(isinstance(node, ast.FunctionDef) for node in found):
        raise bad_artifact(f"there is no function {name}", "name one that the module defines at its top level", file)
    sources, others = imported(folder, [module])
    packages = ["numpy", *(requirement_of(other) for other in others if other != "numpy")]
    return Artifact(
        kind="function",
        title=f"function {module}.{name}",
        source=file,
        files=sources,
        requirements=requirements_in(folder, python) or python_env(python, packages),
        details={"module": module, "function": name},
    )


def imported(folder: Path, names: Iterable[str]) -> tuple[dict[str, Path], list[str]]:
    """The files and folders with modules that are imported, directly or by each other, and the roots of all others."""
    sources, elsewhere, waiting = dict[str, Path](), set[str](), list(names)
    seen = set(waiting)
    while waiting:
        name = waiting.pop()
        source = _source_of(folder, name)
        if source is None:
            elsewhere.add(package_part(name))
        elif source.name not in sources:
            sources[source.name] = source
            for file in sorted(source.rglob("*.py")) if source.is_dir() else [source]:
                found = _imports(_parsed(file), folder) - seen
                waiting += sorted(found)
                seen |= found
    roots = {Path(name).stem for name in sources}
    return dict(sorted(sources.items())), sorted(elsewhere - roots)


def _file_of(folder: Path, module: str) -> Path | None:
    path = folder.joinpath(*module.split("."))
    places = (path / "__init__.py", path.with_name(f"{path.name}.py"))
    return next((place for place in places if place.is_file()), None)


def _parsed(file: Path) -> ast.Module:
    try:
        return ast.parse(read_source(file, most=_MOST))
    except (ValueError, SyntaxError, RecursionError, MemoryError) as error:
        place = Location(file, getattr(error, "lineno", 0) or 0, "bad-artifact")
        raise place.error(f"this is not Python: {error}", hint="correct the file") from error


def _source_of(folder: Path, name: str) -> Path | None:
    parts = name.split(".")
    file = _file_of(folder, parts[0])
    if file is None:  # a folder without __init__.py counts if it has the module, since an installed package precedes it
        prefixes = (".".join(parts[:count]) for count in range(2, len(parts) + 1))
        return folder / parts[0] if any(_file_of(folder, prefix) for prefix in prefixes) else None
    return file.parent if file.name == "__init__.py" else file


def _imports(tree: ast.Module, folder: Path) -> set[str]:
    """The modules that are imported, without those from elsewhere that the code does without."""
    nodes = list(ast.walk(tree))
    optional = {inner for node in nodes for statement in _optional(node) for inner in ast.walk(statement)}
    names: list[tuple[ast.AST, str]]
    names = [(node, alias.name) for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    whole = [node for node in nodes if isinstance(node, ast.ImportFrom) and node.module and not node.level]
    names += [(node, f"{node.module}.{alias.name}") for node in whole for alias in node.names]
    needed = {name for node, name in names if node not in optional or _source_of(folder, name)}
    return {name for name in needed if name.partition(".")[0] not in sys.stdlib_module_names}


def _optional(node: ast.AST) -> Iterable[ast.stmt]:
    """The statements of a node that only type checkers run, or whose failing imports it replaces."""
    if isinstance(node, ast.If) and isinstance(node.test, ast.Name | ast.Attribute):
        return node.body if ast.unparse(node.test).endswith("TYPE_CHECKING") else ()
    if not isinstance(node, ast.Try):
        return ()
    caught = "".join(ast.unparse(handler.type) if handler.type else "Exception" for handler in node.handlers)
    raises = any(isinstance(inner, ast.Raise) for handler in node.handlers for inner in ast.walk(handler))
    return node.body if re.search("ImportError|ModuleNotFoundError|Exception", caught) and not raises else ()
