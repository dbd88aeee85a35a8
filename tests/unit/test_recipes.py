"""The recipes: each can be copied, says how to run it, has tests and samples, and ran as it is."""

import json
import re
import tomllib

import pytest

from ci.recipe_records import digest_of, records
from ci.recipes import CHECKOUT, LARGE_TEMPLATE, commands_of
from envpack.cli.main import run
from envpack.repository.code import called_models
from envpack.repository.selection import named_models
from envpack.requirements.format import find_requirements
from envpack.settings.examples import copy_recipe, example_titles

TITLES = example_titles("recipes")
NAMES = tuple(TITLES)


@pytest.fixture(params=NAMES)
def recipe(request, tmp_path):
    """The folder of a copied recipe."""
    copy_recipe(request.param, tmp_path / request.param)
    return tmp_path / request.param


def test_there_are_as_many_as_the_documentation_promises():
    words = {8: "eight", 9: "nine", 10: "ten"}
    for page in ("README.md", "CHANGELOG.md"):
        assert re.search(rf"\b{words[len(NAMES)]}\b.model repositories", (CHECKOUT / page).read_text())


@pytest.mark.parametrize("name", NAMES)
def test_its_readme_has_a_title_and_the_commands(name):
    assert 10 < len(TITLES[name]) < 80
    commands = commands_of(name)
    assert commands[0].startswith("envpack build")
    assert {"envpack test", "envpack verify"} <= set(commands)


def test_each_model_has_requirements_and_a_python(recipe):
    settings = tomllib.loads((recipe / "envpack.toml").read_text())
    for model in named_models(recipe, ()):
        own = settings.get("models", {}).get(model.name, {})
        assert model.is_ensemble or find_requirements(model.folder) or (recipe / own["requirements"]).is_file()
    assert settings["triton"]


def test_its_models_have_tests_and_samples(recipe):
    """Samples are there, or a script writes them."""
    tested = {test.parts[-3] for test in recipe.glob("*/tests/test_*.py")}
    models = named_models(recipe, ())
    needed = {name for model in models for name in (*model.steps, *called_models(model.folder))}
    assert {model.name for model in models} <= tested | needed
    scripts = "".join(script.read_text() for script in recipe.glob("*/training/*.py"))
    assert "smoke.json" in scripts or list(recipe.glob("*/envpack/smoke.json"))


def test_the_file_that_users_copy_is_the_same_in_all_recipes():
    copies = list((CHECKOUT / "recipes").glob("*/*/1/envpack_tensors.py"))
    assert len(copies) > 1
    assert len({file.read_bytes() for file in copies}) == 1


@pytest.mark.parametrize("name", [*NAMES, LARGE_TEMPLATE])
def test_it_ran_as_it_is(name):
    assert records()[name].digest == digest_of(name), f"run: python ci/recipes.py {name} --record"


@pytest.mark.parametrize(("option", "names"), [("--recipe", NAMES), ("--template", tuple(example_titles("templates")))])
def test_an_option_without_a_name_lists_what_there_is(capsys, option, names):
    assert run(["init", option, "--json"]) == 0
    kind = f"{option.removeprefix('--')}s"
    assert [example["name"] for example in json.loads(capsys.readouterr().out)[kind]] == list(names)
    assert run(["init", option]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == list(names)
    assert all(len(line.split(maxsplit=1)[1]) > 10 for line in lines)
