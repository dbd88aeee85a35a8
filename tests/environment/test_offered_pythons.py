"""Pythons that can be fetched count: for `envpack doctor`, and for the Pythons of `make demo`."""

import json
import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from envpack.conda.interpreters import available_interpreters
from envpack.settings.project import Project
from envpack.settings.table import Settings
from envpack.workflow.doctor.host import pythons

from .python_downloads import NAME
from .sources import PYTHON

ROOT = Path(__file__).parents[2]
CI = ROOT / "ci"
CHOOSE = """
import json, sys
from pathlib import Path
from demo_pythons import choose
print(json.dumps(choose(Path(sys.argv[1])).pythons))
"""


@pytest.fixture
def project(tmp_path):
    return Project(repository=tmp_path)


def test_doctor_names_what_uv_would_fetch_and_where_from(downloads, project):
    (seen,) = pythons(project)
    assert (seen.state, seen.fix) == ("ok", "")
    assert f"; fetched from 127.0.0.1 when needed: {PYTHON}; not installed: " in seen.what
    assert downloads.archives == 0
    assert PYTHON not in [found.minor for found in available_interpreters()]


def test_doctor_counts_nothing_that_is_forbidden_or_does_not_answer(downloads, project, monkeypatch):
    only_here = project.saying(Settings(python_preference="only-system"))
    (seen,) = pythons(only_here)
    assert "fetch" not in seen.what
    for name, value, reason in (
        ("UV_PYTHON_DOWNLOADS", "never", "uv cannot fetch others: UV_PYTHON_DOWNLOADS=never forbids it"),
        ("UV_OFFLINE", "1", "UV_OFFLINE forbids uv to fetch others"),
        ("UV_PYTHON_DOWNLOADS_JSON_URL", downloads.site.url("/none.json"), "uv cannot fetch others: "),
    ):
        with monkeypatch.context() as patch:
            patch.setenv(name, value)
            (seen,) = pythons(project)
        assert reason in seen.what
        assert PYTHON in seen.what.partition("not installed: ")[2].split(", ")
    (downloads.site.folder / NAME).unlink()
    (seen,) = pythons(project)
    assert "uv cannot fetch others from 127.0.0.1: HTTP status 404" in seen.what


def test_doctor_names_the_ways_out_of_a_machine_without_any(project, monkeypatch, bare):
    monkeypatch.setenv("UV_PYTHON_DOWNLOADS", "never")
    monkeypatch.setattr("envpack.conda.interpreters._usual_folders", lambda: iter(()))
    (seen,) = pythons(project)
    assert seen.state == "missing"
    assert "take Python from a conda channel" in seen.fix


def chosen(folder):
    """What `make demo` chooses, `None` for an error, and what it prints."""
    variables = dict(os.environ) | {"PYTHONPATH": str(CI)}
    command = [sys.executable, "-c", CHOOSE, folder]
    done = subprocess.run(command, env=variables, capture_output=True, text=True, check=False)
    pythons = json.loads(done.stdout.splitlines()[-1]) if done.returncode == 0 else None
    return pythons, done.stdout + done.stderr


def of_this_machine():
    return {found.minor for found in available_interpreters() if found.library and not found.fetched}


def test_the_demo_fetches_what_is_missing_and_lets_models_share_what_can_be_had(downloads, tmp_path):
    pythons, said = chosen(tmp_path / "demo")
    assert PYTHON in pythons.values()
    assert set(pythons.values()) <= {PYTHON, *of_this_machine()}
    assert pythons["core"] == PYTHON
    assert f"fetch Python {PYTHON}: there is none on this machine" in said
    assert f"Pythons of the demo: {pythons['preprocessing']} for preprocessing, {PYTHON} for core, " in said
    if pythons["preprocessing"] != "3.8":
        reason = "instead of 3.8: no Python 3.8 on this machine"
        assert f"preprocessing: Python {pythons['preprocessing']} {reason}" in said


@pytest.mark.usefixtures("bare")
def test_the_demo_takes_what_is_there_if_nothing_can_be_fetched(tmp_path, monkeypatch):
    monkeypatch.setenv("UV_PYTHON_DOWNLOADS", "never")
    pythons, said = chosen(tmp_path / "demo")
    if of_this_machine():
        assert set(pythons.values()) <= of_this_machine()
    else:
        assert "error: the demo needs a Python with a shared libpython: no Python 3.8 on this machine" in said
        assert "  fix: " in said
    assert "no Python can be fetched: UV_PYTHON_DOWNLOADS=never forbids it" in said


def test_the_demo_writes_the_pythons_of_its_models_and_fits_numpy_to_them(tmp_path):
    shutil.copytree(ROOT / "recipes/digits", tmp_path / "demo")
    wanted = {"preprocessing": "3.13", "core": "3.11", "postprocessing": "3.8"}
    command = [sys.executable, "-c", f"from demo_pythons import *; prepare(Choice({wanted!r}, DEFAULT_RELEASE))"]
    variables = dict(os.environ) | {"PYTHONPATH": str(CI)}
    folder = tmp_path / "demo"
    said = subprocess.run(command, env=variables, cwd=folder, capture_output=True, text=True, check=True).stdout
    settings = tomllib.loads((folder / "envpack.toml").read_text())["models"]
    assert {model: settings[model]["python"] for model in wanted} == wanted
    numpy = {model: first_line(tmp_path / "demo" / model) for model in settings}
    assert numpy == {"preprocessing": "numpy", "core": "numpy<2", "postprocessing": "numpy"}
    assert said.splitlines() == [
        "preprocessing/requirements.txt: any NumPy, since Python 3.13 has no NumPy 1",
        "postprocessing/requirements.txt: any NumPy, since Python 3.8 has no NumPy 2",
    ]


def first_line(model):
    return (model / "requirements.txt").read_text().splitlines()[0]


def test_the_demo_writes_its_release_once(tmp_path):
    shutil.copytree(ROOT / "recipes/digits", tmp_path / "demo")
    lines = "from demo_pythons import *; made = Choice(WANTED, '24.11'); prepare(made); print(made.options.strip())"
    variables = dict(os.environ) | {"PYTHONPATH": str(CI)}
    for _ in range(2):
        command = [sys.executable, "-c", lines]
        done = subprocess.run(command, env=variables, cwd=tmp_path / "demo", capture_output=True, text=True, check=True)
        assert done.stdout == "--triton 24.11 --stub always\n"
        assert tomllib.loads((tmp_path / "demo/envpack.toml").read_text())["triton"] == "24.11"
