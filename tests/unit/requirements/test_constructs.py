"""What docs/reference/requirements.md says of constructs that are not read: warnings, and errors with a fix."""

import pytest

from envpack.requirements.format import read_requirements
from envpack.support.errors import InputError
from tests.tables import every_row

CONDA = "channels: [c]\ndependencies:\n  - python=3.10\n"
PROJECT = '[project]\nname = "x"\nversion = "0"\ndependencies = ["a"]\n'


@every_row(
    ("name", "text", "fix"),
    [
        ("requirements.txt", "git+https://example.org/a.git\n", "pip wheel 'git+https://"),
        ("requirements.txt", "a @ https://example.org/a-1.tar.gz\n", "pip wheel --no-deps FILE"),
        ("requirements.txt", "a=1.0\n", "write a==1.0"),
        ("requirements.txt", "django==5.*.*\n", "write it like numpy<2"),
        (
            "requirements.txt",
            "a @ file:///home/conda/feedstock_root/build_artifacts/a/work\n",
            "write a, or a==VERSION",
        ),
        ("requirements.txt", "a=1.0=py310_0\n", "conda env export > environment.yml"),
        ("environment.yml", "dependencies:\n- pip:\n  - a=1.0=py310_0\n", "move it from pip: to dependencies:"),
        ("environment.yml", "dependencies:\n- pip\n  - a\n", "write - pip: with a colon"),
        ("environment.yml", "dependencies:\n- a\n  - b=1\n- c\n", "the same indentation"),
        ("environment.yml", "dependencies:\n- pip:\n  - a\n    - b\n", "the same indentation"),
        ("requirements.txt", "a - b\n", "on a line of its own"),
        ("requirements.txt", "a --hash=sha256:{} b\n".format("0" * 64), "on a line of its own"),
        ("environment.yml", "dependencies:\n- pip: |\n    a\n", "on a line of its own below - pip:"),
        ("environment.yml", "dependencies:\n\t- a\n", "replace the tabs of this line by blanks"),
        ("environment.yml", "dependencies:\n{% for p in packages %}\n- a\n", "this is a template: render it"),
        ("environment.yml", "name: {{ name }}\ndependencies: [a]\n", "this is a template: render it"),
        ("environment.yml", "dependencies: ['numpy={{ v }}']\n", "this is a template: render it"),
        ("environment.yml", "dependencies: ['python={{ v }}']\n", "this is a template: render it"),
        ("environment.yml", "channels: ['{{ c }}']\ndependencies: [a]\n", "this is a template: render it"),
        ("environment.yml", "dependencies: [{pip: ['numpy=={{ v }}']}]\n", "this is a template: render it"),
        ("environment.yml", "dependencies: ['numpy=${V}']\n", "write it like dependencies: "),
        ("requirements.txt", "numpy=={{ v }}\n", "this is a template: render it"),
        (
            "pyproject.toml",
            '[project]\nname = "m"\ndependencies = ["numpy=={{ v }}"]\n',
            "this is a template: render it",
        ),
        ("environment.yml", "dependencies: [a\n", "correct the file, or write it again"),
        (
            "requirements.txt",
            "# Name\na   1.0   py310_0   https://mirror.example/pkgs/main\n",
            "conda env export > environment.yml",
        ),
        (
            "requirements.txt",
            "Package Version Editable\n--- ---\na 1\n",
            "pip freeze > requirements.txt",
        ),
        ("requirements.txt", "a==1.0=py310_0\n", "conda env export > environment.yml"),
        ("requirements.txt", "a 1.0\n", "write a==1.0"),
        (
            "Dockerfile",
            "FROM a/b:1\n",
            "Dockerfile has the name of no other format, so it is read as a requirements.txt",
        ),
        ("requirements.txt", "a b, c\n", "write it like numpy<2, each on a line of its own"),
        ("requirements.txt", "--config-settings x\n", "remove it"),
        ("requirements.txt", "${NO_SUCH_VARIABLE_HERE}\n", "set the environment variable"),
        ("environment.yml", f"{CONDA}platforms: [osx-64]\n", "add the platform"),
        ("environment.yml", "channels: ['https://me:word@example.org/c']\ndependencies: [a]\n", "~/.netrc"),
        ("pyproject.toml", '[project]\nname = "x"\nversion = "0"\ndynamic = ["dependencies"]\n', "uv "),
        ("pyproject.toml", f'{PROJECT}[tool.uv.sources]\na = {{ git = "https://example.org/a" }}\n', "uv lock"),
        ("pyproject.toml", f"{PROJECT}[tool.uv.sources]\na = {{ workspace = true }}\n", "uv lock"),
        ("pyproject.toml", f'{PROJECT}[tool.uv]\noverride-dependencies = ["b"]\n', "uv lock"),
        ("pyproject.toml", f'{PROJECT}[tool.uv.pip]\nindex-url = "https://own.example"\n', "write it into [tool.uv]"),
        ("pyproject.toml", '[tool.poetry.dependencies]\na = "^1"\n', "poetry lock"),
        ("pyproject.toml", '[tool.flit.metadata]\nrequires = ["a"]\n', "uv pip compile pyproject.toml"),
        ("pyproject.toml", '[tool.pixi.dependencies]\na = "*"\n', "pixi lock"),
        ("pixi.toml", '[dependencies]\na = "*"\n', "pixi lock"),
        ("setup.cfg", "[options]\ninstall_requires = file: more.txt\n", "name more.txt in envpack.toml"),
        ("setup.py", "from setuptools import setup\nsetup()\n", "uv pip compile setup.py"),
        ("Pipfile", '[packages]\na = "*"\n', "pipenv lock"),
    ],
)
def test_what_is_refused_has_a_fix(name, text, fix, tmp_path_factory):
    file = tmp_path_factory.mktemp("model") / name
    file.write_text(text)
    try:
        read_requirements(file)
    except InputError as error:
        assert error.where.startswith(str(file))  # noqa: PT017 - the row must fail without an error too
        assert fix in error.hint  # noqa: PT017
        return
    raise AssertionError("it was read")


@every_row(
    "folder",
    [
        "/opt/conda/conda-bld/a_1655968806487/recipe",
        "/home/builder/ci_310/a_1640803160001/work",
        "/Users/runner/miniforge3/conda-bld/a_1/work",
        "/D:/bld/a_1725278078093/work",
        "/C:/b/abs_85o_6fm0se/croot/a_1671487778835/work",
        "/croot/a_1671487778835/work",
        "/tmp/abs_1/croots/recipe/a/work",
        "/home/task_176/a",
        "/build/ci_py311/a_1/recipe",
        "/tmp/build/80754af9/a/work",
    ],
)
def test_a_folder_in_which_conda_built_a_package_is_named_as_one(folder, tmp_path_factory):
    file = tmp_path_factory.mktemp("model") / "requirements.txt"
    file.write_text(f"a @ file://{folder}\n")
    with pytest.raises(InputError, match="names a folder in which conda built the package") as caught:
        read_requirements(file)
    assert (caught.value.kind, caught.value.where) == ("bad-requirements", f"{file}:1")
    assert caught.value.hint.startswith("write a, or a==VERSION")


@every_row("folder", ["/nowhere/work", "/nowhere/ci_/a", "/nowhere/bld/a"])
def test_another_folder_that_is_missing_is_only_missing(folder, tmp_path_factory):
    file = tmp_path_factory.mktemp("model") / "requirements.txt"
    file.write_text(f"a @ file://{folder}\n")
    with pytest.raises(InputError, match="no such file or folder"):
        read_requirements(file)


@every_row(
    ("text", "pip"),
    [
        ("# generated by rye\n\n-e file:lib\nnumpy==1.26.4\n    # via lib\n", ("numpy==1.26.4",)),
        ("uvicorn[standard]==0.30.1\n", ("uvicorn[standard]==0.30.1",)),
        ("--index-url https://example.org/simple\nsix\n", ("six",)),
    ],
)
def test_a_lock_with_lines_of_pip_is_read_as_pip_reads_it(text, pip, tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    (folder / "lib").mkdir()
    (folder / "lib/setup.py").touch()
    (folder / "requirements.lock").write_text(text)
    assert read_requirements(folder / "requirements.lock").pip == pip


@every_row(
    ("name", "text", "message"),
    [
        ("other.lock", "version: 6\n", "is not a lock of pixi or conda-lock"),
        ("other.lock", "", "must be a table"),
        ("pixi.lock", "", "must be a table"),
        ("pixi.lock", "version: 6\nenvironments: {}\n", "there is no environment default"),
    ],
)
def test_another_lock_is_read_as_yaml(name, text, message, tmp_path_factory):
    file = tmp_path_factory.mktemp("model") / name
    file.write_text(text)
    with pytest.raises(InputError, match=message) as caught:
        read_requirements(file)
    assert caught.value.kind == "bad-requirements"


@every_row(
    ("lines", "warning"),
    [
        ("  - a  # [win]\n", "'a' is left out: its selector is [win]"),
        ("  - a  # [other]\n", "selects no known system"),
        ("  - vc\nprefix: C:\\me\\envs\\x\n", "exported on Windows: what Linux does not have is left out: 'vc'"),
        ("  - vc=1=h1_0\n  - ucrt\nprefix: C:\\me\\envs\\x\n", "left out: 'vc=1=h1_0', 'ucrt'"),
        (
            "  - a=1=h123_0\nprefix: C:\\me\\envs\\x\n",
            "on Windows: builds of packages are not read: 'a=1=h123_0' is read",
        ),
        ("  - a=1=h1_0\n  - b=2=h2_0\nprefix: C:\\me\\envs\\x\n", "is read as 'a==1', another one likewise"),
        ("variables: {A: b}\n", "variables are left out: 'A'; set them in the model's initialize()"),
        ("variables: {A: very-secret, B: c}\n", "'A', 'B'"),
        ("x-unknown: 1\n", "the key 'x-unknown' is not read"),
    ],
)
def test_what_is_left_out_of_an_environment_is_named(lines, warning, tmp_path_factory):
    file = tmp_path_factory.mktemp("model") / "environment.yml"
    file.write_text(CONDA + lines)
    (found,) = read_requirements(file).warnings
    assert warning in found
    assert found.startswith(f"{file}:")
    assert "very-secret" not in found
