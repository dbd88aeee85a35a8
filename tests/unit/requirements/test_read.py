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


def test_channel_prefix_is_kept_in_conda_requirements(tmp_path):
    file = write(tmp_path, "environment.yml", "dependencies: ['some::gdal=3.9', 'some::python=3.9']")
    found = read_requirements(file)
    assert (found.conda, found.python) == (("some::gdal=3.9", "some::python"), "3.9")
    assert found.places["some::python"] == f"{file}:1"


def test_pip_file_skips_comments_and_joins_lines(tmp_path):
    text = "# all\nnumpy<2  # old\n\nscikit-learn \\\n  >=1.0\nx[a,b]==1; python_version < '3.9'\n"
    found = read_requirements(write(tmp_path, "requirements.txt", text)).pip
    assert found == ("numpy<2", "scikit-learn>=1.0", 'x[a,b]==1; python_version < "3.9"')


def test_missing_file_is_a_clear_error(tmp_path):
    with pytest.raises(InputError, match="not found"):
        read_requirements(tmp_path / "requirements.txt")


@pytest.mark.parametrize("name", ["requirements.txt", "environment.yml", "uv.lock"])
def test_a_file_that_git_lfs_has_not_fetched_is_a_clear_error(tmp_path, name):
    file = write(tmp_path, name, "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n")
    with pytest.raises(InputError, match="it is a git-lfs pointer, not the file itself") as raised:
        read_requirements(file)
    assert (raised.value.kind, raised.value.where) == ("lfs-pointer", str(file))


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
