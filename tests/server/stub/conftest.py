"""One server for each Python of this machine, with our stub and the models of this folder."""

import contextlib
import ctypes
import json
import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from envpack.environment.relocation import write_activation
from envpack.server.kserve import Client, RequestError
from envpack.server.launch import find_server
from envpack.server.process import ProcessRuntime
from envpack.server.tensors import Tensor
from envpack.settings.pythons import SUPPORTED
from envpack.support.errors import ServerError
from envpack.support.platforms import libpython_name
from envpack.verification.stub_processes import stub_processes
from tests.cache import kept_cache
from tests.needed_pythons import need_interpreter
from tests.newer_pythons import is_newer, newer_root, server_for
from tests.server.listening import listening_ports
from tests.server.model_environments import NUMPYS, ModelEnvironments
from tests.waiting import soon

MODELS = Path(__file__).parent / "models"
BROKEN = (
    "auto_complete_junk", "chatty", "classless", "exits", "import_error", "killed", "no_file", "quits", "raises",
    "segfaults", "too_early",
)  # fmt: skip
# The script model once more, with another configuration.
SCRIPTS = {
    "stream": "model_transaction_policy { decoupled: true }",
    "reschedule": "sequence_batching { iterative_sequence: true }",
    "sequence": "sequence_batching { max_sequence_idle_microseconds: 600000000 }",
}
# Only clients of gRPC can cancel a request. The server binds a free port for them.
GRPC = ("--allow-grpc=true", "--grpc-address=127.0.0.1", "--grpc-port=0")
LOAD_SECONDS = 60


def pytest_generate_tests(metafunc):
    if "numpy" in metafunc.fixturenames:
        pairs = [(python, numpy) for python in SUPPORTED for numpy in NUMPYS[python]]
        metafunc.parametrize(("python", "numpy"), pairs, ids=[f"{p}-numpy{n}" for p, n in pairs])
    elif "python" in metafunc.fixturenames and not _names_its_python(metafunc):
        metafunc.parametrize("python", from_the_first(metafunc, SUPPORTED))


def from_the_first(metafunc, pythons):
    """The Pythons from that on which the test's marker `since` names."""
    since = metafunc.definition.get_closest_marker("since")
    first = SUPPORTED.index(since.args[0]) if since else 0
    return [python for python in pythons if SUPPORTED.index(python) >= first]


def _names_its_python(metafunc):
    return any(mark.args[0] == "python" for mark in metafunc.definition.iter_markers("parametrize"))


def pytest_collection_modifyitems(items):
    """All tests of one Python after each other: its server is started once, and only one runs at a time."""
    here = [index for index, item in enumerate(items) if MODELS.parent in item.path.parents]
    ordered = sorted((items[index] for index in here), key=_order)
    for index, item in zip(here, ordered, strict=True):
        items[index] = item


def _order(item):
    """The tests that spoil the server come last."""
    python = item.callspec.params.get("python") if hasattr(item, "callspec") else None
    return (SUPPORTED.index(python) if python else -1, item.get_closest_marker("spoils") is not None)


def pytest_configure(config):
    config.addinivalue_line("markers", "spoils: the test unloads models or ends the server, so it comes last")


@dataclass
class Served:
    """A running server with the models of one Python."""

    python: str
    repository: Path
    server: object
    libraries: str
    failures: dict[str, str] = field(default_factory=dict)

    def __post_init__(self):
        self.client = Client(self.server.url, timeout=30)

    @property
    def grpc_port(self):
        (port,) = self.other_ports()
        return port

    def load(self, names):
        """Load models side by side; stores the errors of failed loads."""
        with ThreadPoolExecutor(8) as pool:
            self.failures |= {name: text for name, text in zip(names, pool.map(self._load, names), strict=True) if text}

    def _load(self, name):
        try:
            self.client.load(name, timeout=LOAD_SECONDS)
        except RequestError as error:
            return f"TIMED OUT {error}" if error.timed_out else error.message
        return ""

    def run(self, code, *, model="script", inputs=(), binary=None, parameters=None):
        """Outputs of the script model, by name."""
        assert model not in self.failures, self.failures[model]
        tensors = [Tensor("CODE", "BYTES", (1,), (code.encode(),)), *inputs]
        outputs = self.client.infer(model, tensors, binary=binary, parameters=parameters)
        return {output.name: output for output in outputs}

    def evaluate(self, expression, **options):
        """What a Python expression is inside of the model, by way of JSON."""
        return json.loads(self.run(f"return [reply({expression})]", **options)["OUT"].data[0])

    def run_code(self, code, **options):
        """The value that code answers with by ``reply``."""
        return json.loads(self.run(code, **options)["OUT"].data[0])

    def free(self, model="script"):
        """Free bytes of the region, while this question is being answered."""
        return self.evaluate("c_python_backend_utils.shared_memory.free_memory()", model=model)

    def allocated(self, model):
        """Bytes of the region that are in use, by the header of its allocator."""
        (stub,) = self.stubs(model)
        region = Path("/proc", str(stub), "cmdline").read_bytes().split(b"\0")[2].decode()
        return int.from_bytes(Path("/dev/shm", region).read_bytes()[40:48], "little")

    def frees_all_again(self, free, model="script"):
        """Whether as many bytes are free as before, now or soon: the server frees a response after the client has it.

        More may be: Python can collect what an earlier test has left. The allocator adds what is too small to be a
        block to the one before it.
        """
        return soon(lambda: self.free(model) >= free - 96)

    def try_to(self, code):
        """Run code for which answer and error are both right, as long as there is one of them."""
        with contextlib.suppress(RequestError):
            self.run(code)

    def soon_logged(self, text):
        """Whether the server's log says this, now or soon: the server writes what its stubs send when it gets to it."""
        return soon(lambda: text in self.server.log())

    def refusal(self, code, **options):
        """The error that running the code ends with."""
        with pytest.raises(RequestError) as caught:
            self.run(code, **options)
        return caught.value

    def post(self, model, request):
        """Send a request as JSON, for what the client has no words for."""
        content = self.client._send("POST", f"/v2/models/{model}/infer", body=json.dumps(request).encode()).content
        return json.loads(content)

    def stream(self, code):
        """What the decoupled script model answers, one item for each response: values, or an error's text."""
        body = json.dumps({"CODE": code}).encode()
        try:
            events = self.client._send("POST", "/v2/models/stream/generate_stream", body=body).content.decode()
        except RequestError as error:  # when the first response is one
            return [error.message]
        documents = [json.loads(line.removeprefix("data: ")) for line in events.splitlines() if line]
        return [document.get("error") or json.loads(document["OUT"]) for document in documents]

    def stubs(self, model=None):
        """Process ids of the stubs, of one model or all."""
        return [
            child.pid
            for child in self.server.children()
            if not child.dead and len(child.arguments) > 8 and model in (None, Path(child.arguments[1]).parts[-3])
        ]

    def workers(self, model):
        """Process ids of the processes that run a model."""
        return [process.pid for process in stub_processes(self.server, model)]

    def other_ports(self):
        """The ports that the server listens on besides HTTP's."""
        return sorted(listening_ports(self.server.pid) - {urlsplit(self.server.url).port})

    def regions(self):
        return [Path("/dev/shm", name) for name in self.server.shared_memory()]


def numpy_name(name, numpy):
    """Name of the copy of a model that runs with this NumPy."""
    return f"{name}_numpy{numpy.partition('.')[0]}"


class Servers:
    """At most one server at a time, with all models of one Python.

    ``start``: how models start that have no parameter for it.
    """

    def __init__(self, installation, model_environments, folder, start=None):
        self.installation = installation
        self.model_environments = model_environments
        self.folder = folder
        self._variables = {"ENVPACK_START": start} if start else {}
        self.current = None
        self._stack = ExitStack()

    def get(self, python):
        if self.current is None or self.current.python != python:
            self.close()
            repository = self.folder / python
            names = self._fill(repository, python)
            self.current = self.start(python, repository, self._stack)
            self.current.load(names)
        return self.current

    def close(self):
        self.current = None
        self._stack.close()

    def start(self, python, repository, stack, variables=None, arguments=GRPC):
        home = self._home_with_user_site(python)
        # An empty PYTHONNOUSERSITE is none: the stub alone decides about the user site.
        variables = {"HOME": str(home), "PYTHONNOUSERSITE": "", **self._variables, **(variables or {})}
        variables |= {name: value for name, value in os.environ.items() if name.endswith("SAN_OPTIONS")}
        installation = server_for(python, self.installation, self.folder)
        runtime = ProcessRuntime(installation, environment=variables, arguments=arguments)
        libraries = self.installation.library_path
        return Served(python, repository, stack.enter_context(runtime.start(repository)), libraries)

    def two_scripts(self, python, folder, stack, scripts=(), **options):
        """A server of its own with two script models, first and second, and others with configurations of their own."""
        repository = folder / "repository"
        repository.mkdir()
        parts = self.model_environments
        for name in ("first", "second"):
            self.place(repository, name, "script", parts.environments(python)[0], parts.stub(python))
        for name in scripts:
            self.place(repository, name, "script", parts.environments(python)[0], parts.stub(python), SCRIPTS[name])
        served = self.start(python, repository, stack, **options)
        served.load(["first", "second", *scripts])
        return served

    def place(self, repository, name, source, environment, stub, line="", **parameters):
        """Put one model into the repository, with a line of its own and parameters in its configuration."""
        folder = repository / name
        shutil.copytree(MODELS / source, folder)
        shutil.copy(stub, folder / stub.name)
        with (folder / "config.pbtxt").open("a") as config:
            values = {"EXECUTION_ENV_PATH": environment, **parameters}
            entries = (f'{{ key: "{key}" value: {{ string_value: "{value}" }} }}' for key, value in values.items())
            config.write(f"parameters: [ {', '.join(entries)} ]\n{line}\n")

    def _fill(self, repository, python):
        stub = self.model_environments.stub(python)
        environments = self.model_environments.environments(python)
        first = environments[0]
        for numpy, environment in zip(NUMPYS[python], environments, strict=True):
            for name in ("echo", "script"):
                self.place(repository, numpy_name(name, numpy), name, environment, stub)
        for name in ("script", "batches", "completed", "executeless", *BROKEN):
            self.place(repository, name, name, first, stub)
        for name, line in SCRIPTS.items():
            self.place(repository, name, "script", first, stub, line)
        self.place(repository, "customized", "script", self._customized(first), stub)
        self.place(repository, "without_modes", "script", self.model_environments.without_modes(first), stub)
        if not is_newer(python) and not _loader_finds(libpython_name(python)):  # the root has it for every program
            self.place(repository, "wrong_environment", "script", self._other_python(python), stub)
        self._place_stubs_that_cannot_start(repository, first, stub)
        return sorted(folder.name for folder in repository.iterdir())

    def _place_stubs_that_cannot_start(self, repository, environment, stub):
        self.place(repository, "wrong_release", "script", environment, stub)
        (repository / "wrong_release" / f"{stub.name}.release").write_text("24.08\n")
        self.place(repository, "without_threads", "script", environment, stub)
        # No address space is large enough for the stack of a thread.
        launcher = f'#!/bin/bash\nulimit -s {1 << 40}\nexec -a "$0" {stub} "$@"\n'
        replaced = repository / "without_threads" / stub.name
        replaced.unlink()  # only root can write to it
        replaced.write_text(launcher)
        replaced.chmod(0o755)

    def _customized(self, environment):
        folder = self.folder / "customized"
        folder.mkdir(exist_ok=True)
        (folder / "sitecustomize.py").write_text("import sys\n\nsys.customized = 'by PYTHONPATH'\n")
        lines = f"export PYTHONPATH={folder} ENVPACK_USER_SITE=1\nunset PYTHONNOUSERSITE"
        return self.model_environments.variant(environment, "customized", lines)

    def _other_python(self, python):
        """What an environment for another Python looks like to a stub: no libpython of its own in it."""
        folder = self.folder / "other"
        for name in ("bin", "lib"):
            (folder / name).mkdir(parents=True, exist_ok=True)
        write_activation(folder)
        return folder

    def _home_with_user_site(self, python):
        home = self.folder / "home"
        packages = home / f".local/lib/python{python}/site-packages"
        packages.mkdir(parents=True, exist_ok=True)
        (packages / "from_user_site.py").write_text("")
        return home


def _loader_finds(library):
    """Whether the machine has this libpython installed for everybody."""
    try:
        ctypes.CDLL(library)
    except OSError:
        return False
    return True


@pytest.fixture(scope="session")
def servers(tmp_path_factory, pytestconfig):
    try:
        installation = find_server()
    except ServerError as error:
        pytest.skip(str(error))
    start = pytestconfig.getoption("--start")
    servers = Servers(installation, ModelEnvironments(kept_cache()), tmp_path_factory.mktemp("repositories"), start)
    yield servers
    servers.close()


@pytest.fixture
def interpreter(python):
    if is_newer(python):
        return newer_root()
    return need_interpreter(python)


@pytest.fixture
def deepest(python):
    """A script model that no other test code asks."""
    return numpy_name("script", NUMPYS[python][0])


@pytest.fixture
def served(servers, interpreter, python):
    """The server of this Python; the same for all its tests."""
    return servers.get(python)
