"""The process of a model: what it is started with, how its end is reported, and how it is stopped."""

import json
import os
import re
import signal
from dataclasses import replace

import pytest

from envpack.local import model_process
from envpack.local.model_process import ModelFailed
from envpack.server.proc import start_time
from envpack.support.errors import ServerError
from tests.waiting import soon

from .conftest import CONFIG, infer, numbers, request

TELL = """
import json

def initialize(arguments, decoupled, instance):
    global told
    told = [arguments, decoupled, instance, RELEASE, IN_ENVIRONMENT, NAME]

def execute(requests, stub):
    stub.log(json.dumps(told))
    stub.log(json.dumps(dict(os.environ)))
    return [out(request) for _, request in requests]
"""


def told(repository, **options):
    """What a model was initialized with, and its variables."""
    with repository.server(**options) as server:
        assert numbers(infer(server, request("m", 5))) == [5]
    return [json.loads(text) for text in repository.texts("info")[-2:]]


def test_a_model_gets_what_a_server_gives_it(repository, monkeypatch):
    repository.add("m", TELL, f"instance_group [ {{ name: 'own', kind: KIND_CPU }} ]\n{CONFIG}", version="3")
    for name in ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV"):
        monkeypatch.setenv(name, "/elsewhere")
    monkeypatch.setenv("LD_LIBRARY_PATH", "/before")
    (arguments, decoupled, instance, *rest), variables = told(repository, variables={"OWN": "1"})
    config = json.loads(arguments.pop("model_config"))
    assert (config["name"], config["backend"], config["max_batch_size"]) == ("m", "python", 0)
    assert arguments == {
        "model_instance_kind": "CPU",
        "model_instance_name": "own_0",
        "model_instance_device_id": "0",
        "model_repository": str(repository.folder / "m"),
        "model_version": "3",
        "model_name": "m",
    }
    assert [decoupled, instance, *rest] == [False, "own_0", 2410, True, "m"]
    assert variables["PATH"] == f"{repository.prefix}/bin:{os.environ['PATH']}"
    assert variables["LD_LIBRARY_PATH"] == f"{repository.prefix}/lib:/before"
    assert (variables["PYTHONNOUSERSITE"], variables["OWN"]) == ("1", "1")
    assert not variables.keys() & {"PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV"}


def test_a_line_of_the_log_has_its_level_and_place(repository):
    repository.add("m", "def execute(requests, stub):\n    [stub.log(str(n), n) for n in range(4)]\n" + ECHO_REST)
    with repository.server() as server:
        infer(server, request("m", 1))
    assert [(line.level, line.text, line.place, line.model) for line in repository.logged] == [
        (level, str(number), "model.py:7", "m") for number, level in enumerate(("info", "warning", "error", "verbose"))
    ]


ECHO_REST = "    return [out(request) for _, request in requests]\n"


@pytest.mark.parametrize(("release", "activated"), [(2507, "yes"), (2508, None)])
def test_releases_up_to_25_07_start_a_model_with_the_environments_activate(repository, release, activated, monkeypatch):
    monkeypatch.delenv("LD_LIBRARY_PATH", raising=False)
    (repository.prefix / "bin/activate").write_text("export ACTIVATED=yes\n")
    repository.add("m", TELL)
    _, variables = told(repository, release=release)
    assert variables.get("ACTIVATED") == activated
    assert variables["LD_LIBRARY_PATH"] == f"{repository.prefix}/lib"


def test_a_stub_that_cannot_be_started_is_an_error(repository, server):
    repository.add("m")
    repository.stub.chmod(0o644)
    with pytest.raises(ServerError, match="the stub cannot be started: Permission denied") as raised:
        server.model("m")
    assert (raised.value.kind, raised.value.where) == ("stub-failed", str(repository.stub))


WRITES = ": the model writes to descriptors that are not its own"
CLOSES = ": the model closes descriptors that are not its own"
DEATHS = {
    "import": ("os._exit(3)", "ended with status 3 while the configuration was completed"),
    "initialize": ("def initialize(*_):\n    os._exit(0)", "ended with status 0 while initialize() was running"),
    "execute": (
        "def execute(*_):\n    os.kill(os.getpid(), signal.SIGKILL)",
        "ended by SIGKILL while execute() was running",
    ),
    "noise": (
        "def execute(requests, stub):\n    stub.end.sendall(b'x' * 24)\n    time.sleep(60)",
        f"was ended: it sent what no stub sends while execute() was running{WRITES}",
    ),
    "closed": (
        "def execute(requests, stub):\n    stub.end.close()\n    time.sleep(60)",
        f"was ended: it closed its connection to envpack while execute() was running{CLOSES}",
    ),
    "too few answers": (
        "def execute(requests, stub):\n    return []",
        f"was ended: it sent what no stub sends while execute() was running{WRITES}",
    ),
}


@pytest.mark.parametrize("name", DEATHS)
def test_the_end_of_a_process_says_what_it_was_doing(repository, server, name):
    code, says = DEATHS[name]
    repository.add("m", code)
    with pytest.raises(ModelFailed) as raised:
        response = infer(server, request("m", 1))
        raise ModelFailed(response.error)
    assert raised.value.text == f"the process of 'm' {says}"


def test_a_process_that_ended_is_started_again_for_the_next_request(repository, server):
    repository.add("m", "def execute(requests, stub):\n    import threading\n" + LATER + ECHO_REST)
    for _ in range(2):
        assert numbers(infer(server, request("m", 1))) == [1]
        process = server.model("m").process
        assert soon(lambda process=process: process.has_ended)
    repository.add("m", "os._exit(3)")
    with pytest.raises(ModelFailed, match="ended with status 3 while the configuration was completed"):
        infer(server, request("m", 1))


LATER = "    threading.Timer(0.05, lambda: os._exit(4)).start()\n"


def test_a_process_that_reads_nothing_is_ended(repository):
    """Its socket holds some hundred kilobytes, and nobody would notice that it takes no more."""
    repository.add("m", "def execute(requests, stub):\n    return [out(request) for _, request in requests]\n")
    with repository.server(timeout=1) as server:
        process = server.model("m").process
        os.kill(process.pid, signal.SIGSTOP)
        answer = infer(server, request("m", *range(1 << 20)))
    assert answer.error.startswith("the process of 'm' was ended: ")


STARTS_CHILD = "import subprocess\nstarted = subprocess.Popen(['sleep', '600'])\n"
LOGS_PID = "def execute(requests, stub):\n    stub.log(str(started.pid))\n"


@pytest.mark.parametrize("then", [ECHO_REST, "    started.wait()\n"], ids=["stops", "takes too long"])
def test_what_a_model_has_started_ends_with_it(repository, then):
    """Else it would hold the standard output of `envpack run`, and a pipe from it would never end."""
    repository.add("m", STARTS_CHILD + LOGS_PID + then)
    with repository.server(timeout=1) as server:
        infer(server, request("m", 1))
    (pid,) = map(int, repository.texts("info"))
    assert soon(lambda: not start_time(pid))


def test_what_cannot_be_encoded_fails_its_request_and_no_other(repository, server):
    repository.add("m")
    for wrong in ({"timeout": 1 << 65}, {"model": "m", "version": 1 << 70}):
        refused = infer(server, replace(request("m", 1), **wrong)).error
        assert re.search("out of range|requires .* <= number", refused)  # in the words of 3.11 or 3.12
    with pytest.raises(ModelFailed, match="refused before the model saw it: the id "):
        infer(server, request("m", 1, id="\udc80"))
    assert numbers(infer(server, request("m", 1))) == [1]


def test_what_a_model_raises_is_the_error_of_its_load(repository, server):
    repository.add("a", "raise ValueError('at import')")
    repository.add("b", "def initialize(*_):\n    raise ValueError('at initialize')")
    for name, text in {"a": "at import", "b": "at initialize"}.items():
        with pytest.raises(ModelFailed) as raised:
            server.model(name)
        assert raised.value.text == text
    assert not server._models


def test_a_process_knows_its_peak_memory_until_it_has_ended(repository, server):
    repository.add("m")
    process = server.model("m").process
    assert 1 << 20 < process.peak_memory() < 1 << 30
    server.stop()
    assert process.peak_memory() == 0


ENDS = {
    "finalize runs": ("stub.log('bye')", ["bye"], []),
    "finalize exits": ("os._exit(5)", [], ["the process of 'm' ended with status 5 while finalize() was running"]),
    "finalize hangs": (
        "time.sleep(60)",
        [],
        ["the process of 'm' was ended: finalize() did not return within 0 s"],
    ),
}


@pytest.mark.parametrize("name", ENDS)
def test_a_model_is_finalized_before_its_process_ends(repository, name, monkeypatch):
    code, said, errors = ENDS[name]
    monkeypatch.setattr(model_process, "_STOP_SECONDS", 0.2 if name == "finalize hangs" else 15)
    repository.add("m", f"def finalize(stub):\n    {code}\n")
    with repository.server() as server:
        pid = server.model("m").process.pid
    assert (repository.texts("info"), repository.texts("error")) == (said, errors)
    assert {(line.place, line.model) for line in repository.logged if line.level == "error"} <= {("", "m")}
    assert not os.path.exists(f"/proc/{pid}")


def test_a_killed_model_is_not_finalized(repository, server):
    repository.add("m", "def finalize(stub):\n    stub.log('bye')\n")
    model = server.model("m")
    server.kill()
    assert not os.path.exists(f"/proc/{model.process.pid}")
    server.stop()
    assert (repository.texts("info"), repository.texts("error")) == ([], [])


def test_what_a_model_prints_goes_where_the_caller_wants_it(repository, tmp_path):
    repository.add("m", "import sys\nprint('to output', flush=True)\nprint('to error', file=sys.stderr, flush=True)\n")
    with (tmp_path / "output").open("wb") as output, repository.server(output=output) as server:
        server.model("m")
    assert (tmp_path / "output").read_text().split("\n") == ["to output", "to error", ""]
