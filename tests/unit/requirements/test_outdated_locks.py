"""A lock that is older than the project beside it is refused, with the line that it lacks."""

import json

import pytest

from envpack.requirements.format import read_requirements
from tests.tables import every_row

POETRY_LOCK = """
[[package]]
name = "portalocker"
version = "2.7.0"
groups = ["main"]
[metadata]
lock-version = "2.1"
python-versions = ">=3.9"
"""
UV_LOCK = """
version = 1
requires-python = ">=3.9"
[[package]]
name = "my-model"
version = "1"
source = { virtual = "." }
dependencies = [{ name = "portalocker" }]
[[package]]
name = "portalocker"
version = "2.7.0"
source = { registry = "https://index.example/simple" }
wheels = [{ url = "https://x/portalocker-2.7.0-py3-none-any.whl", hash = "sha256:%s", size = 1 }]
""" % ("a" * 64)
LOCKS = [("poetry.lock", POETRY_LOCK, "poetry lock"), ("uv.lock", UV_LOCK, "uv lock")]
FITTING = (
    "portalocker",
    "Portalocker >=2.7,<3",
    "portalocker[redis]",
    "other; sys_platform == 'win32'",
    "other; python_version < '3.10'",
    "my_model[extra]",
)


def project(*dependencies):
    head = '[project]\nname = "my-model"\nversion = "1"\nrequires-python = ">=3.9"\n'
    return f"{head}dependencies = {json.dumps(dependencies)}\n"


@pytest.mark.parametrize(("name", "lock", "command"), LOCKS)
def test_a_lock_that_lacks_a_requirement_is_refused(write, refused, name, lock, command):
    file = write(name, lock)
    write("pyproject.toml", project("portalocker", "typing-extensions"))
    error = refused(file, line=5, python="3.10")
    assert error.message == f"'typing-extensions' is required, and {name} does not have it: the lock is older"
    assert error.hint == f"write the lock again: {command}"
    write("pyproject.toml", project("portalocker>=2.8"))
    error = refused(file, line=5, python="3.10")
    assert error.message == f"'portalocker>=2.8' is required, and {name} has 2.7.0: the lock is older"


EXTRA = """
[package.optional-dependencies]
more = [{ name = "portalocker" }]
[package.dev-dependencies]
more = [{ name = "portalocker" }]
[package.metadata]
provides-extras = ["more"]
[package.metadata.requires-dev]
more = [{ name = "portalocker" }]
"""
IN_POETRY = POETRY_LOCK.replace('["main"]', '["main", "more"]') + '[extras]\nmore = ["portalocker"]\n'


@every_row(
    ("selected", "table"),
    [
        ("extras", "[project.optional-dependencies]\nmore = "),
        ("groups", "[dependency-groups]\nmore = "),
        ("groups", "[tool.poetry.group.more.dependencies]\n"),
    ],
)
def test_a_lock_that_lacks_what_a_selected_extra_or_group_requires_is_refused(write, refused, selected, table):
    in_uv = UV_LOCK.replace('"portalocker" }]', f'"portalocker" }}]{EXTRA}', 1)
    head, is_poetrys = project("portalocker") + f'[tool.envpack]\n{selected} = ["more"]\n', "poetry" in table
    for name, lock, command in [("poetry.lock", IN_POETRY, "poetry lock"), ("uv.lock", in_uv, "uv lock")][
        : 2 - is_poetrys
    ]:
        file = write(name, lock)
        write("pyproject.toml", head + table + ('portalocker = "*"' if is_poetrys else '["portalocker"]'))
        found = read_requirements(file, python="3.10")
        assert len((*found.pip, *found.locked_pip)) == 1
        write("pyproject.toml", head + table + ('idna = "*"' if is_poetrys else '["portalocker", "idna"]'))
        error = refused(file, line=9, python="3.10")
        assert error.message == f"'idna' is required, and {name} does not have it: the lock is older"
        assert error.hint == f"write the lock again: {command}"


@pytest.mark.parametrize(("name", "lock", "command"), LOCKS)
def test_a_lock_that_has_what_applies_to_the_target_is_read(write, name, lock, command):
    write("pyproject.toml", project(*FITTING))
    found = read_requirements(write(name, lock), python="3.10")
    assert len((*found.pip, *found.locked_pip)) == 1


def test_overrides_of_uv_may_change_what_is_required(write):
    override = '[tool.uv]\noverride-dependencies = ["portalocker<2.8"]\n'
    write("pyproject.toml", project("portalocker>=2.8") + override)
    assert read_requirements(write("uv.lock", UV_LOCK), python="3.10").locked_pip


@pytest.mark.parametrize("lock", [POETRY_LOCK, POETRY_LOCK.replace("2.1", "2.0").replace('groups = ["main"]\n', "")])
def test_dependencies_in_poetrys_own_table_are_compared_too(write, refused, lock):
    file = write("poetry.lock", lock)
    table = '[tool.poetry.dependencies]\npython = ">=3.9"\nPortalocker = "*"\n'
    table += 'other = {version = "*", python = "<3.10"}\nextra = {version = "*", optional = true}\n'
    write("pyproject.toml", table)
    assert len(read_requirements(file, python="3.10").pip) == 1
    write("pyproject.toml", f'{table}typing-extensions = "*"\n')
    assert refused(file, line=6, python="3.10").hint == "write the lock again: poetry lock"


@every_row(
    ("entry", "other"),
    [
        ('"^2.6"', ""),
        ('{version = ">=2,<2.8"}', ""),
        ('"^1.0 || ^2.7"', ""),
        ('{git = "https://x"}', ""),
        ('"^2.0-unknown"', ""),
        ('[{version = "<2", python = "<3.10"}, {version = ">=2", python = ">=3.10"}]', ""),
        ('"^1.0 || ^3.0"', ">=1.0,<2|>=3.0,<4"),
        ('{version = "~2.6"}', ">=2.6,<2.7"),
        ('[{version = ">=2", python = "<3.10"}, {version = "<2", python = ">=3.10"}]', "<2"),
    ],
)
def test_versions_in_poetrys_own_table_are_compared(write, refused, entry, other):
    file = write("poetry.lock", POETRY_LOCK)
    write("pyproject.toml", f'[tool.poetry.dependencies]\npython = ">=3.9"\nPortalocker = {entry}\n')
    if other:
        message = f"'portalocker{other}' is required, and poetry.lock has 2.7.0: the lock is older"
        assert refused(file, python="3.10").message == message
    else:
        assert len(read_requirements(file, python="3.10").pip) == 1


NAMED = '[project]\nname = "my-model"\nversion = "1"\n'


@every_row(
    ("text", "older"),
    [
        ('[project]\nname = "my-model"\nversion = "1"\nrequires-python = ">=3.11"\n', ["poetry.lock", "uv.lock"]),
        ('[project]\nname = "my-model"\nversion = "1"\nrequires-python = ">=3.8"\n', []),
        (f'[tool.poetry.dependencies]\nportalocker = "*"\npython = ">=3.11"\n{NAMED}', ["poetry.lock"]),
    ],
)
def test_a_lock_for_pythons_that_the_project_excludes_is_refused(write, refused, text, older):
    write("pyproject.toml", text)
    for name, lock, command in LOCKS:
        file = write(name, lock)
        if name in older:
            error = refused(file, line=3 if text.endswith(NAMED) else 4, python="3.11")
            assert error.message == f"Python '>=3.11' is required, and {name} is for '>=3.9': the lock is older"
            assert error.hint == f"write the lock again: {command}"
        else:
            assert read_requirements(file, python="3.11")


@every_row(
    ("packages", "message"),
    [
        ('Six = "*"', ""),
        ('"six[extra]" = ">=1.16"', ""),
        ('six = {version = "==1.16.0", extras = ["x"]}', ""),
        ('six = {git = "https://x"}', ""),
        ('six = ">=1.17"', "'six>=1.17' is required, and Pipfile.lock has 1.16.0: the lock is older"),
        ('six = "*"\nother = "*"', "'other' is required, and Pipfile.lock does not have it: the lock is older"),
    ],
)
def test_a_pipfile_lock_is_compared_with_its_pipfile(write, refused, packages, message):
    file = write("Pipfile.lock", json.dumps({"_meta": {}, "default": {"six": {"version": "==1.16.0"}}}))
    write("Pipfile", f"[packages]\n{packages}\n")
    if message:
        error = refused(file, line=packages.count("\n") + 2)
        assert (error.message, error.hint) == (message, "write the lock again: pipenv lock")
    else:
        assert read_requirements(file).pip == ("six==1.16.0",)
