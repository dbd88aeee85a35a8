"""A server of `envpack dev` without Triton: it loads models as the test says, over HTTP, and has processes for them."""

import contextlib
import http.server
import json
import re
import threading
from dataclasses import dataclass, field
from pathlib import Path

from envpack.server.interface import Process, StopResult

CONFIG = """backend: "python"
input [ { name: "IN" data_type: TYPE_FP32 dims: [ 1 ] } ]
output [ { name: "OUT" data_type: TYPE_FP32 dims: [ 1 ] } ]
"""
CODE = "class TritonPythonModel:\n    def execute(self, requests):\n        return []\n"
LOGGED = "E1125 13:06:24.127303 28553 :0] {}\n"


def write_model(repository, name, config=CONFIG, code=CODE):
    (repository / name / "1").mkdir(parents=True, exist_ok=True)
    (repository / name / "config.pbtxt").write_text(config)
    (repository / name / "1/model.py").write_text(code)


@dataclass
class FakeServer:
    """What a session needs of a server; attributes can be changed at any time.

    Attributes:
        repository: folder of the models.
        errors: what a load answers, by model.
        gates: what a load waits for, by model.
        counts: requests, nanoseconds and failures, by model.
        stubs: process ids of the instances, by model.
        output: the log.
        asked: loads and unloads, in order.
        code: what the server exits with.
    """

    repository: Path
    errors: dict = field(default_factory=dict)
    gates: dict = field(default_factory=dict)
    counts: dict = field(default_factory=dict)
    stubs: dict = field(default_factory=dict)
    output: str = ""
    asked: list = field(default_factory=list)
    dead: bool = False
    code: int = 0
    stopped: list = field(default_factory=list)
    url: str = ""
    hidden: tuple = ()

    def log(self, start=0):
        return self.output[start:]

    def log_size(self):
        return len(self.output)

    def ended(self):
        return self.dead

    def list_folder(self, folder):
        return [place.rpartition("/")[2] for place in self.hidden]

    def unreadable(self, places):
        return next((place for place in places if place in self.hidden), "")

    def server_path(self, path):
        return f"/srv/{path.relative_to(self.repository)}"

    def stop(self, *, force):
        self.stopped.append(force)
        return StopResult(self.code, force, (), 0.0)

    def children(self, pid=None):
        return [_process(pid, model) for model, pids in self.stubs.items() for pid in pids] if pid is None else []

    def watched(self, pid):
        return []

    def mapped_files(self, pid):
        return ()

    def memory_bytes(self, pid):
        return pid * 1000

    def answer(self, method, path):
        match = re.fullmatch(r"/v2/(?:repository/)?models/([^/]+)/(\w+)", path)
        model, what = match.groups()
        if what == "stats":
            requests, nanoseconds, failures = self.counts.get(model, (0, 0, 0))
            inference = {"success": {"count": requests, "ns": nanoseconds}, "fail": {"count": failures}}
            return 200, {"model_stats": [{"name": model, "inference_stats": inference}]}
        self.asked.append(f"{what} {model}")
        if what == "load":
            gate = self.gates.get(model)
            if gate:
                gate.wait(60)
            if model in self.errors:
                return 400, {"error": self.errors[model]}
        return 200, {}


def _process(pid, model):
    return Process(pid, "triton_python_b", dead=False, arguments=("stub", f"/srv/{model}/1/model.py", *"234567", "i"))


@contextlib.contextmanager
def running(server):
    """Serve during the block."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def _answer(self):
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            status, document = server.answer(self.command, self.path)
            content = json.dumps(document).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_POST = _answer  # noqa: N815

        def log_message(self, *_):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as found:
        server.url = f"http://127.0.0.1:{found.server_port}"
        thread = threading.Thread(target=found.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield server
        finally:
            for gate in server.gates.values():
                gate.set()
            found.shutdown()
            thread.join()
