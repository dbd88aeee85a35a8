"""`envpack inspect` finds an error in exactly the custom configurations with which the real server refuses a model."""

import pytest

from envpack.inspection.repository import inspect_repository
from envpack.repository.model import open_model
from envpack.repository.placement import point_to_environment
from envpack.server.kserve import Client, RequestError
from envpack.server.process import ProcessRuntime
from envpack.settings.project import Project
from envpack.settings.releases import find_release
from envpack.settings.table import DEFAULT_RELEASE
from tests.server.verification.test_inspect_agrees import CODE, PYTHON, tensors

CUSTOM = {
    "small": PYTHON + tensors() + "max_batch_size: 2\n",
    "no_backend": tensors() + "max_batch_size: 3\n",
    "broken": PYTHON + "max_batch_size = 4\n",
    "other_name": f'name: "other"\n{PYTHON}{tensors()}',
    "no_type": PYTHON + 'input { name: "X" dims: [1] }\n',
    "ignored.txt": "max_batch_size = 4\n",
}


@pytest.fixture
def repository(tmp_path):
    folder = tmp_path / "models/good"
    (folder / "1").mkdir(parents=True)
    (folder / "configs").mkdir()
    (folder / "1/model.py").write_text(CODE)
    (folder / "config.pbtxt").write_text(PYTHON + tensors())
    return tmp_path / "models"


def write(folder, names):
    for name in names:
        (folder / "good/configs" / (name if "." in name else f"{name}.pbtxt")).write_text(CUSTOM[name])


def loaded(server, repository, name, environment=""):
    """The largest batch with which a server loads the model by a custom configuration, None if it refuses to."""
    with ProcessRuntime(server, arguments=(f"--model-config-name={name}",)).start(repository) as running:
        client = Client(running.url, timeout=30)
        try:
            client.load("good", timeout=60)
        except RequestError:
            return None
        assert environment in running.log()
        return client.config("good")["max_batch_size"]


def test_a_build_edits_the_configuration_that_the_server_is_told_to_read(server, environment, repository):
    write(repository, ["small"])
    assert point_to_environment(open_model(repository / "good"), str(environment))
    assert loaded(server, repository, "small", f"Using Python execution env {environment}") == 2


@pytest.mark.thorough
def test_inspect_refuses_the_custom_configurations_that_the_server_refuses(server, environment, repository):
    write(repository, ["small", "no_backend", "ignored.txt"])
    point_to_environment(open_model(repository / "good"), str(environment))
    write(repository, ["broken", "other_name", "no_type"])
    found = inspect_repository(Project(repository=repository), find_release(DEFAULT_RELEASE)).findings
    wrong = {finding.where.name.partition(".")[0] for finding in found if finding.severity == "error"}
    answers = {name.partition(".")[0]: loaded(server, repository, name.partition(".")[0]) for name in CUSTOM}
    assert answers == {"small": 2, "no_backend": 3, "broken": None, "other_name": None, "no_type": None, "ignored": 0}
    assert wrong == {name for name, batch in answers.items() if batch is None}
