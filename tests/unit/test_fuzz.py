"""`ci/fuzz.py` knows every property that fuzzes a parser, and names no test that is gone."""

import ast
import importlib.util
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def fuzz():
    specification = importlib.util.spec_from_file_location("fuzz", CHECKOUT / "ci/fuzz.py")
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


def properties(file):
    """The tests of a module that Hypothesis runs, also those that make one inside."""
    for node in ast.parse(file.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef) and "given(" in ast.unparse(node):
            yield node.name


def test_every_parser_has_properties(fuzz):
    for parser, tests in fuzz.PARSERS.items():
        for test in tests:
            file, _, name = test.partition("::")
            found = set(properties(CHECKOUT / file))
            assert found, (parser, test)
            assert not name or name in found, (parser, test)


def test_every_property_about_hostile_content_is_of_a_parser(fuzz):
    named = [test for tests in fuzz.PARSERS.values() for test in tests]
    for file in sorted((CHECKOUT / "tests/unit/hostile").glob("test_*.py")):
        path = str(file.relative_to(CHECKOUT))
        for name in properties(file):
            assert path in named or f"{path}::{name}" in named, name


def test_a_search_counts_examples_and_stops_at_a_failure(fuzz, tmp_path):
    (tmp_path / "conftest.py").write_text(
        "from hypothesis import settings\nsettings.register_profile('fuzz', max_examples=7, database=None)\n"
    )
    good, bad = tmp_path / "test_good.py", tmp_path / "test_bad.py"
    for file, most in ((good, "1 << 99"), (bad, "-1")):
        file.write_text(
            "from hypothesis import given, strategies as st\n\n"
            f"@given(st.integers(0, 1 << 30))\ndef test_x(x):\n    assert x <= {most}\n"
        )
    options = ["-p", "no:cacheprovider", f"--rootdir={tmp_path}"]
    assert fuzz.search([str(good), *options], 0.0001) == (7, "")
    _, failure = fuzz.search([str(bad), *options], 1)
    assert "assert 0 <= -1" in failure
