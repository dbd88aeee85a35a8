"""The recipe for outputs without a copy, with our stub and with the one of the release, which needs the fallback."""

import pytest

from envpack.settings.releases import find_release
from envpack.settings.table import DEFAULT_RELEASE
from tests.needed_pythons import need


@pytest.mark.parametrize("stub", ["always", pytest.param("never", marks=pytest.mark.thorough)])
def test_the_model_answers_right_with_either_stub(tmp_path, envpack_json, stub):
    need(find_release(DEFAULT_RELEASE).python)
    repository = tmp_path / "in_place"
    assert envpack_json("init", repository, "--recipe", "in_place")[0] == 0
    code, document = envpack_json("build", "normalize", "--repository", repository, "--stub", stub)
    assert code == 0, document

    code, document = envpack_json("verify", "--repository", repository)
    assert code == 0, document
    (verdict,) = document["verdict"]["models"]
    assert (verdict["samples"]["right"], verdict["samples"]["sent"]) == (1, 1)
