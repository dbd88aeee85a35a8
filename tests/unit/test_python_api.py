"""What all functions of the Python API have in common."""

import inspect

import pytest

import envpack
from envpack import (
    build_model,
    find_release,
    inspect_repository,
    lock_model,
    open_project,
    plan_deployment,
    verify,
)
from envpack.support.errors import InputError, UsageError
from envpack.testing import run_model, run_tests
from tests.tables import every_row

# How each function is called that takes the name of a model.
NAMING = {
    "build": build_model,
    "lock": lock_model,
    "run": run_model,
    "tests": lambda project, name: run_tests(project, [name]),
    "verify": lambda project, name: verify(project.repository, [name]),
    "inspect": lambda project, name: inspect_repository(project, find_release("24.10"), [name]),
    "plan": lambda project, name: plan_deployment(project, [name]),
}


@pytest.fixture
def project(tmp_path):
    for repository in ("models", "others"):
        (tmp_path / repository / "m/1").mkdir(parents=True)
        (tmp_path / repository / "m/1/model.py").touch()
        (tmp_path / repository / "m/config.pbtxt").write_text('backend: "python"\n')
    return open_project(tmp_path / "models")


@every_row("function", NAMING)
def test_a_model_is_one_of_the_repository(project, tmp_path, function):
    for name in ("../others/m", str(tmp_path / "others/m"), "..", ""):
        with pytest.raises(InputError) as raised:
            NAMING[function](project, name)
        assert raised.value.kind == "other-repository"


@pytest.mark.parametrize("function", ["inspect", "plan"])
def test_a_model_can_be_named_by_its_path(project, function):
    find = NAMING[function]
    assert find(project, "m") == find(project, "m/") == find(project, str(project.repository / "m"))


def test_a_repository_is_a_path_or_a_text(project):
    assert open_project(str(project.repository)) == project
    with pytest.raises(InputError, match="model repository not found"):
        verify(str(project.repository.parent / "nowhere"))


def test_nobody_has_to_receive_the_steps():
    """What has no receiver by default can only be called by who finds one inside of envpack."""
    functions = {name: getattr(envpack, name) for name in envpack.__all__ if name[0].islower()}
    receive = [name for name, function in functions.items() if "progress" in inspect.signature(function).parameters]
    assert len(receive) > 10
    for name in receive:
        assert inspect.signature(functions[name]).parameters["progress"].default is not inspect.Parameter.empty, name


def test_a_run_sends_at_least_one_request(project):
    with pytest.raises(UsageError, match="repeat is 0, and no request would be sent"):
        run_model(project, "m", repeat=0)


def test_files_to_send_are_paths_or_texts_of_any_iterable(project, tmp_path):
    for inputs in (iter([tmp_path / "none.json"]), (tmp_path / "none.json",), [str(tmp_path / "none.json")]):
        with pytest.raises(InputError, match=r"none\.json: cannot be read: No such file"):
            run_model(project, "m", inputs)
