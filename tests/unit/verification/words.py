"""A server and a client of words, with which models are judged without a process."""

import json

from envpack.server.interface import Process
from envpack.server.kserve import IndexEntry, RequestError
from envpack.server.tensors import Tensor
from envpack.verification.judge import Judge, JudgeOptions

ARGUMENTS = ("stub", "/srv/m/1/model.py", "region", "1", "1", "1", "/b", "336", "m_0_0", "DEFAULT")
STUB = Process(7, "triton_python_b", dead=False, arguments=ARGUMENTS)
TRACE = "ValueError: boom\n\nAt:\n  /srv/m/1/model.py(9): execute\n"


class Server:
    """A server with one stub; its log grows by what the client writes."""

    poll_seconds = 0.05

    def __init__(self):
        self.text, self.processes, self.mapped, self.given = "earlier\n", [STUB], (), {}

    def log_size(self):
        return len(self.text)

    def log(self, since=0):
        return self.text[since:]

    def ended(self):
        return False

    def children(self, of=None):
        return tuple(self.processes)

    def watched(self, pid):
        return ()

    def memory_bytes(self, pid):
        return 1 << 20

    def executable(self, pid):
        return ""

    def mapped_files(self, pid):
        return self.mapped

    def variables(self, pid):
        return self.given

    def host_path(self, place):
        return None

    def list_folder(self, folder):
        return ()

    def read_text(self, file):
        return ""

    def server_path(self, path):
        return "/srv/m"

    def unreadable(self, places):
        return ""

    def abort(self, pid):
        self.processes = []


class Client:
    """A client whose model returns its input, or fails with ``error``."""

    def __init__(self, server, config, error=None, load_error=None):
        self._server, self._config, self._error, self._load_error = server, config, error, load_error
        self.sent = []

    def load(self, model, *, timeout):
        self._server.text += f"loading {model}\n"
        if self._load_error:
            raise RequestError(self._load_error, status=400)

    def index(self):
        return (IndexEntry("m", "READY", ""),)

    def of_version(self, version):
        self.version = version
        return self

    def config(self, model):
        return self._config

    def infer(self, model, inputs, *, binary=None, parameters=None):
        self.sent.append((inputs, parameters))
        if self._error:
            raise self._error
        (tensor,) = inputs
        return (Tensor("OUT", tensor.datatype, tensor.shape, tensor.data),)


CONFIG = {
    "input": [{"name": "IN", "data_type": "TYPE_FP32", "dims": [1]}],
    "output": [{"name": "OUT", "data_type": "TYPE_FP32", "dims": [1]}],
}


def judge(server, *, config=CONFIG, error=None, load_error=None, **options):
    return Judge(server, Client(server, config, error, load_error), JudgeOptions(5.0, requests=1, **options))


def ids(verdict):
    return {check.id: check.status for check in verdict.checks}


def with_samples(model, content):
    (model.folder / "envpack").mkdir()
    (model.folder / "envpack/smoke.json").write_text(json.dumps(content))
