"""Public names of packages, which a quick reader finds in their source."""

import ast
import importlib
from pathlib import Path

import pytest

import envpack
from envpack.support.lazy_imports import lazy_imports
from tests.tables import every_row

PACKAGES = [
    file for file in Path(envpack.__file__).parent.rglob("__init__.py") if "lazy_imports(__name__" in file.read_text()
]


def names_of(file):
    """The names in the block for type checkers, by Python's own parser."""
    blocks = [node for node in ast.parse(file.read_text()).body if isinstance(node, ast.If)]
    return sorted(name.name for block in blocks for node in block.body for name in node.names)


@every_row("file", PACKAGES)
def test_each_name_is_found_and_can_be_imported(file):
    folder = file.parent.relative_to(Path(envpack.__file__).parent.parent)
    package = importlib.import_module(".".join(folder.parts))
    assert package.__all__ == names_of(file)
    assert {*package.__all__, "__name__"} <= {*dir(package)}  # what notebooks complete
    assert all(hasattr(package, name) for name in package.__all__)


def test_an_unknown_name_is_an_attribute_error():
    find, _, _ = lazy_imports("envpack", envpack.__file__)
    with pytest.raises(AttributeError, match="module 'envpack' has no attribute 'nothing'"):
        find("nothing")
