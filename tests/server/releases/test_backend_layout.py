"""Several backend folders for one Python each, with archives: every release serves models from them."""

import json
from pathlib import Path

import pytest

from envpack.repository.placement import ONE_AT_A_TIME, backend_for
from envpack.server.process import ProcessRuntime
from envpack.server.tensors import Tensor
from envpack.settings.pythons import SUPPORTED
from envpack.settings.releases import find_release
from envpack.support.errors import EnvpackError
from tests.newer_pythons import is_newer, server_for, target_of
from tests.server.model_environments import NUMPYS
from tests.server.releases.conftest import Served, place

PYTHON = "import platform\nreturn platform.python_version().rpartition('.')[0]"


@pytest.fixture(scope="module")
def neighbour(python):
    """Another Python that the same server can run."""
    for minor in reversed(SUPPORTED):
        try:
            if minor != python and is_newer(minor) == is_newer(python) and target_of(minor):
                return minor
        except EnvpackError:
            continue
    pytest.skip(f"needs another Python than {python}")


@pytest.fixture(scope="module", params=["linked", pytest.param("copied", marks=pytest.mark.thorough)])
def served(request, release, python, neighbour, choice, installation, environment, parts, tmp_path_factory):
    """A server with two backends, models that name them, and one with a stub of its own; all environments archives."""
    if choice:
        pytest.skip("a backend's stub is always ours")
    folder = tmp_path_factory.mktemp("layout")
    server_folder = installation.backends / "python" if request.param == "copied" else None
    repository = folder / "models"
    repository.mkdir()
    other = parts.archive(parts.environment(neighbour, NUMPYS[neighbour][-1]))
    archive = parts.archive(environment) if environment.is_dir() else environment
    for minor in (python, neighbour):
        backend = backend_for(minor, folder / "backends")
        backend.place(parts.stub(minor), find_release(release), server_folder)
    mine, theirs = (backend_for(minor, folder).name for minor in (python, neighbour))
    for name in ("numbers", "refuses", "script", "stream"):
        place(repository, name, archive, backend=mine)
    place(repository, "other", other, backend=theirs)
    place(repository, "words", archive, parts.stub(python))
    server = server_for(python, installation, folder)
    runtime = ProcessRuntime(server, extra_backends=folder / "backends", arguments=(ONE_AT_A_TIME,))
    names = ("numbers", "refuses", "script", "stream", "other", "words")
    with Served(release, python, False, runtime, repository, names) as served:
        yield served


def test_only_the_model_that_cannot_be_loaded_is_refused(served):
    assert set(served.failures) == {"refuses"}
    assert "ValueError: no model without REFUSES" in served.failures["refuses"]


def test_each_model_runs_on_the_stub_and_the_python_of_its_backend(served, neighbour):
    for model, minor in (("script", served.python), ("other", neighbour)):
        assert served.run(PYTHON, model=model) == minor
        (stub,) = served.stubs(model)
        arguments = Path(f"/proc/{stub}/cmdline").read_bytes().decode().split("\0")
        name = backend_for(minor, Path()).name
        assert Path(arguments[0]).parts[-2:] == (name, "triton_python_backend_stub")


def test_a_completed_configuration_and_rows_of_numbers(served):
    assert served.client.config("numbers")["max_batch_size"] == 4
    rows = (0.5, -1.0, 7.25)
    assert served.infer("numbers", Tensor("X", "FP32", (1, 3), rows))["Y"].data == (1.0, -2.0, 14.5)


def test_models_of_one_backend_ask_those_of_another(served):
    question = f"return fetch(bls_call('other', {PYTHON!r}).exec())"
    assert served.run(question) == served.run(PYTHON, model="other")


def test_errors_are_those_of_the_model(served):
    assert "ZeroDivisionError: division by zero" in served.refusal("return 1 / 0").message


def test_streams(served):
    sends = "sender = request.get_response_sender()\nsender.send(reply('sent'))\nsender.send(flags=1)"
    replies = served.run(f"return [fetch(response) for response in bls_call('stream', {sends!r}).exec(decoupled=True)]")
    assert json.dumps([value for value in replies if value is not None]) == '["sent"]'


def test_a_stub_beside_its_model_goes_on_beside_them(served):
    words = (b"abc", b"de")
    assert served.infer("words", Tensor("WORDS", "BYTES", (1, 2), words))["MIRRORED"].data == (b"cba", b"ed")
