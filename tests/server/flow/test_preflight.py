"""What cannot go together is named before the server gets to see it."""

import shutil

import pytest

from tests.needed_pythons import need
from tests.small_stub import with_small_stub


@pytest.fixture
def built(doubler, envpack_json):
    """The model with an environment of Python 3.10 and our stub, for a release that was named."""
    need("3.10")
    code, document = envpack_json(
        "build", "doubler", "--python", "3.10", "--triton", "24.10", "--stub", "always", "--repository", doubler.parent
    )
    assert code == 0, document
    return doubler


def verdict(envpack_json, model):
    code, document = envpack_json("verify", "--repository", model.parent)
    judged = document["verdict"]["models"][0]
    return code, judged["failure"]["kind"] if judged["failure"] else "", judged


@pytest.mark.thorough
def test_a_release_file_names_the_server_that_was_built_for(built, envpack_json):
    file = built / "triton_python_backend_stub.release"
    assert file.read_text() == "24.10\n"
    assert verdict(envpack_json, built)[:2] == (0, "")

    file.write_text("24.04\n")
    code, kind, judged = verdict(envpack_json, built)
    assert (code, kind) == (1, "release-mismatch")
    assert [check["id"] for check in judged["checks"]] == ["preflight"]

    envpack_json("build", "doubler", "--python", "3.10", "--stub", "always", "--repository", built.parent)
    assert not file.exists()  # nobody named a release, so any may come
    assert verdict(envpack_json, built)[:2] == (0, "")


def test_a_stub_for_another_python_is_not_started(built, envpack_json):
    stub = built / "triton_python_backend_stub"
    code, document = envpack_json("stub", "--python", "3.8", "--output", built)
    assert code == 0, document
    code, kind, judged = verdict(envpack_json, built)
    assert (code, kind) == (1, "python-mismatch")
    assert judged["failure"]["reason"] == "the stub embeds Python 3.8, but the environment has Python 3.10"

    code, document = envpack_json("inspect", stub, "--environment", built / "python3.10", "--triton", "24.10")
    assert code == 1
    assert [mismatch["kind"] for mismatch in document["mismatches"]] == ["python-mismatch"]


def test_a_stub_for_another_release_is_not_started(built, envpack_json, monkeypatch, tmp_path):
    other = tmp_path / "other"
    other.mkdir()
    with monkeypatch.context() as patch:
        patch.setenv("PYTHONPATH", str(with_small_stub(tmp_path / "small-stub")))
        patch.chdir(tmp_path)  # not where envpack itself lies
        code, document = envpack_json("stub", "--python", "3.10", "--triton", "24.04", "--output", other)
    assert code == 0, document
    assert (other / "triton_python_backend_stub.release").read_text() == "24.04\n"
    shutil.copy(other / "triton_python_backend_stub", built)
    code, kind, judged = verdict(envpack_json, built)
    assert (code, kind) == (1, "release-mismatch")
    assert "Triton 24.10" in judged["failure"]["reason"]

    code, document = envpack_json("inspect", other / "triton_python_backend_stub", "--triton", "24.10")
    assert code == 1
    assert {mismatch["kind"] for mismatch in document["mismatches"]} == {"release-mismatch"}
