"""Locks and settings of tools for projects: uv, Poetry, pipenv, setuptools; and files that another tool converts."""

import json
import subprocess
import textwrap

import pytest
from uv import find_uv_bin

from envpack.requirements.conda_spec import poetry_range
from envpack.requirements.format import read_requirements
from envpack.requirements.formats.pip_file import _PUBLIC
from tests.tables import every_row

PUBLIC = f"https://{_PUBLIC[0]}/simple"  # the public index, which a lock names although nobody chose it
A, B = "a" * 64, "b" * 64
PROJECT = """\
    [project]
    name = "project"
    version = "0"
    requires-python = ">=3.9"
    dependencies = ["click"]
    [project.optional-dependencies]
    more = ["six"]
    [dependency-groups]
    dev = ["idna"]
    """


def uv_package(name, version, requires=""):
    wheel = f"https://files.example.org/{name}-{version}-py3-none-any.whl"
    return f"""
[[package]]
name = "{name}"
version = "{version}"
source = {{ registry = "https://index.example.org/simple" }}
{requires}
wheels = [{{ url = "{wheel}", hash = "sha256:{A}", size = 1 }}]
"""


UV_LOCK = (
    'version = 1\nrevision = 3\nrequires-python = ">=3.9"\n'
    + uv_package("click", "8.1", 'dependencies = [{ name = "colorama", marker = "sys_platform == \'win32\'" }]')
    + uv_package("colorama", "0.4")
    + uv_package("idna", "3.4")
    + uv_package("six", "1.16")
    + """
[[package]]
name = "project"
version = "0"
source = { virtual = "." }
dependencies = [{ name = "click" }]
[package.optional-dependencies]
more = [{ name = "six" }]
[package.dev-dependencies]
dev = [{ name = "idna" }]
[package.metadata]
requires-dist = [{ name = "click" }, { name = "six", marker = "extra == 'more'" }]
provides-extras = ["more"]
[package.metadata.requires-dev]
dev = [{ name = "idna" }]
"""
)


def versions(found):
    return {package.name: package.version for package in found.locked_pip}


def test_uv_lock_gives_the_locked_wheels_of_the_target(write):
    project, lock = write("pyproject.toml", PROJECT), write("uv.lock", UV_LOCK)
    found = read_requirements(lock, python="3.10")
    assert versions(found) == {"click": "8.1"}
    assert (found.python_range, found.files, found.download_variables) == (">=3.9", (lock, project), {})
    write("pyproject.toml", PROJECT + '[[tool.uv.index]]\nname = "own"\nurl = "https://x.example"\nformat = "flat"\n')
    assert read_requirements(lock, python="3.10").download_variables == {"UV_INDEX": "own=https://x.example"}
    write("pyproject.toml", PROJECT + '[tool.envpack]\nextras = ["more"]\ngroups = ["dev"]\n')
    assert versions(read_requirements(lock, python="3.10")) == {"click": "8.1", "six": "1.16", "idna": "3.4"}


@every_row("allowed", ["==3.10.14", ">=3.10,<3.10.20"])
def test_a_lock_for_some_patches_of_a_python_is_read(write, allowed):
    write("pyproject.toml", PROJECT.replace(">=3.9", allowed))
    lock = write("uv.lock", UV_LOCK.replace(">=3.9", allowed))
    assert versions(read_requirements(lock, python="3.10")) == {"click": "8.1"}


def test_uv_lock_without_its_project_or_damaged_is_refused(write, refused):
    lock = write("uv.lock", UV_LOCK)
    assert "uv export --no-emit-project" in refused(lock).hint
    write("pyproject.toml", "[tool.ruff]\nline-length = 100\n")  # from which uv would export nothing
    assert "uv export --no-emit-project" in refused(lock, python="3.10").hint
    write("pyproject.toml", PROJECT)
    write("uv.lock", UV_LOCK.replace("[[package]]", "[[package", 1))
    error = refused(lock, python="3.10")
    assert error.message.startswith("uv cannot read it: ")
    assert error.hint == "write it again: uv lock"


def test_uv_lock_with_wheels_whose_index_names_no_hashes_says_how_to_do_without(write, tmp_path, refused):
    """For the hashes uv would download the wheels of all platforms."""
    lock = write("uv.lock", UV_LOCK.replace(f', hash = "sha256:{A}", size = 1', "", 1))
    write("pyproject.toml", PROJECT)
    error = refused(lock, python="3.10")
    assert error.where == str(lock)
    assert error.message == (
        "has no hash of 'https://files.example.org/click-8.1-py3-none-any.whl', since its index names none"
    )
    command = error.hint.removeprefix("run there: ").removesuffix(", and name that file").split()
    subprocess.run([find_uv_bin(), *command[1:], "--frozen", "--quiet"], cwd=tmp_path, check=True)
    found = read_requirements(tmp_path / "requirements.txt", python="3.10")
    assert [requirement.partition(";")[0].strip() for requirement in found.pip] == ["click==8.1", "colorama==0.4"]


@every_row(
    ("selection", "message"),
    [
        ('extras = ["gpu"]', "Extra `gpu` is not defined"),
        ('groups = ["serve"]', "Group `serve` is not defined"),
    ],
)
def test_an_extra_or_group_that_uv_lock_lacks_is_refused(write, refused, selection, message):
    write("pyproject.toml", f"{textwrap.dedent(PROJECT)}[tool.envpack]\n{selection}\n")
    error = refused(write("uv.lock", UV_LOCK), python="3.10")
    assert message in error.message
    assert error.hint == "correct extras and groups in [tool.envpack]"


POETRY_NEW = f"""\
[[package]]
name = "click"
version = "8.1"
optional = false
groups = ["main"]
markers = "python_version >= \\"3.9\\""
files = [
    {{file = "click-8.1-py3-none-any.whl", hash = "sha256:{A}"}},
    {{file = "click-8.1.tar.gz", hash = "sha256:{B}"}},
]

[[package]]
name = "pytest"
version = "8.0"
optional = false
groups = ["dev"]
files = []

[[package]]
name = "six"
version = "1.16"
optional = true
groups = ["main"]
markers = {{main = "extra == \\"more\\"", dev = "sys_platform == \\"linux\\""}}
files = []

[extras]
more = ["six"]

[metadata]
lock-version = "2.1"
python-versions = ">=3.9,<4.0"
"""
POETRY_OLD = """\
[[package]]
name = "click"
version = "8.1"
optional = false
files = []

[package.dependencies]
colorama = {version = "*", markers = "platform_system == \\"Windows\\""}
h11 = {version = ">=0.1", optional = true, markers = "extra == \\"http\\""}

[[package]]
name = "colorama"
version = "0.4"
optional = false
files = []

[[package]]
name = "h11"
version = "0.14"
optional = true
files = []

[[package]]
name = "pytest"
version = "8.0"
optional = false
files = []

[metadata]
lock-version = "2.0"
python-versions = "^3.8"
"""


def test_poetry_lock_gives_the_main_group_with_hashes(write):
    lock = write("poetry.lock", POETRY_NEW)
    found = read_requirements(lock)
    assert found.pip == (f'click==8.1; python_version >= "3.9" --hash=sha256:{A} --hash=sha256:{B}',)
    assert (found.python_range, found.places[found.pip[0]]) == (">=3.9,<4.0", f"{lock}:2")
    write("pyproject.toml", '[tool.envpack]\nextras = ["more"]\n')
    assert [line.partition("=")[0] for line in read_requirements(lock).pip] == ["click", "six"]


def test_poetry_lock_without_groups_is_read_with_its_project(write, refused):
    lock = write("poetry.lock", POETRY_OLD)
    assert "poetry lock" in refused(lock).hint
    write("pyproject.toml", '[tool.poetry.dependencies]\npython = "^3.8"\nClick = "^8.0"\n')
    found = read_requirements(lock)
    assert (found.pip, found.python_range) == (("click==8.1",), ">=3.8,<4")
    write("pyproject.toml", '[tool.poetry.dependencies]\nclick = {version = "*", extras = ["http"]}\n')
    assert read_requirements(lock).pip == ("click==8.1", "h11==0.14")
    write("poetry.lock", POETRY_OLD.replace('"pytest"', '"h11"'))
    assert "locked twice" in refused(lock).message


@every_row(("kind", "place"), [("file", "own-1-py3-none-any.whl"), ("directory", "own")])
def test_poetry_packages_in_a_folder_are_read_as_pip_reads_them(write, kind, place):
    write("own/pyproject.toml", '[project]\nname = "own"\nversion = "1"\n')
    wheel = write("own-1-py3-none-any.whl", "")
    source = f'files = []\n[package.source]\ntype = "{kind}"\nurl = "{place}"\n'
    lock = f'[[package]]\nname = "own"\nversion = "1"\ngroups = ["main"]\n{source}[metadata]\nlock-version = "2.1"\n'
    found = read_requirements(write("poetry.lock", f'{lock}python-versions = "*"\n'), python="3.10")
    assert (found.pip, found.projects) == (
        ((f"own @ {wheel.as_uri()}",), ()) if kind == "file" else ((), (wheel.with_name("own"),))
    )


def test_poetry_package_of_a_repository_is_refused(write, refused):
    source = '[package.source]\ntype = "git"\nurl = "https://me:very-secret@example.org/x"\n\n'
    second = '[[package]]\nname = "pytest"'
    lock = write("poetry.lock", POETRY_NEW.replace(second, source + second, 1))
    assert "very-secret" not in str(refused(lock, 2))


@every_row(
    ("text", "expected"),
    [
        ("*", ""),
        ("^3.8", ">=3.8,<4"),
        ("^3.8.1", ">=3.8.1,<4"),
        ("~3.9", ">=3.9,<3.10"),
        ("~3.9.2", ">=3.9.2,<3.10"),
        ("~3", ">=3,<4"),
        ("^0.2.3", ">=0.2.3,<0.3"),
        ("^0", ">=0,<1"),
        ("3.10.*", "==3.10.*"),
        ("3.10", "==3.10.*"),
        (">=3.8 <3.12", ">=3.8,<3.12"),
        (">=3.8, !=3.9.*, <4.0", ">=3.8,!=3.9.*,<4.0"),
        ("~3.7 || ^3.10", ">=3.7,<3.8|>=3.10,<4"),
    ],
)
def test_poetry_ranges_of_python(text, expected):
    assert poetry_range(text) == expected


@every_row("text", [">=3.1||" * 200 + ">=3.1", "=" * 2000, ">=" + "1" * 999])
def test_a_range_of_python_that_would_take_long_is_refused(write, refused, text):
    lock = write("poetry.lock", f'[metadata]\nlock-version = "2.1"\npython-versions = "{text}"\n')
    assert "is not a range" in refused(lock).message
    project = write("pyproject.toml", f'[project]\nname = "m"\nrequires-python = "{text}"\n')
    assert "requires-python is not a range" in refused(project, 3).message


def test_pipfile_lock_gives_the_section_default(write):
    packages = {
        "click": {"version": "==8.1", "hashes": [f"sha256:{A}"], "markers": "python_version >= '3.7'", "index": "pypi"},
        "uvicorn": {"version": "==0.20", "extras": ["standard"]},
    }
    meta = {"requires": {"python_version": "3.10"}, "sources": [{"name": "pypi", "url": PUBLIC}]}
    content = {"_meta": meta, "default": packages, "develop": {"pytest": {"version": "==8.0"}}}
    found = read_requirements(write("Pipfile.lock", json.dumps(content, indent=4)))
    assert found.pip == (f'click==8.1; python_version >= "3.7" --hash=sha256:{A}', "uvicorn[standard]==0.20")
    assert (found.python, found.pip_options) == ("3.10", ())
    meta["sources"].insert(0, {"name": "own", "url": "https://index.example.org/simple"})
    found = read_requirements(write("Pipfile.lock", json.dumps(content, indent=4)))
    assert found.pip_options == ("--index-url https://index.example.org/simple",)
    assert found.indexes == (("click", PUBLIC),)
    meta["sources"] = []
    assert read_requirements(write("Pipfile.lock", json.dumps(content, indent=4))).indexes == ()
    meta["sources"] = [{"url": "https://a.example"}, {"url": "https://b.example"}]
    found = read_requirements(write("Pipfile.lock", json.dumps(content, indent=4)))
    assert (found.pip_options, found.indexes) == (("--index-url https://a.example",), ())


@pytest.mark.parametrize(
    ("package", "says"),
    [
        ({"git": "https://example.org/x", "ref": "1"}, "'x @ git+https://example.org/x' is in version control"),
        ({"git": "git+https://example.org/x"}, "'x @ git+https://example.org/x' is in version control"),
        ({"hg": "https://example.org/x"}, "'x @ hg+https://example.org/x' is in version control"),
        ({"path": "."}, "no Python project"),
        ({"version": "*"}, "has no version"),
        ({"version": "*", "markers": "python_version < '3.12'"}, "has no version"),
        ({"version": "*", "markers": "unknown"}, "has no version"),
        ("*", "has no version"),
    ],
)
def test_what_pipenv_takes_from_elsewhere_is_refused_with_its_line(write, refused, package, says):
    content = {"_meta": {}, "default": {"x": package}}
    assert says in refused(write("Pipfile.lock", json.dumps(content, indent=1)), 4).message


@every_row(("requires", "python"), [({}, "3.11"), ({}, lambda _: "3.11"), ({"python_version": "3.11"}, "")])
def test_what_pipenv_did_not_lock_is_left_out_if_the_target_does_not_need_it(write, requires, python):
    unlocked = {"tomli": {"version": "*", "markers": "python_version < '3.11'"}}
    content = {"_meta": {"requires": requires}, "default": {**unlocked, "six": {"version": "==1.16.0"}}}
    assert read_requirements(write("Pipfile.lock", json.dumps(content)), python=python).pip == ("six==1.16.0",)


@every_row(
    ("requires", "allowed", "python"),
    [
        ({"python_version": "3.10"}, "==3.10.*", "3.10"),
        ({"python_version": "3"}, "==3.*", ""),
        ({"python_version": "*"}, "", ""),
        ({"python_version": "3.10.4"}, "==3.10.*", "3.10"),
        ({"python_full_version": "3.9.4", "python_version": "3.9"}, "==3.9.*", "3.9"),
        ({"python_full_version": "3.9.4"}, "==3.9.*", "3.9"),
        ({}, "", ""),
        (None, "", ""),
    ],
)
def test_the_python_of_a_pipfile_lock(write, requires, allowed, python):
    content = {"_meta": {"requires": requires}, "default": {}}
    found = read_requirements(write("Pipfile.lock", json.dumps(content)))
    assert (found.python_range, found.python) == (allowed, python)


@every_row(
    ("content", "line", "message"),
    [
        ({"default": {"x": {"version": "==1", "hashes": 5}}, "_meta": {}}, 3, "hashes must be a list"),
        (
            {"default": {"x": {"version": "==1", "extras": [5, []]}}, "_meta": {}},
            3,
            "each entry of extras must be text",
        ),
        ({"default": {}, "_meta": {"sources": [5]}}, 0, "each entry of sources must be a table"),
        ({"default": {}, "_meta": {"requires": {"python_version": "new"}}}, 5, "'new' is not a version of Python"),
        ({"default": {}}, 0, "not a lock of pipenv"),
        ([], 0, "not a lock of pipenv"),
    ],
)
def test_a_malformed_pipfile_lock_is_refused(write, refused, content, line, message):
    assert refused(write("Pipfile.lock", json.dumps(content, indent=1)), line).message == message


def test_a_package_that_pipenv_could_not_lock_is_removed_from_the_pipfile(write, refused):
    content = {"_meta": {}, "default": {"pywin32": {"version": "*"}}}
    assert refused(write("Pipfile.lock", json.dumps(content))).hint.startswith(
        "remove pywin32 from the Pipfile if only"
    )


def test_a_wrong_python_of_a_pipfile_lock_is_corrected_in_the_pipfile(write, refused):
    content = {"_meta": {"requires": {"python_version": "^3.12"}}, "default": {}}
    hint = refused(write("Pipfile.lock", json.dumps(content))).hint
    assert hint == "correct it in the Pipfile, like 3.12, and write the lock again: pipenv lock"


def test_a_project_of_a_pipfile_lock_counts_if_its_marker_holds(write, tmp_path):
    """pipenv writes the Python that a project requires as its marker."""
    write("lib/pyproject.toml", "")
    packages = {
        "lib": {"editable": True, "path": "./lib", "markers": "python_version >= '3.8'"},
        "other": {"path": "./other", "markers": "sys_platform == 'win32'"},
    }
    lock = write("Pipfile.lock", json.dumps({"_meta": {}, "default": packages}))
    assert read_requirements(lock, python=lambda _: "3.10").projects == (tmp_path / "lib",)


def test_a_pipfile_lock_without_hashes_is_read_and_a_wheel_keeps_its_hash(write):
    address = "https://example.org/own-1-py3-none-any.whl"
    packages = {"six": {"version": "==1", "hashes": None}, "own": {"file": address, "hashes": [f"sha256:{A}"]}}
    found = read_requirements(write("Pipfile.lock", json.dumps({"_meta": {}, "default": packages})))
    assert found.pip == ("six==1", f"own @ {address} --hash=sha256:{A}")


def test_setup_cfg_gives_what_it_installs(write, refused):
    text = "[options]\ninstall_requires =\n    numpy<2\n    six; python_version<'3.9'\npython_requires = >=3.8,<3.9\n"
    found = read_requirements(write("setup.cfg", text))
    assert (found.pip, found.python) == (("numpy<2", 'six; python_version < "3.9"'), "3.8")
    refused(write("setup.cfg", "[options]\ninstall_requires =\n    numpy\n    sci kit\n"), 4)
    assert read_requirements(write("setup.cfg", text.replace("_requires", "-requires"))) == found  # as long ago
    refused(write("setup.cfg", "[options]\ninstall_requires = file: requirements.txt\n"), 2)
    refused(write("setup.cfg", "[options\n"))


@every_row(
    ("name", "command"),
    [
        ("Pipfile", "pipenv lock"),
        ("pixi.toml", "pixi lock"),
        ("pdm.lock", "pdm export --format pylock --output pylock.toml"),
        ("setup.py", "uv pip compile setup.py --output-file requirements.txt"),
        ("anaconda-project.yml", "anaconda-project export-env-spec environment.yml"),
    ],
)
def test_a_file_of_another_tool_is_refused_with_the_command_that_converts_it(write, refused, name, command):
    assert refused(write(name, "")).hint.endswith(command)
