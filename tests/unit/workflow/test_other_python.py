"""The Python of this machine that a build takes where the one of the release cannot be had."""

from types import SimpleNamespace

import pytest

from envpack.conda.choice import NO_INTERPRETER
from envpack.repository.model import open_model
from envpack.settings.table import Settings
from envpack.support.errors import EnvironmentBuildError, InputError
from envpack.workflow import python_choice as module
from envpack.workflow.build import build_model
from envpack.workflow.plan import plan_model
from envpack.workflow.python_choice import ChosenPython, usable_pythons, with_another_python
from envpack.workflow.requests import build_request

MISSING = EnvironmentBuildError(sorted(NO_INTERPRETER)[0], "no Python 3.10 here", "install one")
OWN = ChosenPython("3.10", "Triton 24.10", named=False)


@pytest.fixture
def here(monkeypatch):
    """Sets the Pythons of this machine; those with a minus have no shared library."""

    def change(*minors):
        usable = {minor.lstrip("-") for minor in minors if minor[0] != "-"}

        def interpreter_here(minor, *, preference, glibc):
            if minor not in usable:
                raise InputError("python-missing", "no shared library", "install another one")
            return SimpleNamespace(minor=minor, how=(preference, glibc))

        found = [SimpleNamespace(minor=minor.lstrip("-")) for minor in minors]
        monkeypatch.setattr(module, "available_interpreters", lambda: found)
        monkeypatch.setattr(module, "interpreter_here", interpreter_here)

    return change


@pytest.fixture
def source(machine):
    """The recipe of a model whose interpreter comes from this machine."""
    project = machine.project.saying(Settings(channels=("local",)))
    return build_request(project, open_model(machine.folder)).source


def another(machine, source, python=OWN, error=MISSING):
    try:
        return with_another_python(machine.project, source, python, error, machine.steps).of().python
    except EnvironmentBuildError:
        return None


def test_pythons_that_a_stub_cannot_embed_do_not_count(here):
    here("3.8", "-3.9", "3.12", "3.12")
    assert usable_pythons("system", "2.35") == {"3.8", "3.12"}
    here()
    assert usable_pythons("system", "2.35") == set()


def test_the_preference_and_the_glibc_decide_what_is_usable(here, monkeypatch):
    here("3.8")
    asked, found = [], module.interpreter_here
    monkeypatch.setattr(module, "interpreter_here", lambda minor, **how: asked.append(how) or found(minor, **how))
    usable_pythons("only-system", "2.35")
    assert asked == [{"preference": "only-system", "glibc": "2.35"}]


def test_the_nearest_python_is_taken_and_said(machine, source, here):
    here("3.6", "3.12", "3.14")
    assert another(machine, source) == "3.12"
    assert machine.steps.seen == [
        "m: no Python 3.10 here",
        "m: neither it nor an option names a Python, so it gets Python 3.12",
    ]


def test_of_two_that_are_as_near_the_newer_one_is_taken(machine, source, here):
    here("3.9", "3.11")
    assert another(machine, source) == "3.11"
    here("3.9", "3.12")
    assert another(machine, source) == "3.9"


def test_a_python_that_is_named_is_not_replaced(machine, source, here):
    here("3.9")
    assert another(machine, source, ChosenPython("3.10", "--python")) is None
    assert another(machine, source, None) is None
    with pytest.raises(EnvironmentBuildError) as raised:
        with_another_python(machine.project, source, None, MISSING, machine.steps)
    assert raised.value is MISSING
    assert machine.steps.seen == []


def test_other_failures_have_other_remedies(machine, source, here):
    here("3.9")
    assert another(machine, source, error=EnvironmentBuildError("unsolvable", "conflict", "relax it")) is None
    for kind in NO_INTERPRETER:
        assert another(machine, source, error=EnvironmentBuildError(kind, "none", "install one")) == "3.9"


def test_a_python_from_a_channel_is_not_replaced(machine, here):
    here("3.9")
    from_channel = build_request(machine.project, open_model(machine.folder)).source
    assert another(machine, from_channel) is None
    taken_over = build_request(
        machine.project.saying(Settings(from_prefix=machine.folder)), open_model(machine.folder)
    ).source
    assert another(machine, taken_over) is None


def test_a_machine_without_any_other_python_has_none(machine, source, here):
    here("-3.9", "2.7")
    assert another(machine, source) is None


def test_what_the_requirements_allow_is_all_that_counts(machine, here):
    here("3.9", "3.12")
    (machine.folder / "requirements.txt").unlink()
    (machine.folder / "pyproject.toml").write_text('[project]\nrequires-python = ">=3.10"\ndependencies = ["numpy"]\n')
    project = machine.project.saying(Settings(channels=("local",)))
    source = build_request(project, open_model(machine.folder)).source
    assert another(machine, source) == "3.12"


# Builds and plans


@pytest.fixture
def without_own(machine, here, monkeypatch):
    """A machine that has Python 3.9 in place of the release's 3.10, and the environment for it."""
    here("3.9")
    (machine.repository / "envpack.toml").write_text('channels = ["local"]\n')
    asked = []

    def locked_environment(recipe, progress, store):
        asked.append(recipe.target.python)
        if recipe.target.python == "3.10":
            raise MISSING
        return machine.install(machine.lock(python="3.9"))

    monkeypatch.setattr("envpack.workflow.build.locked_environment", locked_environment)
    return asked


def test_a_build_goes_on_with_the_other_python(machine, without_own):
    built = build_model(machine.project.saying(Settings(stub="never")), "m", machine.steps)
    assert (without_own, built.python) == (["3.10", "3.9"], "3.9.1")
    assert built.environment == machine.folder / "python3.9"
    assert "m: neither it nor an option names a Python, so it gets Python 3.9" in machine.steps.seen


def test_a_build_that_names_its_python_fails(machine, without_own):
    with pytest.raises(EnvironmentBuildError, match=r"no Python 3\.10 here"):
        build_model(machine.project.saying(Settings(python="3.10")), "m", machine.steps)
    assert without_own == ["3.10"]


def test_a_plan_names_the_other_python(machine, here, monkeypatch):
    here("3.9")
    (machine.repository / "envpack.toml").write_text('channels = ["local"]\n')

    def remembered(options, requirements, target):
        if target.python == "3.10":
            raise MISSING

    monkeypatch.setattr("envpack.lock.resolve.LockOptions.remembered", remembered)
    monkeypatch.setattr("envpack.workflow.plan.reason_to_fetch", lambda *_: "it is not here")
    plan = plan_model(machine.project, "m")
    assert (plan.python, plan.python_source) == ("3.9", "this machine, which lacks that of the release")
    assert (plan.changes[0].action, plan.changes[0].reason) == ("fetch Python 3.9", "it is not here")
    with pytest.raises(EnvironmentBuildError, match=r"no Python 3\.10 here"):
        plan_model(machine.project.saying(Settings(python="3.10")), "m")
