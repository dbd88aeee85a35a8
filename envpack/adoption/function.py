"""Reads where a Python function is, and what its module imports. The module is parsed, never imported."""

from __future__ import annotations

import ast
from pathlib import Path

from envpack.adoption.artifact import Artifact, bad_artifact, python_env, requirements_in
from envpack.adoption.modules import file_of, imported, parsed
from envpack.requirements import package_of


def read_function(module: str, name: str, python: str) -> Artifact:
    """Read the sources of a function in the current folder."""
    folder = Path.cwd()
    file = file_of(folder, module)
    if file is None:
        raise bad_artifact(f"there is no module {module} in this folder", "run it in the folder of the module", folder)
    kinds = {
        node.name: type(node) for node in parsed(file).body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }
    if kinds.get(name) is ast.AsyncFunctionDef:
        fix = "name a function that calls it by asyncio.run()"
        raise bad_artifact(f"{name} is a coroutine (async def), which cannot be called by itself", fix, file)
    if name not in kinds:
        raise bad_artifact(f"there is no function {name}", "name one that the module defines at its top level", file)
    sources, others = imported(folder, [module])
    packages = ["numpy", *(package_of(other) for other in others if other != "numpy")]
    return Artifact(
        kind="function",
        title=f"function {module}.{name}",
        source=file,
        files=sources,
        requirements=requirements_in(folder, python) or python_env(python, packages),
        details={"module": module, "function": name},
    )
