"""A run without a server has the same outcome as the real server: the same bytes, or an error where it has one."""

import contextlib

import pytest

from envpack.server.launch import find_server
from envpack.settings.project import open_project
from envpack.support.errors import ServerError
from envpack.testing import ModelError, ModelUnderTest
from envpack.testing.opening import find_runtime, open_models
from tests.cache import kept_cache
from tests.local.faithful_models import CASES, DECOUPLED, STREAMS, Case, stream
from tests.local.hostile_models import HOSTILE
from tests.server.model_environments import NUMPYS, ModelEnvironments

PYTHON = "3.10"
MODELS = CASES | {name: Case(body, DECOUPLED, [stream(1)]) for name, body in STREAMS.items()} | HOSTILE
SECONDS = 20


def pytest_generate_tests(metafunc):
    """Not the Pythons of the other modules."""


def repository_of(folder, environments):
    environment, stub = environments.environment(PYTHON, NUMPYS[PYTHON][-1]), environments.stub(PYTHON)
    for name, case in MODELS.items():
        (folder / name / "1").mkdir(parents=True)
        (folder / name / "1/model.py").write_text(case.source)
        parameter = f'parameters {{ key: "EXECUTION_ENV_PATH" value {{ string_value: "{environment}" }} }}'
        (folder / name / "config.pbtxt").write_text(f'backend: "python"\n{case.config}\n{parameter}\n')
        (folder / name / stub.name).symlink_to(stub)
    return folder


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    return open_project(repository_of(tmp_path_factory.mktemp("faithful"), ModelEnvironments(kept_cache())))


@pytest.fixture(scope="module")
def served(project):
    """The models on the real server."""
    try:
        find_server()
    except ServerError as error:
        pytest.skip(str(error))
    with contextlib.closing(open_models(project, find_runtime(project), timeout=SECONDS)) as models:
        yield models


@pytest.fixture(scope="module")
def local(project):
    with contextlib.closing(open_models(project, None, timeout=SECONDS)) as models:
        yield models


FAILED = "failed"


def values(outputs):
    return {name: (str(array.dtype), array.shape, array.tolist()) for name, array in sorted(outputs.items())}


def outcome(models, name, sent):
    """What comes of requests: for each its values, or that it failed; of a stream, each response."""
    try:
        models.load(name)
        model = ModelUnderTest(name, models, models.position())
        if not sent.is_stream:
            made = [model.request(inputs, **options) for inputs, options in sent.requests]
            answers = model.infer_batch(made, return_errors=True)
            return [FAILED if isinstance(answer, ModelError) else values(answer) for answer in answers]
    except ModelError:
        return FAILED
    ((inputs, options),) = sent.requests
    found = []
    try:
        found.extend(values(outputs) for outputs in model.stream(inputs, **options))
    except ModelError:
        found.append(FAILED)
    return found


# Of each kind one, for every run of the tests.
SOME = {
    "default",
    "parameters",
    "shaped",
    "joined",
    "stream",
    "closes_descriptors",
    "asks_for_many_streams",
    "own_name",
}


@pytest.mark.parametrize(
    "name", [name if name in SOME else pytest.param(name, marks=pytest.mark.thorough) for name in MODELS]
)
def test_models_answer_as_on_the_server(name, served, local):
    expected = [outcome(served, name, sent) for sent in MODELS[name].sent]
    assert [outcome(local, name, sent) for sent in MODELS[name].sent] == expected


def test_the_table_is_large_enough_to_mean_something():
    assert sum(len(case.sent) for case in MODELS.values()) >= 150
