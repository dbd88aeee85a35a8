"""The stub of a model in its repository is compared with its environment, the release and the host."""

from dataclasses import replace

import pytest

from envpack.inspection import preflight
from envpack.inspection.facts import (
    EnvironmentFacts,
    StubRequirements,
    image_host,
)
from envpack.inspection.preflight import preflight_model
from envpack.repository.model import open_model
from envpack.settings.releases import find_release
from envpack.support.errors import InputError, StubError


@pytest.fixture
def repository(tmp_path, monkeypatch):
    """A folder of models; stubs need the release 24.04 and Python 3.9, environments have what their name says."""

    def stub(path):
        if path.read_bytes() != b"stub":
            raise StubError("not-a-stub", "it is damaged", "build it again")
        asked.append(path)
        return StubRequirements(
            path=path, machine="x86_64", python="3.9", glibc="2.17", glibcxx="", epochs=("24.04",), release_file=""
        )

    def environment(path):
        if path.name == "broken":
            raise InputError("environment-unreadable", "broken")
        return EnvironmentFacts(path, "" if path.name == "venv" else path.name, "x86_64", "2.17", "", "")

    asked = []
    monkeypatch.setattr(preflight, "read_stub_requirements", stub)
    monkeypatch.setattr(preflight, "read_environment_facts", environment)
    return asked


def model_in(tmp_path, *, environment="", backend="python", own=None):
    (tmp_path / "m/1").mkdir(parents=True)
    (tmp_path / "m/1/model.py").touch()
    text = f'backend: "{backend}"\n'
    if environment:
        text += f'parameters {{ key: "EXECUTION_ENV_PATH" value {{ string_value: "/envs/{environment}" }} }}\n'
    (tmp_path / "m/config.pbtxt").write_text(text)
    if own is not None:
        (tmp_path / "m/triton_python_backend_stub").write_bytes(own)
    return open_model(tmp_path / "m")


def kinds(model, **options):
    return [mismatch.kind for mismatch in preflight_model(model, **options)]


@pytest.mark.parametrize(
    ("environment", "expected"), [("3.9", []), ("3.10", ["python-mismatch"]), ("venv", []), ("broken", []), ("", [])]
)
def test_a_models_own_stub_is_compared_with_its_environment(tmp_path, repository, environment, expected):
    assert kinds(model_in(tmp_path, environment=environment, own=b"stub")) == expected
    assert repository == [tmp_path / "m/triton_python_backend_stub"]


def test_release_and_host_are_compared_too(tmp_path, repository):
    model, host = model_in(tmp_path, own=b"stub"), image_host(find_release("24.04"))
    assert kinds(model, release=find_release("24.04"), host=host) == []
    assert kinds(model, release=find_release("24.10")) == ["release-mismatch"]
    assert kinds(model, host=replace(host, glibc="2.5")) == ["glibc-too-old"]


def test_a_damaged_stub_of_the_model_is_a_mismatch_with_its_reason(tmp_path, repository):
    (mismatch,) = preflight_model(model_in(tmp_path, own=b"x"))
    assert (mismatch.kind, mismatch.fix) == ("not-a-stub", "build it again")
    assert mismatch.what == f"{tmp_path}/m/triton_python_backend_stub is not a stub: it is damaged"


@pytest.mark.parametrize(("content", "expected"), [(b"stub", ["python-mismatch"]), (b"x", [])])
def test_without_a_stub_of_its_own_the_servers_counts(tmp_path, repository, content, expected):
    """The server's stub may be for another machine: that it cannot be read here says nothing."""
    default = tmp_path / "default"
    default.write_bytes(content)
    model = model_in(tmp_path, environment="3.10")
    assert kinds(model, default_stub=default) == expected
    for mismatch in preflight_model(model, default_stub=default):
        assert mismatch.fix.endswith(f"--output {model.folder}`"), "the server's stub is not replaced"


def test_a_backend_has_a_stub_of_its_own(tmp_path, repository):
    model = model_in(tmp_path, environment="3.10", backend="python_3_9")
    default = tmp_path / "default"
    default.write_bytes(b"stub")
    assert kinds(model, default_stub=default) == []
    assert kinds(model, default_stub=default, backends=tmp_path / "backends") == []
    stub = tmp_path / "backends/python_3_9/triton_python_backend_stub"
    stub.parent.mkdir(parents=True)
    stub.write_bytes(b"stub")
    assert kinds(model, default_stub=default, backends=tmp_path / "backends") == ["python-mismatch"]
    assert repository == [stub]


def test_an_ensemble_has_no_process(tmp_path, repository):
    model = replace(model_in(tmp_path, environment="3.10", own=b"stub"), is_ensemble=True)
    assert kinds(model) == []
