from pathlib import Path

import pytest

from envpack.requirements.format import find_requirements, read_requirements
from envpack.requirements.model import Requirements
from envpack.support.errors import InputError


def write(folder: Path, name: str, text: str) -> Path:
    file = folder / name
    file.write_text(text, encoding="utf-8")
    return file


def test_conda_file_gives_conda_pip_and_python(tmp_path):
    file = write(
        tmp_path,
        "environment.yml",
        "name: x\ndependencies:\n- python=3.10\n- ffmpeg >=6\n- pip\n- pip:\n  - numpy < 2\n  - pillow\n",
    )
    assert read_requirements(file) == Requirements(
        conda=("ffmpeg >=6",),
        pip=("numpy<2", "pillow"),
        python="3.10",
        python_range="==3.10.*",
        source=file,
        files=(file,),
    )


@pytest.mark.parametrize("entry", ["python=3.8", "python==3.8", "python 3.8.*", "python=3.8.18", "python = 3.8"])
def test_python_entry_gives_the_minor_version(tmp_path, entry):
    file = write(tmp_path, "environment.yml", f"dependencies: ['{entry}']")
    assert read_requirements(file).python == "3.8"


def test_python_without_version_requires_no_version(tmp_path):
    assert read_requirements(write(tmp_path, "environment.yml", "dependencies: [python]")).python == ""


def test_channel_prefix_is_kept_in_conda_requirements(tmp_path):
    file = write(tmp_path, "environment.yml", "dependencies: ['some::gdal=3.9', 'some::python=3.9']")
    found = read_requirements(file)
    assert (found.conda, found.python) == (("some::gdal=3.9", "some::python"), "3.9")
    assert found.places["some::python"] == f"{file}:1"


@pytest.mark.parametrize(
    "text",
    [
        "dependencies: [python>=three]",
        "dependencies: numpy",
        "- numpy",
        "dependencies: [{npm: [x]}]",
        "dependencies: [3]",
        "dependencies: [a\n",
        "depends: [numpy]",
        "dependencies: [{pip: ['numpy <']}]",
    ],
)
def test_malformed_conda_file_is_refused_with_its_name(tmp_path, text):
    with pytest.raises(InputError) as caught:
        read_requirements(write(tmp_path, "environment.yml", text))
    assert caught.value.kind == "bad-requirements"
    assert "environment.yml" in caught.value.where


def test_pip_file_skips_comments_and_joins_lines(tmp_path):
    text = "# all\nnumpy<2  # old\n\nscikit-learn \\\n  >=1.0\nx[a,b]==1; python_version < '3.9'\n"
    found = read_requirements(write(tmp_path, "requirements.txt", text)).pip
    assert found == ("numpy<2", "scikit-learn>=1.0", 'x[a,b]==1; python_version < "3.9"')


@pytest.mark.parametrize("line", ["-r other.txt", "-e .", "--index-url x", "numpy --hash=sha256:00", "not a name"])
def test_invalid_requirement_is_refused_with_its_line(tmp_path, line):
    with pytest.raises(InputError) as caught:
        read_requirements(write(tmp_path, "requirements.txt", f"six\n{line}\n"))
    assert caught.value.where.endswith("requirements.txt:2")


def test_missing_file_is_a_clear_error(tmp_path):
    with pytest.raises(InputError, match="not found"):
        read_requirements(tmp_path / "requirements.txt")


def test_conda_file_comes_before_pip_file(tmp_path):
    assert find_requirements(tmp_path) is None
    pip = write(tmp_path, "requirements.txt", "")
    assert find_requirements(tmp_path) == pip
    conda = write(tmp_path, "environment.yml", "")
    assert find_requirements(tmp_path) == conda


def test_model_without_a_file_requires_nothing():
    assert read_requirements(None) == Requirements()


def test_locks_are_found_first_then_environments_lists_projects_and_what_is_refused(tmp_path):
    ranks = ["pixi.lock", "uv.lock", "Pipfile.lock", "environment.yml", "conda.yaml", "requirements.txt"]
    ranks += ["pyproject.toml", "setup.cfg", "setup.py"]
    content = {"pyproject.toml": "[project]\n", "setup.cfg": "[options]\ninstall_requires = numpy\n"}
    for name in reversed(ranks):
        file = write(tmp_path, name, content.get(name, ""))
        assert find_requirements(tmp_path) == file


def test_malformed_target_raises_value_error(tmp_path):
    file = write(tmp_path, "requirements.txt", "")
    for wrong in ({"platform": "win-64"}, {"python": "three"}, {"glibc": "new"}):
        with pytest.raises(ValueError, match=next(iter(wrong.values()))):
            read_requirements(file, **wrong)
