"""What `envpack init` writes passes its own tests and the verification at once."""

import pytest

from envpack.settings.examples import example_titles
from envpack.settings.releases import find_release
from envpack.settings.table import DEFAULT_RELEASE
from tests.needed_pythons import need


# The packages of the torch template are gigabytes: the ring of the recipes builds it.
@pytest.mark.parametrize("template", sorted({*example_titles("templates")} - {"torch"}))
def test_a_new_model_passes_its_tests_and_is_verified(tmp_path, envpack_json, template):
    python = need(find_release(DEFAULT_RELEASE).python)
    repository = tmp_path / "repository"
    code, document = envpack_json("init", repository / "first", "--template", template)
    assert (code, document["models"][0]) == (0, "first"), document

    code, document = envpack_json("build", "--python", python, "--repository", repository)
    assert code == 0, document
    for where in ([], ["--local"]):
        code, document = envpack_json("test", *where, "--repository", repository)
        assert code == 0, document
    code, document = envpack_json("verify", "--repository", repository)
    assert code == 0, document


@pytest.mark.thorough
def test_a_recipe_passes_its_tests_and_is_verified(tmp_path, envpack_json):
    """The one with requests between three Pythons; `make recipes` runs the others, whose packages are large."""
    for python in ("3.8", "3.12", "3.13"):
        need(python)
    repository = tmp_path / "router"
    for command in (["init", repository, "--recipe", "router"], ["build"], ["test"], ["test", "--local"], ["verify"]):
        options = [] if command[0] == "init" else ["--repository", repository]
        code, document = envpack_json(*command, *options)
        assert code == 0, document
