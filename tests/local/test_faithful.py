"""A run without a server answers as the real server does: the same bytes, the same errors."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from envpack.local import LocalServer, ModelFailed, RawTensor, Request
from envpack.repository import open_model
from envpack.server import find_server, stream_together
from envpack.server.kserve import Client, RequestError
from envpack.server.process import ProcessRuntime
from envpack.server.tensors import encode
from envpack.support.errors import ServerError
from tests.cache import kept_cache
from tests.local.faithful_models import CASES, DECOUPLED, ENSEMBLES, STREAMS, Case, x
from tests.local.refused_models import OTHER_HALF, REFUSED, REFUSED_ENSEMBLES, SPARSE
from tests.local.served import RELEASE, LocalClient, source_of
from tests.server.model_environments import NUMPYS, ModelEnvironments

pytestmark = pytest.mark.thorough

PYTHON = "3.10"


def pytest_generate_tests(metafunc):
    """Not the Pythons of the other modules."""


def repository_of(folder, environments):
    environment, stub = environments.environment(PYTHON, NUMPYS[PYTHON][-1]), environments.stub(PYTHON)
    streams = {name: Case(body, DECOUPLED) for name, body in STREAMS.items()}
    for name, case in (CASES | streams | REFUSED).items():
        (folder / name / "1").mkdir(parents=True)
        (folder / name / "1/model.py").write_text(case.source)
        parameter = f'parameters {{ key: "EXECUTION_ENV_PATH" value {{ string_value: "{environment}" }} }}'
        (folder / name / "config.pbtxt").write_text(f'backend: "python"\n{case.config}\n{parameter}\n')
        (folder / name / stub.name).symlink_to(stub)
    for name, config in (ENSEMBLES | SPARSE | REFUSED_ENSEMBLES | OTHER_HALF).items():
        (folder / name / "1").mkdir(parents=True)
        (folder / name / "config.pbtxt").write_text(config)
    return folder


@pytest.fixture(scope="module")
def repository(tmp_path_factory):
    return repository_of(tmp_path_factory.mktemp("faithful"), ModelEnvironments(kept_cache()))


@pytest.fixture(scope="module")
def real(repository):
    """A client of the real server, with all models loaded."""
    try:
        runtime = ProcessRuntime(find_server())
    except ServerError as error:
        pytest.skip(str(error))
    with runtime.start(repository) as server:
        client = Client(server.url, timeout=60)
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(lambda name: client.load(name, timeout=120), [*CASES, *STREAMS]))
        for name in (*ENSEMBLES, *SPARSE):
            client.load(name, timeout=120)
        yield client


@pytest.fixture(scope="module")
def local(repository):
    with LocalServer(
        lambda name, _: source_of(open_model(repository / name)) if (repository / name).is_dir() else None,
        release=RELEASE,
        log=print,
    ) as server:
        yield server


def answer(client, model, request):
    """The outputs, or the error."""
    inputs, parameters = request
    try:
        return client.infer(model, inputs, binary=True, parameters=parameters)
    except RequestError as error:
        return error.message


@pytest.mark.parametrize("name", CASES)
def test_models_answer_as_on_the_server(name, real, local):
    client = LocalClient(local)
    expected = [answer(real, name, request) for request in CASES[name].requests]
    assert [answer(client, name, request) for request in CASES[name].requests] == expected


@pytest.mark.parametrize("name", STREAMS)
def test_streams_are_as_on_the_server(name, real, local):
    inputs, _ = x(1)
    (answer,) = stream_together(real, [real.stream_message(name, inputs)], timeout=60)
    expected = answer.message if isinstance(answer, RequestError) else [event["Y"] for event in answer]
    tensors = tuple(RawTensor(t.name, t.datatype, t.shape, encode(t.datatype, t.data)) for t in inputs)
    found = []
    for response, _ in local.stream(Request(tensors, model=name)):
        if response.error is not None:
            found = response.error
            break
        found += [float(memoryview(tensor.content).cast("B").cast("f")[0]) for tensor in response.outputs]
    assert found == expected


@pytest.mark.parametrize("name", [*ENSEMBLES, *SPARSE])
@pytest.mark.parametrize("request_", [x(1, 2, name="IN"), x(1, name="X"), ([], {})], ids=["right", "wrong", "empty"])
def test_ensembles_answer_as_on_the_server(name, request_, real, local):
    expected = answer(real, name, request_)
    assert answer(LocalClient(local), name, request_) == expected


@pytest.mark.parametrize("name", [*REFUSED, *REFUSED_ENSEMBLES])
def test_what_the_server_does_not_load_is_refused_for_the_same_reason(name, real, local):
    with pytest.raises(RequestError) as expected:
        real.load(name, timeout=120)
    with pytest.raises(ModelFailed) as caught:
        local.model(name)
    state = f"version 1 is at UNAVAILABLE state: {caught.value.status}: " if name in REFUSED else ""
    end = ";" if name in REFUSED else ""
    assert expected.value.message == f"load failed for model '{name}': {state}{caught.value.text}{end}\n"


def test_a_model_that_nobody_has(real, local):
    expected = answer(real, "nobody", x(1))
    with pytest.raises(ModelFailed) as caught:
        local.infer(Request((), model="nobody"))
    assert caught.value.text == expected


def test_configurations_are_completed_as_on_the_server(real, local):
    client = LocalClient(local)
    for name in (*CASES, *STREAMS):
        found, expected = client.config(name), real.config(name)
        assert found == expected, name
