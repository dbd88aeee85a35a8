"""One server for each pair of a Triton release and a Python, with the models of this folder.

    pytest tests/server/releases                                        a spread over releases and Pythons
    pytest tests/server/releases --release 24.04 --python 3.9           one pair
    pytest tests/server/releases --release all --python all             every pair
    pytest tests/server/releases --release 24.04 --python 3.9 --stub=own    with the stub that came with the release

What is fetched and made is kept in the folder that ENVPACK_TEST_CACHE names.
"""

import itertools
import json
import shutil
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from envpack.repository.config_editor import set_backend
from envpack.server.kserve import Client, RequestError
from envpack.server.process import ProcessRuntime
from envpack.server.tensors import Tensor
from envpack.settings.pythons import SUPPORTED
from envpack.settings.releases import all_releases, find_release
from envpack.support.errors import EnvpackError
from envpack.support.placed_files import STUB_NAME
from tests.cache import kept_cache
from tests.newer_pythons import server_for, target_of
from tests.server.model_environments import NUMPYS, ModelEnvironments
from tests.server.releases.spread import SPREAD
from tests.server.releases.wheels import server_of
from tests.waiting import soon

MODELS = Path(__file__).parent / "models"
IN_WHEELS = tuple(release.name for release in all_releases().values() if release.wheel)
# Further models: a model of the folder, a line of configuration, and the first release that takes it.
VARIANTS = {
    "stream": ("script", "model_transaction_policy { decoupled: true }", "23.04"),
    "reschedule": ("script", "sequence_batching { iterative_sequence: true }", "23.11"),
    "other": ("script", "", "23.04"),
    "together": (
        "numbers",
        "max_batch_size: 4\ndynamic_batching { preferred_batch_size: [ 4 ] max_queue_delay_microseconds: 5000000 }",
        "23.04",
    ),
}
LOAD_SECONDS = 60


def pytest_generate_tests(metafunc):
    if "release" in metafunc.fixturenames:
        pairs = _pairs(metafunc.config)
        metafunc.parametrize(("release", "python"), pairs, ids=["-".join(pair) for pair in pairs], scope="module")


def _pairs(config):
    releases = _chosen(config.getoption("--release"), IN_WHEELS, "the server of Triton {} is in no wheel")
    pythons = _chosen(config.getoption("--python"), SUPPORTED, "Python {} is not supported")
    if not releases and not pythons:
        return list(SPREAD)
    return list(itertools.product(releases or sorted({release for release, _ in SPREAD}), pythons or SUPPORTED))


def _chosen(names, known, complaint):
    for name in names:
        if name not in {"all", *known}:
            raise pytest.UsageError(f"{complaint.format(name)}; these can be tested: {', '.join(known)}")
    return known if "all" in names else names


@dataclass
class Served:
    """A running server of one release, with the models of one Python."""

    release: str
    python: str
    own_stub: bool
    runtime: ProcessRuntime
    repository: Path
    names: list[str]
    _servers: ExitStack = field(default_factory=ExitStack)

    def __enter__(self):
        self.server = self._servers.enter_context(self.runtime.start(self.repository))
        self.client = Client(self.server.url, timeout=15)
        self.failures = load(self.client, self.names)
        return self

    def __exit__(self, *error):
        return self._servers.__exit__(*error)

    def infer(self, model, *inputs, **options):
        """The outputs of a model, by name."""
        assert model not in self.failures, self.failures[model]
        return {tensor.name: tensor for tensor in self.client.infer(model, inputs, **options)}

    def run(self, code, *inputs, model="script", **options):
        """What the code returns inside of a script model."""
        tensors = (Tensor("CODE", "BYTES", (1,), (code.encode(),)), *inputs)
        try:
            outputs = self.infer(model, *tensors, **options)
        except RequestError as error:
            if error.status or not self._crashed_by_itself():
                raise
            self.__enter__()
            outputs = self.infer(model, *tensors, **options)
        return json.loads(outputs["OUT"].data[0])

    def _crashed_by_itself(self):
        """Whether the server of 23.04 is gone. It frees what a request between models waits with before the callback
        with the response is done, and crashes once in some hundreds of such requests, with its own stub as with ours.
        """
        return self.release == "23.04" and soon(self.server.ended, seconds=2)

    def refusal(self, code, *, model="script"):
        """The error that the code ends with."""
        with pytest.raises(RequestError) as caught:
            self.run(code, model=model)
        return caught.value

    def stream(self, code):
        """What the code sends inside of the stream model, to a client."""
        body = json.dumps({"CODE": code}).encode()
        events = self.client._send("POST", "/v2/models/stream/generate_stream", body=body).content.decode()
        return [json.loads(json.loads(line.removeprefix("data: "))["OUT"]) for line in events.splitlines() if line]

    def stubs(self, model):
        """Process ids of a model's stubs."""
        stubs = [child for child in self.server.children() if len(child.arguments) > 8]
        return [stub.pid for stub in stubs if Path(stub.arguments[1]).parts[-3] == model]

    def regions(self):
        return [Path("/dev/shm", name) for name in self.server.shared_memory()]


def place(repository, name, environment, stub=None, backend=""):
    """Put a model of this folder into a repository, with a stub of its own or with a backend that has one."""
    source, line, _ = VARIANTS.get(name, (name, "", ""))
    folder = repository / name
    shutil.copytree(MODELS / source, folder)
    if stub:
        shutil.copy(stub, folder / STUB_NAME)
    if backend:
        config = folder / "config.pbtxt"
        config.write_text(set_backend(config.read_text(), backend, config))
    with (folder / "config.pbtxt").open("a") as config:
        config.write(f'{line}\nparameters {{ key: "EXECUTION_ENV_PATH" value {{ string_value: "{environment}" }} }}\n')
        config.write("instance_group [ { kind: KIND_CPU } ]\n")  # 23.04 asks for a GPU otherwise


def load(client, names):
    """Load models side by side; returns the errors of failed loads."""

    def failure(name):
        try:
            client.load(name, timeout=LOAD_SECONDS)
        except RequestError as error:
            return error.message
        return ""

    with ThreadPoolExecutor(8) as pool:
        return {name: text for name, text in zip(names, pool.map(failure, names), strict=True) if text}


@pytest.fixture(scope="session")
def parts():
    return ModelEnvironments(kept_cache())


@pytest.fixture(scope="session")
def choice(pytestconfig):
    return pytestconfig.getoption("--stub")


@pytest.fixture(scope="module")
def installation(release, parts):
    return server_of(find_release(release), parts.folder)


@pytest.fixture(scope="module")
def stub(release, python, choice, installation, parts):
    """The stub to test: ours, the release's own, or a file."""
    if choice == "own" and python not in installation.stubs:
        pytest.skip(f"the wheel of Triton {release} has no stub for Python {python}")
    if choice == "own":
        return installation.stubs[python]
    return Path(choice) if choice else parts.stub(python)


@pytest.fixture(scope="module")
def environment(release, python, choice, parts):
    """An environment in a form that the release takes, with a NumPy that the stub can do."""
    try:
        target_of(python)
    except EnvpackError as error:
        pytest.skip(str(error))
    facts = find_release(release)
    numpys = [numpy for numpy in NUMPYS[python] if numpy < "2" or facts.numpy2 or choice != "own"]
    if not numpys:
        pytest.skip(f"the stub that came with Triton {release} cannot do NumPy 2, and Python {python} has no other")
    folder = parts.environment(python, numpys[-1])
    return folder if facts.takes_folders else parts.archive(folder)


@pytest.fixture(scope="module")
def served(release, python, choice, installation, stub, environment, tmp_path_factory, pytestconfig):
    repository = tmp_path_factory.mktemp("repository")
    installation = server_for(python, installation, tmp_path_factory.mktemp("server"))
    names = [folder.name for folder in MODELS.iterdir()]
    names += [name for name, (_, _, first) in VARIANTS.items() if release >= first]
    for name in names:
        place(repository, name, environment, stub)
    variables = {"ENVPACK_RESTARTS": "1000"}  # for the models that die on purpose
    if start := pytestconfig.getoption("--start"):
        variables["ENVPACK_START"] = start
    runtime = ProcessRuntime(installation, environment=variables)
    with Served(release, python, choice == "own", runtime, repository, names) as served:
        yield served
