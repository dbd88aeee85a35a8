"""poetry.lock: the packages that extras, groups and markers select, in the forms that Poetry 1.8 and 2.1 write."""

import re

from envpack.requirements.format import read_requirements
from tests.tables import every_row
from tests.unit.requirements.test_odd_files import parsed_toml, toml_file

PROJECT = """
[tool.poetry.dependencies]
python = "^3.9"
portalocker = "^1.0"
tomli = {version = "^1", python = "<3.11"}
uvicorn = {version = "^1.0", extras = ["standard"], optional = true}
appnope = [{version = "^1", platform = "darwin"}, {version = "^1", markers = "os_name == 'nt'"}]
[tool.poetry.group.serve.dependencies]
orjson = "*"
"""
LOCK = """
[[package]]
name = "appnope"
version = "1.0"
groups = ["main"]
markers = 'sys_platform == "darwin" or os_name == "nt"'
[[package]]
name = "colorama"
version = "1.0"
groups = ["main", "serve"]
markers = {main = 'extra == "web" and sys_platform == "win32"', serve = 'python_version < "3.12"'}
[[package]]
name = "h11"
version = "1.0"
optional = true
groups = ["main"]
markers = 'extra == "web"'
[[package]]
name = "httptools"
version = "1.0"
optional = true
groups = ["main"]
markers = 'extra == "web"'
[[package]]
name = "orjson"
version = "1.0"
groups = ["serve"]
[package.dependencies]
colorama = {version = "*", markers = 'python_version < "3.12"'}
[[package]]
name = "portalocker"
version = "1.0"
groups = ["main"]
[package.dependencies]
pywin32 = {version = ">=226", markers = 'platform_system == "Windows"'}
[[package]]
name = "pytest"
version = "1.0"
groups = ["dev"]
[[package]]
name = "pywin32"
version = "1.0"
groups = ["main"]
markers = 'platform_system == "Windows"'
[[package]]
name = "tomli"
version = "1.0"
groups = ["main"]
markers = 'python_version < "3.11"'
[[package]]
name = "typing-extensions"
version = "1.0"
optional = true
groups = ["main"]
markers = 'extra == "web" and python_full_version < "3.11.3"'
[[package]]
name = "uvicorn"
version = "1.0"
optional = true
groups = ["main"]
markers = 'extra == "web"'
[package.dependencies]
h11 = ">=0.8"
colorama = {version = "*", optional = true, markers = 'sys_platform == "win32" and extra == "standard"'}
httptools = {version = "*", optional = true, markers = 'extra == "standard"'}
typing_extensions = {version = "*", markers = 'python_full_version < "3.11.3"'}
[extras]
web = ["uvicorn (>=0.30)"]
[metadata]
lock-version = "2.1"
python-versions = "^3.9"
"""
SELECTED = "[tool.envpack]\nextras = ['web']\ngroups = ['serve']\n"
EXAMPLE = ("poetry.lock", toml_file, parsed_toml(LOCK), {"pyproject.toml": PROJECT + SELECTED})


def lock_of(version):
    return (
        LOCK if version == "2.1" else re.sub(r"(?m)^(groups|markers) = .*\n", "", LOCK).replace('"2.1"', f'"{version}"')
    )


@every_row(
    ("python", "selection", "names"),
    [
        ("3.10", "", "portalocker tomli"),
        ("3.12", "", "portalocker"),
        ("3.10", 'extras = ["Web"]', "h11 httptools portalocker tomli typing-extensions uvicorn"),
        ("3.12", 'extras = ["web"]', "h11 httptools portalocker uvicorn"),
        ("3.11", 'groups = ["Serve"]', "colorama orjson portalocker"),
        ("3.12", 'groups = ["serve"]\nextras = ["web"]', "h11 httptools orjson portalocker uvicorn"),
    ],
)
def test_both_versions_of_the_lock_give_the_packages_of_extras_groups_and_python(write, python, selection, names):
    write("pyproject.toml", f"{PROJECT}[tool.envpack]\n{selection}\n")
    for version in ("2.0", "2.1"):
        lock = write("poetry.lock", lock_of(version))
        assert read_requirements(lock).files == (lock, lock.with_name("pyproject.toml"))
        for how in ({"python": python}, {"python": lambda _, chosen=python: chosen}):
            assert read_requirements(lock, **how).pip == tuple(f"{name}==1.0" for name in names.split()), version


def test_the_group_dev_of_an_old_project_is_read(write):
    write(
        "pyproject.toml", f'{PROJECT}[tool.poetry.dev-dependencies]\npytest = "*"\n[tool.envpack]\ngroups = ["dev"]\n'
    )
    lock = write("poetry.lock", lock_of("1.1"))
    assert read_requirements(lock, python="3.12").pip == ("portalocker==1.0", "pytest==1.0")


def test_a_package_for_some_pythons_keeps_its_marker_while_python_is_unknown(write):
    write("pyproject.toml", PROJECT + '[tool.envpack]\nextras = ["web"]\n')
    expected = {"2.0": 'tomli==1.0; python_full_version < "3.11"', "2.1": 'tomli==1.0; python_version < "3.11"'}
    for version, tomli in expected.items():
        found = read_requirements(write("poetry.lock", lock_of(version))).pip
        assert found[3:5] == (tomli, 'typing-extensions==1.0; python_full_version < "3.11.3"'), version


@every_row(
    ("selection", "version", "message", "hint"),
    [
        ('extras = ["none"]', "2.1", "there is no extra 'none' in the lock", "poetry lock"),
        ('groups = ["none"]', "2.1", "there is no package of the group 'none' in the lock", "poetry lock"),
        ('groups = ["none"]', "2.0", "there is no group 'none' in [tool.poetry.group]", "tool.envpack.groups"),
    ],
)
def test_an_unknown_extra_or_group_is_refused(write, refused, selection, version, message, hint):
    write("pyproject.toml", f"{PROJECT}[tool.envpack]\n{selection}\n")
    error = refused(write("poetry.lock", lock_of(version)))
    assert error.message == message
    assert hint in error.hint


@every_row(
    ("old", "new", "message", "line"),
    [
        ("\"os_name == 'nt'\"", '"os_name is nt"', "'(os_name is nt)' is not a marker", 0),
        ('python = "<3.11"', 'python = "<"', "python of a dependency is not a range", 0),
        ('orjson = "*"', "orjson = [[]]", "a dependency must be a version or a table", 0),
    ],
)
def test_a_malformed_dependency_of_the_project_is_refused(write, refused, old, new, message, line):
    write("pyproject.toml", PROJECT.replace(old, new) + '[tool.envpack]\ngroups = ["serve"]\n')
    assert refused(write("poetry.lock", lock_of("2.0")), line).message == message


def test_a_malformed_marker_of_a_package_is_refused_with_its_line(write, refused):
    lock = write("poetry.lock", lock_of("2.1").replace("'python_version < \"3.11\"'", "'later'"))
    assert (
        refused(lock, lock.read_text().split('name = "tomli"')[0].count("\n") + 1).message == "'later' is not a marker"
    )


def test_a_wheel_of_an_address_keeps_its_marker_and_its_hash(write):
    digest = "a" * 64
    lock = write(
        "poetry.lock",
        f"""\
        [[package]]
        name = "own"
        version = "1.0"
        groups = ["main"]
        markers = "python_version < \\"3.11\\""
        files = [{{file = "own-1.0-py3-none-any.whl", hash = "sha256:{digest}"}}]
        [package.source]
        type = "url"
        url = "https://example.org/own-1.0-py3-none-any.whl"
        [metadata]
        lock-version = "2.1"
        python-versions = "*"
        """,
    )
    assert read_requirements(lock).pip == (
        f'own @ https://example.org/own-1.0-py3-none-any.whl ; python_version < "3.11" --hash=sha256:{digest}',
    )


def test_lock_of_an_old_poetry_names_a_command_that_works(write, refused):
    """``poetry lock`` keeps the versions of a lock that it reads; Poetry 2 reads none without a version."""
    error = refused(write("poetry.lock", '[[package]]\nname = "six"\n\n[metadata]\npython-versions = "^3.8"\n'))
    assert error.message == "the lock has no version, as before Poetry 1.1"
    assert error.hint.endswith("delete it, and run: poetry lock")
