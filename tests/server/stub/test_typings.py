"""The type stubs for editors say what is really there."""

import ast
from pathlib import Path

import pytest

TYPINGS = Path(__file__).parents[3] / "typings"
MODULES = ["c_python_backend_utils", "triton_python_backend_utils"]
# What an enumeration of pybind11 has besides its constants is declared once, in a base class that does not exist.
NAMES = (
    "def public(thing):\n    return sorted(name for name in dir(thing) if not name.startswith('_'))\n"
    "module = __import__('{module}')\n"
    "classes = {{name: public(getattr(module, name)) for name in public(module)"
    " if isinstance(getattr(module, name), type) and getattr(module, name).__module__ == '{module}'}}\n"
    "classes.pop('TritonModelException', None)\n"
    "return [reply([public(module), classes])]"
)
# Private helpers and imports of the server's module.
NOT_OURS = {"json", "np", "struct", "async_event_future_done_callback"}


def declared(module):
    """Names that the module's .pyi declares, and those of each of its classes."""
    tree = ast.parse((TYPINGS / f"{module}-stubs/__init__.pyi").read_text())
    classes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
    imported = [alias.asname for node in tree.body if isinstance(node, ast.ImportFrom) for alias in node.names]
    names = {*_names(tree), *filter(None, imported)}
    return _public(names), {name: _members(classes, name) for name in _public(classes)}


def _members(classes, name):
    bases = [base.id for base in classes[name].bases if base.id in classes]
    return _public({*_names(classes[name]), *(member for base in bases for member in _members(classes, base))})


def _names(node):
    for item in node.body:
        if isinstance(item, ast.FunctionDef | ast.ClassDef):
            yield item.name
        elif isinstance(item, ast.AnnAssign):
            yield item.target.id


def _public(names):
    return sorted(name for name in names if not name.startswith("_"))


@pytest.mark.parametrize("module", MODULES)
def test_they_name_what_the_module_has(served, module):
    names, classes = served.run_code(NAMES.format(module=module))
    declared_names, declared_classes = declared(module)
    assert declared_names == [name for name in names if name not in NOT_OURS]
    declared_classes.pop("TritonModelException", None)
    assert declared_classes == classes
