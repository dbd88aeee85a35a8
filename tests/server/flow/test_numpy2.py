"""The trap of releases up to 24.10: their own stub answers with empty tensors under NumPy 2. Found, and cured."""

import pytest

from envpack.settings.releases import find_release
from envpack.settings.table import DEFAULT_RELEASE
from tests.needed_pythons import need


@pytest.mark.thorough
def test_the_releases_own_stub_is_found_out_and_ours_is_the_cure(doubler, envpack_json):
    python = find_release(DEFAULT_RELEASE).python
    need(python)
    (doubler / "requirements.txt").write_text("numpy>=2\n")
    build = ("build", "doubler", "--python", python, "--repository", doubler.parent)

    assert envpack_json(*build, "--stub", "never")[0] == 0
    code, document = envpack_json("verify", "--repository", doubler.parent)
    (verdict,) = document["verdict"]["models"]
    assert code == 1
    assert verdict["failure"]["kind"] == "numpy-unsupported"
    infer = next(check for check in verdict["checks"] if check["id"] == "infer")
    assert "has 0 elements" in infer["evidence"]

    assert envpack_json(*build)[0] == 0
    code, document = envpack_json("verify", "--repository", doubler.parent)
    assert code == 0, document
