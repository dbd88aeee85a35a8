"""What a lock warns of, and what to do so that the requirements have one more package."""

import platform
from dataclasses import replace

import pytest

from envpack.inspection.imports import requirement_warnings
from envpack.lock.lockfile import write_lock
from envpack.repository.model import open_model
from envpack.requirements.model import Requirements
from envpack.settings.table import Settings
from envpack.support.errors import EnvironmentBuildError, InputError
from envpack.workflow import lock as module
from envpack.workflow.lock import lock_model, locked_environment
from envpack.workflow.plan import plan_model
from envpack.workflow.python_choice import ChosenPython
from tests.tables import every_row
from tests.wheels import make_wheel

from .test_lock import Resolver, resolver

__all__ = ["resolver"]  # a fixture


@pytest.fixture
def model(machine):
    def importing(*names):
        (machine.folder / "1/model.py").write_text("".join(f"import {name}\n" for name in names))
        return open_model(machine.folder)

    return importing


@pytest.mark.parametrize(
    ("file", "locked", "remedy"),
    [
        ("m/requirements.txt", False, "add tree to {}/m/requirements.txt"),
        ("m/pylock.toml", True, "add tree to what {}/m/pylock.toml was made from, and make it again"),
        ("m/uv.lock", True, "run in {}/m: uv add tree"),
        ("m/poetry.lock", True, "run in {}/m: poetry add tree"),
        ("m/pixi.lock", True, "run in {}/m: pixi add --pypi tree"),
        ("m/Pipfile.lock", True, "run in {}/m: pipenv install tree"),
    ],
)
def test_a_package_that_the_code_imports_is_added_where_the_requirements_are(machine, model, file, locked, remedy):
    source = machine.repository / file
    wheels = machine.lock().pip if locked else ()
    requirements = Requirements(source=source, locked_pip=wheels)
    (machine.folder / "requirements.txt").unlink()
    (warning,) = requirement_warnings(model("numpy", "os", "tree"), requirements, "3.10", {"numpy"})
    place = f"{machine.folder}/1/model.py:3: it imports tree, which none of its packages provides: "
    assert warning == place + remedy.format(machine.repository)


@every_row(
    ("file", "remedy"),
    [
        ("m/requirements.txt", "add b-two, pillow and d-four to {}/m/requirements.txt"),
        ("m/uv.lock", "run in {}/m: uv add b-two pillow d-four"),
    ],
)
def test_imports_that_no_package_provides_are_named_together(machine, model, file, remedy):
    requirements = Requirements(source=machine.repository / file)
    importing = model("a_one", "b_two", "PIL", "d_four")
    (warning,) = requirement_warnings(importing, requirements, "3.10", {"a-one"})
    place = f"{machine.folder}/1/model.py:2: it imports b_two, PIL and d_four, which none of its packages provides: "
    assert warning == place + remedy.format(machine.repository)


def test_modules_of_the_project_are_copied_and_not_installed(machine, model):
    project = machine.repository.parent
    (project / "src").mkdir()
    for name in ("settings.py", "src/features.py"):
        (project / name).touch()
    for name, file in (("tools", "a.py"), ("library", "setup.py"), ("torch", "a.py")):
        (project / name).mkdir()
        (project / name / file).touch()
    (machine.repository / "other").mkdir()
    for file in ("config.pbtxt", "a.py"):
        (machine.repository / "other" / file).touch()
    requirements = Requirements(source=machine.folder / "requirements.txt")
    importing = model("settings", "tools", "library", "torch", "other", "features")
    settings, tools, features, packages = requirement_warnings(importing, requirements, "3.10", {"numpy"})
    code = machine.folder / "1/model.py"
    remedy = f"servers do not look for it in {project}: copy it beside the model's code, into {code.parent}"
    assert settings == f"{code}:1: it imports settings, and {remedy}"
    assert tools == f"{code}:2: it imports tools, and {remedy}"
    assert features == f"{code}:6: it imports features, and {remedy.replace(f'{project}:', f'{project}/src:')}"
    assert "it imports library, torch and other, which" in packages


def test_imports_are_not_judged_before_the_packages_are_known(machine, model):
    own = Requirements(source=machine.folder / "requirements.txt")
    assert not [*requirement_warnings(model("tree"), own, "3.10", None)]


def test_what_the_requirements_say_of_themselves_comes_first(machine, model):
    requirements = Requirements(source=machine.folder / "requirements.txt", warnings=("left out",))
    first, second = requirement_warnings(model("tree"), requirements, "3.10", ())
    assert first == "left out"
    assert "it imports tree" in second


def test_requirements_above_the_model_are_not_read_and_that_is_said(machine, model):
    above = machine.repository / "requirements.txt"
    (machine.folder / "requirements.txt").rename(above)
    (warning,) = requirement_warnings(model("numpy"), Requirements(), "3.10", {"numpy"})
    assert warning == (
        f"m: it has no requirements of its own, and {above} is not read, so it gets NumPy alone: for these packages,"
        f' write requirements = "requirements.txt" at the top of {machine.repository}/envpack.toml, for all models'
        " without requirements of their own"
    )
    assert not [*requirement_warnings(model("numpy"), Requirements(source=above), "3.10", {"numpy"})]


@pytest.mark.parametrize("named", ["1/requirements.txt", "requirements/base.txt"])
def test_requirements_in_a_folder_of_the_model_are_not_read_and_that_is_said(machine, model, named):
    """Those for developers are not meant."""
    inside = machine.folder / named
    inside.parent.mkdir(exist_ok=True)
    (inside.parent / "ci.txt").write_text("pytest\n")
    (machine.folder / "requirements.txt").rename(inside)
    (machine.repository / "requirements.txt").write_text("numpy\n")
    write = f'write [models.m] and requirements = "m/{named}" into {machine.repository}/envpack.toml'
    (warning,) = requirement_warnings(model("numpy"), Requirements(), "3.10", {"numpy"})
    assert (f"{inside} is not read" in warning, warning.endswith(write)) == (True, True)
    model("numpy", "tree")
    with pytest.raises(InputError) as raised:
        machine.request()
    assert raised.value.hint.endswith(f"for those in {inside}, {write}")
    (machine.repository / "envpack.toml").write_text(f'[models.m]\nrequirements = "m/{named}"\n')
    assert machine.request().requirements.source.samefile(inside)


def test_the_name_of_a_model_with_a_dot_is_quoted_in_the_setting(machine, model):
    (machine.folder / "requirements.txt").rename(machine.folder / "1/requirements.txt")
    folder = machine.folder.rename(machine.folder.with_name("yolo.v5"))
    (warning,) = requirement_warnings(open_model(folder), Requirements(), "3.10", {"numpy"})
    assert 'write [models."yolo.v5"] and' in warning


def test_a_model_without_requirements_may_need_no_more_than_numpy(machine, model):
    (machine.folder / "requirements.txt").unlink()
    code = machine.folder / "1/model.py"
    model("numpy", "tree", "PIL")
    with pytest.raises(InputError) as raised:
        machine.request()
    error = raised.value
    assert (error.kind, error.where) == ("requirements-missing", f"{code}:2")
    assert (
        error.message == "it imports tree and PIL, and the model has no requirements: a build would give it NumPy alone"
    )
    write = f"write numpy, tree and pillow into {machine.folder}/requirements.txt, each on a line of its own"
    assert error.hint == write
    for folder, named in ((machine.repository.parent, "../requirements.txt"), (machine.repository, "requirements.txt")):
        (folder / "requirements.txt").write_text("numpy\ntree==1.0\npillow\n")
        with pytest.raises(InputError) as raised:
            machine.request()
        project = machine.repository / "envpack.toml"
        other = f'for those in {folder}/requirements.txt, write requirements = "{named}" at the top of {project}'
        assert raised.value.hint == f"{write}; or, {other}, for all models without requirements of their own"
        project.write_text(f'requirements = "{named}"\n')
        assert machine.request().requirements.source.samefile(folder / "requirements.txt")
        (machine.repository / "envpack.toml").unlink()
    model("numpy", "os")
    assert machine.request().requirements.pip == ("numpy",)


def test_a_lock_without_numpy_says_where_to_add_it(machine):
    recipe = machine.request()
    lock = replace(machine.lock(), pip=())
    write_lock(lock, machine.folder / "envpack.lock")
    with pytest.raises(InputError) as raised:
        locked_environment(replace(recipe, lock=lock.text), machine.steps)
    error, file = raised.value, machine.folder / "requirements.txt"
    assert (error.kind, error.where) == ("numpy-missing", str(file))
    assert error.hint == f"add numpy to {file}"
    bare = replace(recipe.requirements, source=None)
    digest = machine.lock().requirements_digest
    with pytest.raises(InputError) as raised:
        locked_environment(
            replace(recipe, requirements=bare, lock=replace(lock, requirements_digest=digest).text), machine.steps
        )
    assert raised.value.hint == f"add numpy to {file}"


def test_an_error_proposes_only_pythons_that_the_requirements_allow(machine):
    recipe = machine.request()
    assert recipe.options().allowed == ""
    ranged = replace(recipe, requirements=replace(recipe.requirements, python_range=">=3.12"))
    assert ranged.options().allowed == ">=3.12"


def test_no_lock_and_no_plan_lacks_numpy(machine, monkeypatch):
    lock = replace(machine.lock(), pip=())
    monkeypatch.setattr(module, "resolve_lock", lambda *_: lock)
    with pytest.raises(InputError) as raised:
        lock_model(machine.project, "m")
    assert (raised.value.kind, (machine.folder / "envpack.lock").exists()) == ("numpy-missing", False)
    write_lock(lock, machine.folder / "envpack.lock")
    with pytest.raises(InputError) as raised:
        plan_model(machine.project, "m")
    assert raised.value.kind == "numpy-missing"
    (machine.folder / "requirements.txt").write_text("numpy\nother\n")
    with pytest.raises(InputError) as raised:
        plan_model(machine.project, "m")
    assert raised.value.kind == "stale-lock"


def hint(machine, recipe, kind="wheel-missing"):
    with pytest.raises(EnvironmentBuildError) as raised, module._other_pythons_in_hint(recipe, machine.steps):
        raise EnvironmentBuildError(kind, "x", "choose a version")
    return raised.value.hint


@pytest.fixture
def pinned(machine, tmp_path):
    """The recipe of a model with requirements that only some Pythons have wheels for, without a network."""

    def recipe(*lines, **settings):
        for tag in ("cp36-cp36m-linux_x86_64", "cp38-cp38-linux_x86_64", "cp312-cp312-linux_x86_64"):
            make_wheel(tmp_path / "wheels", "thing", "1.0", {}, tag=tag.replace("x86_64", platform.machine()))
        text = "\n".join(("--no-index", f"--find-links {tmp_path}/wheels", *lines))
        (machine.folder / "requirements.txt").write_text(text)
        return machine.request(channels=("local",), **settings)

    return recipe


def test_the_nearest_python_that_has_all_packages_is_a_remedy(machine, pinned):
    assert hint(machine, pinned("thing==1.0")) == (
        "choose a version; or take a Python for which all of it resolves: --python 3.12"
    )
    assert hint(machine, pinned("thing==1.0", python="3.7")).endswith(": --python 3.8")
    assert "look for another Python that the requirements resolve for: Python 3.12" in machine.steps.seen
    assert hint(machine, pinned("thing==2.0")) == "choose a version"
    assert hint(machine, pinned("thing==1.0"), "index-unreachable") == "choose a version"


def test_no_other_python_is_named_where_the_model_names_one(machine, pinned):
    pinned("thing==1.0")
    (machine.folder / "environment.yml").write_text("dependencies: ['python=3.10', {pip: ['-r requirements.txt']}]\n")
    recipe = machine.request(channels=("local",), requirements=machine.folder / "environment.yml")
    assert recipe.requirements.pip == ("thing==1.0",)
    assert hint(machine, recipe) == "choose a version"


def test_other_pythons_are_a_remedy_for_locked_packages(machine):
    recipe = machine.request()
    recipe = replace(recipe, requirements=replace(recipe.requirements, locked_pip=machine.lock().pip))
    assert hint(machine, recipe) == "choose a version"
    with_project = replace(recipe, requirements=replace(recipe.requirements, projects=(machine.folder,)))
    assert hint(machine, with_project) == "choose a version; or choose another Python with --python"
    ranged = replace(recipe, requirements=replace(recipe.requirements, python_range=">=3.10,<3.13"))
    others = "; or choose another Python that >=3.10,<3.13 allows: --python 3.11 or 3.12"
    assert hint(machine, ranged) == f"choose a version{others}"


def test_a_lock_is_made_for_the_python_that_is_here(machine, monkeypatch):
    found = Resolver(machine, monkeypatch)
    asked = []

    def resolve(recipe, update, progress, store, known):
        asked.append((recipe.target.python, update))
        if recipe.target.python == "3.10":
            raise EnvironmentBuildError("python-missing", "no Python 3.10 here", "install one")
        return found.lock

    monkeypatch.setattr(module, "resolve_lock", resolve)
    monkeypatch.setattr(module, "with_another_python", lambda project, *_: project.saying(Settings(python="3.9")))
    assert lock_model(machine.project, "m", update=("numpy",)).changed
    assert asked == [("3.10", ("numpy",)), ("3.9", ("numpy",))]

    def without_another(*arguments):
        raise arguments[3]

    monkeypatch.setattr(module, "with_another_python", without_another)
    with pytest.raises(EnvironmentBuildError, match=r"no Python 3\.10 here"):
        lock_model(machine.project, "m")


def test_why_a_python_is_chosen_is_said(machine):
    module.report_python(ChosenPython("3.12", "x", note="Python 3.12: because"), machine.steps)
    module.report_python(ChosenPython("3.10", "x"), machine.steps)
    module.report_python(None, machine.steps)
    assert machine.steps.seen == ["Python 3.12: because"]
