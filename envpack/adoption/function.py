"""Reads where a Python function is, and what its module imports. The module is parsed, never imported."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

from envpack.adoption.artifact import Artifact, bad_artifact, python_env, requirements_in
from envpack.requirements import package_of
from envpack.support.bounded_reading import read_source
from envpack.support.tables import Location

_MOST = 4 << 20  # bytes
_GIVEN = {"numpy", *sys.stdlib_module_names}


def read_function(module: str, name: str, python: str) -> Artifact:
    """Read the sources of a function in the current folder."""
    folder, root = Path.cwd(), module.partition(".")[0]
    file = _file_of(folder, module)
    if file is None:
        raise bad_artifact(f"there is no module {module} in this folder", "run it in the folder of the module", folder)
    if root == "model":
        raise bad_artifact("Triton's own module of a model is called model", "give this module another name", file)
    kinds = {
        node.name: type(node) for node in _parsed(file).body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }
    if kinds.get(name) is ast.AsyncFunctionDef:
        fix = "name a function that calls it by asyncio.run()"
        raise bad_artifact(f"{name} is a coroutine (async def), which cannot be called by itself", fix, file)
    if name not in kinds:
        raise bad_artifact(f"there is no function {name}", "name one that the module defines at its top level", file)
    sources, packages, waiting, seen = dict[str, Path](), ["numpy"], [root], {root}
    while waiting:
        near = _file_of(folder, waiting[-1])
        imported = waiting.pop()
        if near is None:
            packages.append(package_of(imported))
            continue
        source = near.parent if near.name == "__init__.py" else near
        sources[source.name] = source
        for one in sorted(source.rglob("*.py")) if source.is_dir() else [source]:
            found = _imports(_parsed(one)) - _GIVEN - seen
            waiting += sorted(found)
            seen |= found
    return Artifact(
        kind="function",
        title=f"function {module}.{name}",
        source=file,
        files=sources,
        requirements=requirements_in(folder, python) or python_env(python, packages),
        details={"module": module, "function": name},
    )


def _file_of(folder: Path, module: str) -> Path | None:
    path = folder.joinpath(*module.split("."))
    places = (path.with_name(f"{path.name}.py"), path / "__init__.py")
    return next((place for place in places if place.is_file()), None)


def _parsed(file: Path) -> ast.Module:
    try:
        return ast.parse(read_source(file, most=_MOST))
    except (ValueError, SyntaxError, RecursionError, MemoryError) as error:
        place = Location(file, getattr(error, "lineno", 0) or 0, "bad-artifact")
        raise place.error(f"this is not Python: {error}", hint="correct the file") from error


def _imports(tree: ast.Module) -> set[str]:
    nodes = list(ast.walk(tree))
    names = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    names += [node.module for node in nodes if isinstance(node, ast.ImportFrom) and node.module and not node.level]
    return {name.partition(".")[0] for name in names}
