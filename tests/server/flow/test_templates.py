"""What `envpack init --template` writes passes its own tests and the verification at once."""

import pytest

from envpack.pythons import interpreter_for
from envpack.releases import DEFAULT_RELEASE, find_release
from envpack.support.errors import EnvpackError
from envpack.templates import template_names


# The packages of the torch template are gigabytes: the ring of the recipes builds it.
@pytest.mark.parametrize("template", sorted({*template_names()} - {"torch"}))
def test_a_new_model_passes_its_tests_and_is_verified(tmp_path, envpack_json, template):
    python = find_release(DEFAULT_RELEASE).python
    try:
        interpreter_for(python)
    except EnvpackError as error:
        pytest.skip(f"needs Python {python}: {error}")
    repository = tmp_path / "repository"
    code, document = envpack_json("init", repository / "first", "--template", template)
    assert (code, document["models"][0]) == (0, "first"), document

    code, document = envpack_json("build", "--python", python, "--repository", repository)
    assert code == 0, document
    code, document = envpack_json("test", "--repository", repository)
    assert code == 0, document
    code, document = envpack_json("verify", "--repository", repository)
    assert code == 0, document
