"""What a model has here, and another server may not have or may not read."""

from types import SimpleNamespace

import pytest

from envpack.inspection import preflight
from envpack.inspection.facts import EnvironmentFacts
from envpack.repository.model import open_model
from envpack.repository.placement import point_to_environment
from envpack.settings.releases import find_release
from envpack.verification.checks.process import Examined, check_elsewhere
from envpack.verification.verdict import StubIdentity

BY_PROCESS = SimpleNamespace(server_path=str)
IN_CONTAINER = SimpleNamespace(server_path=lambda _: "/models/m")


@pytest.fixture
def model(tmp_path):
    """The folder of a model."""
    (tmp_path / "m/1").mkdir(parents=True)
    (tmp_path / "m/1/model.py").touch()
    return tmp_path / "m"


def found(model, server, release=None):
    """The check of a model that runs on a server."""
    running = Examined(
        server=server,
        model=open_model(model),
        instances=(),
        stub=StubIdentity(7, "/stub", "3.10", "1.26.4", ""),
        mapped=(),
        variables={},
        root="",
        log="",
        release=release,
    )
    return check_elsewhere(running)


@pytest.mark.usefixtures("own_files")
def test_a_file_that_only_this_machine_has_is_a_warning(model):
    (model / "1/model.py").write_text(f"LABELS = {__file__!r}")
    check = found(model, BY_PROCESS)
    assert check.status == "warning"
    assert check.evidence.endswith(f"it names, or links to, {__file__}, a path that another server may not have")
    assert found(model, IN_CONTAINER) is None


@pytest.mark.parametrize("server", [BY_PROCESS, IN_CONTAINER])
def test_a_call_of_a_model_that_is_not_there_is_a_warning(model, server):
    (model / "1/model.py").write_text("InferenceRequest(model_name='gone')")
    assert found(model, server).evidence.endswith("it sends requests to gone, which is not in the repository")


def test_a_file_that_only_its_owner_can_read_is_a_warning(model):
    (model / "triton_python_backend_stub").touch(0o100)  # as a server leaves a stub that fails its self-test
    assert found(model, BY_PROCESS) is None
    (model / "1/model.py").chmod(0o600)
    check = found(model, BY_PROCESS)
    assert (check.status, check.fix) == ("warning", f"chmod -R a+rX {model}")


def test_an_environment_that_the_image_of_the_release_is_too_old_for_is_a_warning(model, monkeypatch):
    (model / "config.pbtxt").write_text('backend: "python"')
    (model / "env").mkdir()
    point_to_environment(open_model(model), "$$TRITON_MODEL_DIRECTORY/env")
    release = find_release("24.10")
    for glibc, too_new in (("2.35", False), ("2.38", True)):
        facts = EnvironmentFacts(model / "env", "3.13", "x86_64", glibc, "", "")
        monkeypatch.setattr(preflight, "read_environment_facts", lambda _, facts=facts: facts)
        check = found(model, BY_PROCESS, release)
        assert (check is not None and "needs glibc 2.38, but the image of Triton 24.10" in check.evidence) is too_new
        assert found(model, IN_CONTAINER, release) is None, "which has the libraries of the image"
