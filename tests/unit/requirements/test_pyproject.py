"""pyproject.toml: dependencies, extras and groups of a project."""

import pytest

from envpack.requirements.format import read_requirements
from tests.tables import every_row

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


@every_row(
    ("requires", "poetry", "allowed", "python"),
    [
        (">=3.10", "^3.9", ">=3.10,>=3.9,<4", ""),
        (">=3.10", "<3.11", ">=3.10,<3.11", "3.10"),
        ("", "~3.10", ">=3.10,<3.11", "3.10"),
        (">=3.9", "3.8.* || 3.9.*", "==3.9.*", "3.9"),
    ],
)
def test_the_range_of_poetry_counts_beside_that_of_the_project(write, requires, poetry, allowed, python):
    text = PROJECT.replace(">=3.10,<3.11", requires) + f'[tool.poetry.dependencies]\npython = "{poetry}"\n'
    found = read_requirements(write("pyproject.toml", text))
    assert (found.python_range, found.python) == (allowed, python)


@every_row(
    ("python", "message"),
    [
        ('"^3.11"', "python = '^3.11' of [tool.poetry.dependencies] is not a range in that of requires-python"),
        ('"new"', "python = 'new' of [tool.poetry.dependencies] is not a range in that of requires-python"),
        ("5", "python of [tool.poetry.dependencies] must be text"),
    ],
)
def test_a_range_of_poetry_outside_of_that_of_the_project_is_refused(write, refused, python, message):
    error = refused(write("pyproject.toml", f"{PROJECT}[tool.poetry.dependencies]\npython = {python}\n"))
    assert error.message == message
    assert "python = " in error.hint


def test_extras_and_groups_that_the_project_selects(write):
    file = write("pyproject.toml", PROJECT + '[tool.envpack]\nextras = ["all"]\ngroups = ["serve"]\n')
    assert read_requirements(file).pip[2:] == ("six", "cupy-cuda12x", "pillow", "orjson", "click")


def test_a_group_can_name_the_extras_of_its_own_project(write):
    """An index can have a package of that name by another author."""
    text = PROJECT.replace('"orjson"', '"My.Model[Vision]"').replace(
        '"my-model[all]"]', "\"my-model[gpu] ; os_name == 'nt'\"]"
    )
    file = write("pyproject.toml", text + '[tool.envpack]\ngroups = ["serve"]\n')
    assert read_requirements(file, python="3.10").pip[2:] == ("pillow", "click")


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
        (
            "[dependency-groups]",
            "[tool.uv.sources]\nnumpy = {url = 'x', group = 'y'}\n[dependency-groups]",
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


def test_a_uv_toml_that_decides_about_packages_is_refused(write, refused, tmp_path):
    """uv reads it in place of the settings in [tool.uv]."""
    (tmp_path / "model").mkdir()
    file, above = write("model/pyproject.toml", PROJECT), write("uv.toml", "native-tls = true\n")
    assert read_requirements(file, python="3.10").pip
    above.write_text('[[index]]\nurl = "https://own.example/simple"\n')
    error = refused(file)
    assert error.where == str(above)
    assert error.message == "decides which packages uv installs for the project, and is not read"
    assert error.hint.startswith("run uv lock in the project")
    write("model/pyproject.toml", PROJECT + '[tool.uv]\nindex-url = "https://own.example/simple"\n')
    assert read_requirements(file, python="3.10").pip
    write("model/uv.toml", "native-tls = true\n")
    assert refused(file).where == str(file.with_name("uv.toml"))


@every_row(
    ("workspace", "settings", "is_refused"),
    [
        ('members = ["models/*"]', 'index-url = "https://own.example/simple"', True),
        ('members = ["./models/m/"]', 'sources = {numpy = {index = "x"}}', True),
        ('members = ["**"]', 'constraint-dependencies = ["numpy<2"]', True),
        ('members = ["models/*"]', "native-tls = true", False),
        ('members = ["models"]', 'constraint-dependencies = ["numpy<2"]', False),
        ('members = ["*"]', 'constraint-dependencies = ["numpy<2"]', False),
        ('members = ["models/*"]\nexclude = ["models/m"]', 'sources = {numpy = {index = "x"}}', False),
    ],
)
def test_a_member_of_a_workspace_whose_root_decides_about_packages_is_refused(
    write, refused, workspace, settings, is_refused
):
    file = write("models/m/pyproject.toml", PROJECT)
    write("pyproject.toml", f"[tool.uv]\n{settings}\n[tool.uv.workspace]\n{workspace}\n")
    if is_refused:
        error = refused(file, line=2)
        assert error.message.startswith(
            "is a member of a workspace whose settings decide which packages are installed: "
        )
        assert error.hint.startswith("run here: uv export --no-emit-project ")
    else:
        assert read_requirements(file).pip


@every_row(
    ("above", "own", "is_refused"),
    [
        ('[tool.uv]\nindex-url = "https://own.example/simple"\n', "", True),
        ('[tool.uv]\nresolution = "lowest"\n[tool.uv.workspace]\nexclude = ["models"]\n', "", True),
        ('[tool.uv]\nindex-url = "https://own.example/simple"\n', "[tool.uv]\n", False),
        ('[[tool.uv.index]]\nname = "a"\nurl = "https://own.example/simple"\nexplicit = true\n', "", False),
        ('[tool.uv]\nconstraint-dependencies = ["numpy<2"]\n', "", False),
        ('[tool.pdm]\nsource = [{url = "https://own.example/simple"}]\n', "", False),
    ],
)
def test_settings_of_uv_above_a_project_are_refused_where_uv_reads_them(write, refused, above, own, is_refused):
    """Seen with uv 0.13: a project takes those of the next folder above that has some, member of a workspace or not."""
    file, settings = write("models/m/pyproject.toml", PROJECT + own), write("pyproject.toml", above)
    if is_refused:
        error = refused(file)
        assert (error.where, error.hint.startswith("run uv lock")) == (str(settings), True)
    between = write("models/pyproject.toml", "[tool.uv]\npackage = false\n" if is_refused else "[tool]\n")
    assert read_requirements(file).pip
    between.unlink()


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


@every_row(
    ("settings", "options"),
    [
        ('resolution = "lowest-direct"\nprerelease = "allow"', ["--resolution lowest-direct", "--prerelease allow"]),
        ('index-strategy = "unsafe-best-match"', ["--index-strategy unsafe-best-match"]),
        ('exclude-newer = "2024-01-31T00:00:00Z"', ["--exclude-newer 2024-01-31T00:00:00Z"]),
        ('exclude-newer = "1 week"', ["--exclude-newer 1 week"]),
        (
            'exclude-newer-package = {Num_Py = "2024-01-31", six = false}',
            ["--exclude-newer-package num-py=2024-01-31", "--exclude-newer-package six=false"],
        ),
        ('find-links = ["https://files.example.org/whl"]', ["--find-links https://files.example.org/whl"]),
    ],
)
def test_settings_of_uv_that_choose_versions_are_options(write, settings, options):
    found = read_requirements(write("pyproject.toml", f"{PROJECT}[tool.uv]\n{settings}\n"))
    assert list(found.pip_options) == options


def test_the_index_of_a_package_may_be_a_folder_beside_the_project(write, tmp_path):
    """uv reads it in a project in another folder, from which a relative path leads elsewhere."""
    index = '[[tool.uv.index]]\nname = "a"\nurl = "../a b"\nexplicit = true\n'
    file = write("m/pyproject.toml", f'{PROJECT}{index}[tool.uv.sources]\nnumpy = {{index = "a"}}\n')
    assert read_requirements(file).indexes == (("numpy", f"{tmp_path.as_uri()}/a%20b"),)


def test_a_folder_of_wheels_may_have_any_characters_in_its_path(write, tmp_path):
    (tmp_path / "my#wheels 1").mkdir()
    file = write("pyproject.toml", PROJECT + '[tool.uv]\nfind-links = ["my#wheels 1"]\n')
    assert read_requirements(file).pip_options == (f"--find-links {tmp_path.as_uri()}/my%23wheels%201",)


@every_row(
    ("settings", "message", "hint"),
    [
        ("[tool.pdm.overrides]\nsix = '1'", "[tool.pdm] overrides is not read", "pdm lock"),
        (
            "[[tool.rye.sources]]\nname = 'x'",
            "[tool.rye] sources is not read",
            "rye lock, and name its requirements.lock in envpack.toml",
        ),
        ("exclude-dependencies = ['six']", "[tool.uv] exclude-dependencies is not read", "uv lock"),
        ("dependency-metadata = [{name = 'six'}]", "[tool.uv] dependency-metadata is not read", "uv lock"),
        ("prerelease-package = {six = 'allow'}", "[tool.uv] prerelease-package is not read", "uv lock"),
        ("no-sources-package = ['six']", "[tool.uv] no-sources-package is not read", "uv lock"),
        (
            "[tool.conda-lock.dependencies]\nffmpeg = '*'",
            "[tool.conda-lock] dependencies is not read",
            "conda-lock --file pyproject.toml, and name its conda-lock.yml in envpack.toml",
        ),
        ("index = [{url = 'https://x.org/a', format = 'flat'}]", "with format or exclude-newer is not read", "uv lock"),
        ("index = [{url = 5}]", "[[tool.uv.index]] must be a list of tables", "https://"),
        ("resolution = 'oldest'", "tool.uv.resolution is unknown: 'oldest'", "lowest-direct"),
        ("prerelease = 5", "tool.uv.prerelease must be text", 'prerelease = "…"'),
        ("exclude-newer = '--pre'", "'--pre' is not a date for uv", "2024-01-31"),
        ("exclude-newer-package = 5", "exclude-newer-package must be a table", "2024-01-31"),
        ("exclude-newer-package = {six = 5}", "'5' is not a date for uv", "2024-01-31"),
        ("index-url = 5", "tool.uv.index-url must be text", 'index-url = "…"'),
        ("extra-index-url = 'https://x.org'", "tool.uv.extra-index-url must be a list of texts", '["…"]'),
        ("find-links = 5", "tool.uv.find-links must be a list of texts", '["…"]'),
        ("constraint-dependencies = [5]", "tool.uv.constraint-dependencies must be a list of texts", '["…"]'),
    ],
)
def test_settings_of_uv_that_cannot_be_passed_on_are_refused(write, refused, settings, message, hint):
    error = refused(write("pyproject.toml", f"{PROJECT}[tool.uv]\n{settings}\n"))
    assert message in error.message
    assert hint in error.hint


def test_the_command_for_a_dynamic_project_has_its_extras_and_groups(write, refused):
    groups = "[dependency-groups]\nserve = []\n[tool.envpack]\nextras = ['gpu']\ngroups = ['serve']\n"
    error = refused(write("pyproject.toml", f'[project]\nname = "m"\ndynamic = ["optional-dependencies"]\n{groups}'), 3)
    assert "pyproject.toml --extra gpu --group serve --output-file requirements.txt" in error.hint


@every_row("value", ["5", "[5]", "{}"])
def test_a_dynamic_file_that_is_not_a_name_is_refused(write, refused, value):
    dynamic = f"[tool.setuptools.dynamic]\ndependencies = {{file = {value}}}\n"
    error = refused(write("pyproject.toml", f'[project]\nname = "m"\ndynamic = ["dependencies"]\n{dynamic}'), 5)
    assert error.message == "file must be a list of texts"
    assert "requirements.txt" in error.hint
