"""What docs/reference/requirements.md says of constructs that are not read: warnings, and errors with a fix."""

from envpack.requirements import read_requirements
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
        (
            "requirements.txt",
            "a @ file:///home/conda/feedstock_root/build_artifacts/a/work\n",
            "write a, or a==VERSION",
        ),
        ("requirements.txt", "a=1.0=py310_0\n", "conda env export > environment.yml"),
        ("requirements.txt", "--config-settings x\n", "remove it"),
        ("requirements.txt", "${NO_SUCH_VARIABLE_HERE}\n", "set the environment variable"),
        ("environment.yml", f"{CONDA}platforms: [osx-64]\n", "add the platform"),
        ("environment.yml", "channels: ['https://me:word@example.org/c']\ndependencies: [a]\n", "~/.netrc"),
        ("pyproject.toml", '[project]\nname = "x"\nversion = "0"\ndynamic = ["dependencies"]\n', "uv "),
        ("pyproject.toml", f'{PROJECT}[tool.uv.sources]\na = {{ git = "https://example.org/a" }}\n', "uv lock"),
        ("pyproject.toml", f"{PROJECT}[tool.uv.sources]\na = {{ workspace = true }}\n", "uv lock"),
        ("pyproject.toml", f'{PROJECT}[tool.uv]\noverride-dependencies = ["b"]\n', "uv lock"),
        ("pyproject.toml", '[tool.poetry.dependencies]\na = "^1"\n', "poetry lock"),
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
    ("lines", "warning"),
    [
        ("  - a  # [win]\n", "'a' is left out: its selector is [win]"),
        ("  - a  # [other]\n", "selects no known system"),
        ("  - vc\nprefix: C:\\me\\envs\\x\n", "'vc' is left out: only Windows has it"),
        ("  - a=1=h123_0\nprefix: C:\\me\\envs\\x\n", "'a=1=h123_0' is read as 'a==1'"),
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
