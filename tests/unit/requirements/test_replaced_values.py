"""A file with one value of another type gives requirements or one clear error, in every format that is registered."""

import contextlib
import importlib
import json
from pathlib import Path

from envpack.requirements.format import all_formats, read_requirements
from envpack.requirements.model import Requirements
from envpack.support.errors import InputError
from tests.hostile import replaced
from tests.tables import every_row
from tests.unit.requirements.test_locks import PIXI_6, PYLOCK
from tests.unit.requirements.test_odd_files import (
    CONDA_LOCK,
    ENVIRONMENT,
    PYTHON_ENV,
    parsed_toml,
    toml_file,
    yaml_of,
)
from tests.unit.requirements.test_poetry_lock import PROJECT as POETRY_PROJECT, SELECTED, lock_of

A = "a" * 64
NEW = (5, None, [], {}, "x", [5], [[]], [{"x": 5}], {"x": 5}, {"x": [{}]})
PYPROJECT = """
[project]
name = "m"
version = "1"
requires-python = ">=3.9"
dynamic = ["dependencies"]
[project.optional-dependencies]
more = ["six", "m[most]"]
most = ["idna"]
[dependency-groups]
serve = ["click", {include-group = "base"}]
base = ["h11"]
[tool.setuptools.dynamic]
dependencies = {file = ["base.txt"]}
[tool.envpack]
extras = ["more"]
groups = ["serve"]
[tool.uv]
index-url = "https://example.org/a"
extra-index-url = ["https://example.org/b"]
find-links = ["https://example.org/c"]
no-index = false
constraint-dependencies = ["six<2"]
exclude-newer = "2024-01-31"
exclude-newer-package = {six = "2024-01-31"}
resolution = "lowest"
sources = {six = {index = "own"}, click = {path = "./click-1-py3-none-any.whl"}}
index = [{name = "own", url = "https://example.org/d", explicit = true, default = false}]
[tool.pdm]
source = [{name = "own", url = "https://example.org/e", type = "index"}]
[tool.poetry]
dependencies = {python = "^3.9"}
source = []
"""
PIPFILE_LOCK = {
    "_meta": {"requires": {"python_version": "3.10"}, "sources": [{"name": "own", "url": "https://example.org/f"}]},
    "default": {
        "click": {"version": "==8.1", "hashes": [f"sha256:{A}"], "markers": "python_version > '3.7'", "extras": ["x"]},
        "own": {"file": "https://example.org/own-1-py3-none-any.whl"},
        "other": {"git": "https://example.org/x", "ref": "1"},
    },
}
POETRY_OLD = parsed_toml(lock_of("1.1")) | {"metadata": {"lock-version": "1.1", "python-versions": "^3.9", "files": {}}}
POETRY_OLD["metadata"]["files"] = {"tomli": [{"file": "tomli-1.0.tar.gz", "hash": f"sha256:{A}"}]}
BASE = {"base.txt": "numpy\n", "click-1-py3-none-any.whl": "", "requirements.txt": "six\n"}
# The name of a file, the function that writes it, its content, and the files beside it.
TABLES = [
    ("pixi.lock", json.dumps, yaml_of(PIXI_6), {}),
    ("conda-lock.yml", json.dumps, CONDA_LOCK, {}),
    ("pylock.toml", toml_file, parsed_toml(PYLOCK), {}),
    ("poetry.lock", toml_file, POETRY_OLD, {"pyproject.toml": POETRY_PROJECT + SELECTED}),
    ("Pipfile.lock", json.dumps, PIPFILE_LOCK, {}),
    ("environment.yml", json.dumps, ENVIRONMENT, BASE),
    ("python_env.yaml", json.dumps, PYTHON_ENV, BASE),
    ("pyproject.toml", toml_file, parsed_toml(PYPROJECT), BASE),
]
# Tests of other formats have such a row, or one of the list below, as EXAMPLE.
OWN = [
    importlib.import_module(f"tests.unit.requirements.{file.stem}").EXAMPLE
    for file in sorted(Path(__file__).parent.glob("test_*.py"))
    if "\nEXAMPLE = " in file.read_text()
]
TABLES += [row for row in OWN if len(row) > 2]
LINES = [
    ("list.txt", f"@EXPLICIT\nhttps://example.org/c/linux-64/python-3.10.1-0.conda#{A[:32]}\n"),
    ("setup.cfg", "[options]\ninstall_requires =\n    numpy<2\n    six\npython_requires = >=3.8,<3.9\n"),
]
LINES += [row for row in OWN if len(row) == 2]
# uv itself reads the values of uv.lock; the others are refused by their name.
NOT_READ = {"uv.lock", "pdm.lock", "pixi.toml", "Pipfile", "setup.py"}


def places(value):
    """The paths of values; of items of lists that have the same path but for their number, the first."""
    found, pending = {}, [((), value)]
    while pending:
        path, inner = pending.pop(0)
        found.setdefault(tuple(0 if isinstance(key, int) else key for key in path), path)
        items = inner.items() if isinstance(inner, dict) else enumerate(inner) if isinstance(inner, list) else ()
        pending += [((*path, key), item) for key, item in items]
    return [path for path in found.values() if path]


def check(file, text):
    """Read a file; an error must be one about requirements, with a place and a fix, on one line."""
    file.write_text(text)
    try:
        assert isinstance(read_requirements(file, python="3.10"), Requirements)
    except InputError as error:
        assert error.kind == "bad-requirements"  # noqa: PT017 - a file without an error is right, too
        assert error.hint  # noqa: PT017
        assert error.where.startswith(str(file.parent))  # noqa: PT017
        assert "\n" not in str(error)  # noqa: PT017


def test_every_format_has_an_example():
    known = {name for known in all_formats() for name in known.names[:1]}
    assert known - NOT_READ <= {name for name, *_ in (*TABLES, *LINES)}


@every_row(("name", "written", "content", "beside"), TABLES)
def test_a_table_with_one_value_of_another_type(name, written, content, beside, tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    for other, text in beside.items():
        (folder / other).write_text(text)
    file = folder / name
    file.write_text(written(content))
    with contextlib.suppress(InputError):
        assert read_requirements(file, python="3.10").source == file
    for path in places(content):
        for new in NEW:
            try:
                check(file, written(replaced(content, path, new)))
            except Exception as error:
                raise AssertionError(f"{path} replaced by {new!r}: {type(error).__name__}: {error}") from error


def test_the_project_beside_a_lock_of_poetry_with_one_value_of_another_type(tmp_path):
    (tmp_path / "poetry.lock").write_text(lock_of("2.0"))
    project = parsed_toml(POETRY_PROJECT + SELECTED)
    for path in places(project):
        for new in NEW:
            (tmp_path / "pyproject.toml").write_text(toml_file(replaced(project, path, new)))
            check(tmp_path / "poetry.lock", lock_of("2.0"))


@every_row(("name", "text"), LINES)
def test_a_list_with_one_word_replaced(name, text, tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    (folder / "base.txt").write_text("numpy\n")
    words = text.split(" ")
    for index in range(len(words)):
        for new in ("5", "", "[]", "{}", "x", "[[]]", "\n", "==", ";", "--hash"):
            check(folder / name, " ".join([*words[:index], new, *words[index + 1 :]]))
