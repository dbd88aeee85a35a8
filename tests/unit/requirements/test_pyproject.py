"""pyproject.toml: dependencies, extras and groups of a project."""

import pytest

from envpack.requirements import read_requirements

PROJECT = """\
[project]
name = "My-Model"
version = "1"
requires-python = ">=3.10,<3.11"
dependencies = [
    "numpy<2",
    "scipy ; python_version < '3.11'",
]

[project.optional-dependencies]
gpu = ["cupy-cuda12x"]
All = ["my_model[gpu,vision]", "my-model", "six"]
vision = ["pillow", "my-model[all]"]

[dependency-groups]
serve = ["orjson", {include-group = "Common"}]
common = ["click"]
circle = [{include-group = "circle"}]
odd = [3]
"""


def test_dependencies_and_python(write):
    file = write("pyproject.toml", PROJECT)
    found = read_requirements(file)
    assert found.pip == ("numpy<2", 'scipy; python_version < "3.11"')
    assert (found.python, found.source, found.files) == ("3.10", file, (file,))


@pytest.mark.parametrize(
    ("specifier", "python"),
    [(">=3.10", ""), ("==3.10.*", "3.10"), ("==3.10.13", "3.10"), ("~=3.10.4", "3.10"), (">=3.10,!=3.11.*", "")],
)
def test_requires_python_names_a_python_only_if_it_allows_one_minor_version(write, specifier, python):
    file = write("pyproject.toml", PROJECT.replace(">=3.10,<3.11", specifier))
    assert read_requirements(file).python == python


def test_extras_and_groups_that_the_project_selects(write):
    file = write("pyproject.toml", PROJECT + '[tool.envpack]\nextras = ["all"]\ngroups = ["serve"]\n')
    assert read_requirements(file).pip[2:] == ("six", "cupy-cuda12x", "pillow", "orjson", "click")


def test_groups_need_no_project(write):
    text = '[dependency-groups]\nserve = ["orjson"]\n[tool.envpack]\ngroups = ["serve"]\n'
    assert read_requirements(write("pyproject.toml", text)).pip == ("orjson",)


def test_local_wheel_and_project(write):
    wheel = write("own-1.0-py3-none-any.whl", "")
    project = write("lib/setup.py", "").parent
    dependencies = f'dependencies = ["own @ {wheel.as_uri()}", "lib[x] @ {project.as_uri()}"]'
    found = read_requirements(write("pyproject.toml", f'[project]\nname = "m"\n{dependencies}\n'))
    assert found.pip == (f"own @ {wheel.as_uri()}", "lib[x]")
    assert found.projects == (project,)


@pytest.mark.parametrize(
    ("old", "new", "expected", "line"),
    [
        ('"numpy<2"', '"numpy<"', "'numpy<' is not a requirement", 6),
        ('"numpy<2"', '"x @ git+https://me:very-secret@example.org/x"', "version control", 6),
        ('"numpy<2"', '"x @ https://me:very-secret@example.org/x-1-py3-none-any.whl"', "password", 6),
        ('"numpy<2"', "3", "project.dependencies must be a list of texts", 5),
        ('version = "1"', 'dynamic = ["version", "dependencies"]', "computes its dependencies", 3),
        ('version = "1"', "dynamic = 3", "project.dynamic must be a list", 3),
        ('">=3.10,<3.11"', '"three"', "requires-python", 4),
        ('">=3.10,<3.11"', "3.10", "requires-python", 4),
        ("[project]", "[project", "not valid TOML", 1),
        (
            "[dependency-groups]",
            "[tool.uv.sources]\nNumPy = {git = 'x'}\n[dependency-groups]",
            "source of numpy in [tool.uv.sources] is not read",
            6,
        ),
        ("[dependency-groups]", "[tool]\nuv = 3\n[dependency-groups]", "tool.uv must be a table", 0),
        ("[dependency-groups]", "[tool]\nenvpack = 3\n[dependency-groups]", "tool.envpack must be a table", 0),
        ("[dependency-groups]", "[tool.envpack]\nextra = []\n[dependency-groups]", "unknown key 'extra'", 0),
        ("[dependency-groups]", "[tool.envpack]\nextras = 'x'\n[dependency-groups]", "tool.envpack.extras must be", 0),
        ("[dependency-groups]", "[tool.envpack]\nextras = ['nope']\n[dependency-groups]", "no extra 'nope'", 0),
        ("[dependency-groups]", "[tool.envpack]\ngroups = ['nope']\n[dependency-groups]", "'nope' not found", 0),
        ("[dependency-groups]", "[tool.envpack]\ngroups = ['circle']\n[dependency-groups]", "includes itself", 0),
        ("[dependency-groups]", "[tool.envpack]\ngroups = ['odd']\n[dependency-groups]", "dependency-groups", 0),
    ],
)
def test_unsupported_line_is_refused_with_its_line(write, refused, old, new, expected, line):
    error = refused(write("pyproject.toml", PROJECT.replace(old, new, 1)), line)
    assert expected in error.message
    assert "very-secret" not in str(error)


def test_dynamic_extras_are_refused_when_they_are_selected(write, refused):
    text = '[project]\nname = "m"\ndynamic = ["optional-dependencies"]\n'
    assert read_requirements(write("pyproject.toml", text)).pip == ()
    refused(write("pyproject.toml", text + '[tool.envpack]\nextras = ["x"]\n'), 3)


def test_groups_that_include_each_other_without_end(write, refused):
    groups = "".join(f'g{n} = [{{include-group = "g{n + 1}"}}]\n' for n in range(3000))
    file = write("pyproject.toml", f'[dependency-groups]\n{groups}g3000 = []\n[tool.envpack]\ngroups = ["g0"]\n')
    assert "too deeply" in refused(file).message


def test_extras_that_name_each_other_without_end(write, refused):
    extras = "".join(f'e{n} = ["m[e{n + 1}]"]\n' for n in range(3000))
    text = f'[project]\nname = "m"\n[project.optional-dependencies]\n{extras}e3000 = ["six"]\n'
    assert read_requirements(write("pyproject.toml", text + '[tool.envpack]\nextras = ["e0"]\n')).pip == ("six",)


def test_file_without_a_project_is_refused(write, refused):
    poetry = "[build-system]\n[tool.poetry.dependencies]\nnumpy = '*'\n"
    assert "poetry lock" in refused(write("pyproject.toml", poetry), 2).hint
    assert read_requirements(write("pyproject.toml", "[tool.ruff]\n")).pip == ()


def test_other_toml_is_refused(write, refused):
    assert "neither a pyproject.toml nor" in refused(write("Cargo.toml", "[package]\n")).message
