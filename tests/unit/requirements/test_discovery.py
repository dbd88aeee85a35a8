"""Which file of a model's folder holds its requirements."""

import re

import pytest

from envpack.requirements.format import find_requirements, read_requirements, unread_in
from envpack.settings.project import open_project
from envpack.support.errors import InputError
from tests.tables import every_row

EXPLICIT = "# platform: linux-64\n@EXPLICIT\n"
CONDA = "dependencies:\n- numpy\n"


@every_row(
    ("files", "found"),
    [
        ({"conda_env.yml": CONDA}, "conda_env.yml"),
        ({"environment_gpu.yml": CONDA}, "environment_gpu.yml"),
        ({"env.yaml": CONDA}, "env.yaml"),
        ({"my-env.yml": CONDA}, "my-env.yml"),
        ({"condaenv.yml": CONDA}, "condaenv.yml"),
        ({"env.yml": "services: {}\n"}, None),
        ({"conda_env.yml": CONDA, "requirements.txt": ""}, "requirements.txt"),
        ({"environment.yml": CONDA, "environment_gpu.yml": CONDA}, "environment.yml"),
        ({"environment-dev.yml": CONDA, "environment-gpu.yml": CONDA}, "environment-gpu.yml"),
        ({"requirements_gpu.txt": ""}, "requirements_gpu.txt"),
        ({"requirements.in": ""}, "requirements.in"),
        ({"requirements.lock": "", "requirements-dev.lock": ""}, "requirements.lock"),
        ({"requirements.lock": "", "pyproject.toml": "[project]\n"}, "pyproject.toml"),
        ({"dev-requirements.txt": "", "requirements-gpu.txt": ""}, "requirements-gpu.txt"),
        ({"conda-linux-64.lock": EXPLICIT, "labels.txt": ""}, "conda-linux-64.lock"),
        (
            {"conda-linux-64.lock": EXPLICIT, "conda-osx-64.lock": EXPLICIT.replace("linux", "osx")},
            "conda-linux-64.lock",
        ),
        ({"spec-file.txt": EXPLICIT, "environment-gpu.yml": CONDA}, "spec-file.txt"),
        ({"pylock.serve.toml": "", "requirements-gpu.txt": ""}, "pylock.serve.toml"),
        ({"gpu.conda-lock.yml": "metadata:\n", "environment-gpu.yml": CONDA}, "gpu.conda-lock.yml"),
        ({"environment.YML": CONDA}, "environment.YML"),
        ({"uv.lock": "", "pyproject.toml": "[project]\n"}, "uv.lock"),
        ({"pyproject.toml": "[tool.ruff]\n"}, None),
        ({"pyproject.toml": "[tool.poetry]\n"}, "pyproject.toml"),
        ({"pyproject.toml": "[tool.flit.metadata]\n"}, "pyproject.toml"),
        ({"pyproject.toml": "[project\n"}, "pyproject.toml"),
        ({"pyproject.toml": "[build-system]\n", "setup.py": ""}, "setup.py"),
        ({"setup.cfg": "[flake8]\n"}, None),
        ({"setup.cfg": "[options]\ninstall_requires = numpy\n"}, "setup.cfg"),
        ({"setup.cfg": "[options]\ninstall-requires = numpy\n"}, "setup.cfg"),
        ({"Pipfile": ""}, "Pipfile"),
        ({"anaconda-project.yml": "name: x\npackages:\n# of all\n- numpy\n"}, "anaconda-project.yml"),
        ({"anaconda-project.yml": "env_specs:\n  a:\n    packages: [numpy]\n"}, "anaconda-project.yml"),
        ({"anaconda-project.yml": "packages: []\nenv_specs:\n  a:\n    packages:\n    channels: []\n"}, None),
        ({"anaconda-project.yml": "packages:\n- numpy\n", "environment.yml": CONDA}, "environment.yml"),
        ({"labels.txt": "", "config.pbtxt": "", "envelope.yml": "dependencies: {}\n"}, None),
    ],
)
def test_requirements_are_found_by_the_names_that_projects_use(tmp_path_factory, files, found):
    folder = tmp_path_factory.mktemp("model")
    for name, text in files.items():
        (folder / name).write_text(text)
    assert find_requirements(folder) == (folder / found if found else None)


def test_files_of_powershell_are_found(tmp_path):
    (tmp_path / "environment_gpu.yml").write_text(f"\ufeff{CONDA}", encoding="utf-16-le")
    assert find_requirements(tmp_path) == tmp_path / "environment_gpu.yml"
    assert read_requirements(tmp_path / "environment_gpu.yml").conda == ("numpy",)


def test_several_candidates_are_an_error_that_names_them_and_the_setting(tmp_path):
    for name in ("environment_cpu.yml", "environment_gpu.yml"):
        (tmp_path / name).write_text(CONDA)
    with pytest.raises(InputError, match=r"environment_cpu\.yml, environment_gpu\.yml") as caught:
        find_requirements(tmp_path)
    assert f'requirements = "{tmp_path.name}/environment_cpu.yml"' in caught.value.hint


def test_the_setting_that_chooses_a_file_can_be_written_as_it_is_said(tmp_path):
    (folder := tmp_path / "yolo.v5").mkdir()
    for name in ("environment_cpu.yml", "environment_gpu.yml"):
        (folder / name).write_text(CONDA)
    with pytest.raises(InputError) as caught:
        find_requirements(folder)
    said = re.fullmatch(r"name one: write (\[.*\]) and (.*) into (.*)", caught.value.hint)
    assert said[3] == str(tmp_path / "envpack.toml")
    (tmp_path / "envpack.toml").write_text(f"{said[1]}\n{said[2]}\n")
    assert open_project(tmp_path).of("yolo.v5").requirements == folder / "environment_cpu.yml"


def test_a_file_above_the_model_is_found_but_not_read(tmp_path):
    (tmp_path / "m").mkdir()
    assert unread_in(tmp_path) is None
    (tmp_path / "requirements.txt").write_text("six\n")
    assert find_requirements(tmp_path / "m") is None
    assert unread_in(tmp_path) == tmp_path / "requirements.txt"


def test_folders_hold_no_requirements_whatever_their_names(tmp_path):
    (tmp_path / "setup.cfg").mkdir()
    assert unread_in(tmp_path) is None
    (tmp_path / "requirements").mkdir()
    (tmp_path / "requirements/serving.in").write_text("six\n")
    assert unread_in(tmp_path) == tmp_path / "requirements/serving.in"
