"""The house rule on imports: an arrow goes from right to left in the flow, never back."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import envpack
import envpack.environment

PACKAGE = Path(envpack.__file__).parent

# Rooms in the order of the flow. A module may import from its own room and from those before it.
ORDER = [
    {"first_use", "errors", "progress", "process", "locations", "atomic", "scratch"},
    {"releases"},
    {"project", "recipes"},
    {"requirements"},
    {"environment"},
    {"archive"},
    {"stub"},
    {"repository"},
    {"preflight"},
    {"inspection"},
    {"verification"},
    {"deployment", "doctor"},
    {"locking"},
    {"building", "stubs", "cache"},
    {"cli"},
]
RANK = {room: rank for rank, rooms in enumerate(ORDER) for room in rooms}


def _room(module):
    return module.split(".")[1]


def _modules():
    for file in PACKAGE.rglob("*.py"):
        module = ".".join(("envpack", *file.relative_to(PACKAGE).with_suffix("").parts))
        if module != "envpack.__init__":
            yield module.removesuffix(".__init__"), ast.parse(file.read_text(encoding="utf-8"))


def _imports(tree):
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            yield from [node.module] if node.module != "envpack" else [f"envpack.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def test_every_module_is_in_a_room():
    assert {_room(module) for module, _ in _modules()} == set(RANK)


def test_imports_go_with_the_flow():
    wrong = [
        f"{module} imports {imported}"
        for module, tree in _modules()
        for imported in _imports(tree)
        if imported.startswith("envpack.") and _room(imported) in RANK and RANK[_room(imported)] > RANK[_room(module)]
    ]
    assert wrong == []


def test_the_core_never_prints():
    wrong = [
        module
        for module, tree in _modules()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print"
        # The child process of rattler speaks to its parent, not to people.
        if _room(module) != "cli"
    ]
    assert wrong == []


@pytest.mark.parametrize("package", [envpack, envpack.environment], ids=lambda package: package.__name__)
def test_every_public_name_is_where_its_package_says(package):
    assert set(package._HOMES) == set(package.__all__)
    assert all(getattr(package, name) is not None for name in package.__all__)
    with pytest.raises(AttributeError, match=f"{package.__name__}.*nothing_of_the_kind"):
        package.nothing_of_the_kind  # noqa: B018 - the look itself is what is tested


def test_whoever_packs_imports_nothing_that_builds():
    code = (
        "import sys, envpack.archive; print([name for name in sys.modules if name.startswith('envpack.environment.')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "envpack.environment.inventory" in done.stdout
    assert "envpack.environment.build" not in done.stdout
    assert "envpack.environment.lock" not in done.stdout
