"""Models that run without a server: how they are loaded, loaded again, stopped and interrupted."""

import json
import os
import threading

import pytest

from envpack.local import server as local_server
from envpack.local.model_process import ModelFailed
from envpack.support.errors import InputError
from tests.waiting import soon

from .conftest import CONFIG, DECOUPLED, infer, request

ECHO_REST = "    return [out(request) for _, request in requests]\n"


def gone(pid):
    return soon(lambda: not os.path.exists(f"/proc/{pid}"))


MANAGE = """
import json

def execute(requests, stub):
    (_, request), = requests
    for kind, *values in json.loads(json.loads(request.parameters)["do"]):
        try:
            content = stub.ask(kind, *values)
            stub.log(f"{kind} {content.number() if kind == 'IS_MODEL_READY' else ''}".strip())
        except Exception as error:
            stub.log(str(error).strip())
    return [out(request)]
"""
TELLS = "def initialize(arguments, *_):\n    global text\n    text = WORD + arguments['model_version']\n"
TELLS += "def execute(requests, stub):\n    stub.log(text)\n" + ECHO_REST


def do(server, repository, *orders):
    before = len(repository.texts("info"))
    infer(server, request("manages", 1, parameters=json.dumps({"do": json.dumps(orders)})))
    return repository.texts("info")[before:]


def answers_of(server, repository, name="m"):
    infer(server, request(name, 1))
    return repository.texts("info")[-1]


def test_a_model_loads_and_unloads_others(repository, server):
    repository.add("manages", MANAGE)
    repository.add("m", f"WORD = 'old'\n{TELLS}")
    ready = ["IS_MODEL_READY", "m", ""]
    load = ["LOAD_MODEL", "m", "", {}]
    other, version = ["IS_MODEL_READY", "none", ""], ["IS_MODEL_READY", "m", "7"]
    answers = ["LOAD_MODEL", "IS_MODEL_READY 1", "IS_MODEL_READY 0", "IS_MODEL_READY 0"]
    assert do(server, repository, load, ready, other, version) == answers
    pid = server.model("m").process.pid
    assert do(server, repository, load) == ["LOAD_MODEL"]
    assert server.model("m").process.pid == pid, "nothing has changed, so it is not loaded again"
    repository.add("m", f"WORD = 'newer'\n{TELLS}")
    do(server, repository, load)
    assert server.model("m").process.pid != pid
    assert gone(pid)
    assert answers_of(server, repository) == "newer1"
    pid = server.model("m").process.pid
    assert do(server, repository, ["UNLOAD_MODEL", "m"], ready) == ["UNLOAD_MODEL", "IS_MODEL_READY 0"]
    assert gone(pid)
    assert do(server, repository, ["UNLOAD_MODEL", "m"]) == ["UNLOAD_MODEL"]  # it does not run
    assert do(server, repository, ready, load, ready) == ["IS_MODEL_READY 0", "LOAD_MODEL", "IS_MODEL_READY 1"]


def test_a_model_that_is_unloaded_finishes_before_the_run_ends(repository):
    repository.add("manages", MANAGE)
    repository.add("m", "def finalize(stub):\n    time.sleep(0.3)\n    stub.log('finalized')\n")
    with repository.server() as server:
        do(server, repository, ["LOAD_MODEL", "m", "", {}], ["UNLOAD_MODEL", "m"])
    assert repository.texts("info")[-1] == "finalized"


def test_another_configuration_and_files_need_a_server(repository, server):
    repository.add("manages", MANAGE)
    repository.add("m", f"WORD = 'own'\n{TELLS}")
    for given in (["{}", {}], ["", {"file:1/model.py": ""}]):
        (text,) = do(server, repository, ["LOAD_MODEL", "m", *given])
        assert text.startswith("load_model() of 'm' gives another configuration or files; only a server does that")
    assert answers_of(server, repository) == "own1"


def test_a_model_that_cannot_be_loaded_leaves_the_one_that_runs(repository, server):
    repository.add("manages", MANAGE)
    repository.add("m", f"WORD = 'old'\n{TELLS}")
    assert answers_of(server, repository) == "old1"
    repository.add("m", "raise ValueError('wrong')", version="2")
    assert do(server, repository, ["LOAD_MODEL", "m", "", {}]) == ["load failed for model 'm': wrong"]
    assert answers_of(server, repository) == "old1"
    refused = "load failed for model 'none': there is no model 'none' in the repository"
    assert do(server, repository, ["LOAD_MODEL", "none", "", {}]) == [refused]


def test_a_model_whose_files_are_wrong_is_not_loaded(repository):
    def find(name):
        if name == "m":
            raise InputError("bad-config", "wrong files", "correct them")
        return source(name)

    source, repository.source = repository.source, find
    repository.add("manages", MANAGE)
    with repository.server() as server:
        (text,) = do(server, repository, ["LOAD_MODEL", "m", "", {}])
    assert text == "load failed for model 'm': wrong files (correct them)"


# Starting and stopping


def test_a_prepared_model_starts_at_once_and_is_used_once(repository, server):
    repository.add("m", f"WORD = 'x'\n{TELLS}")
    server.prepare("m")
    server.prepare("m")
    (begun,) = server._running
    assert server.model("m") is begun
    server.prepare("m")
    assert list(server._running) == [begun]
    server.prepare("none")  # reported by its first use
    with pytest.raises(ModelFailed, match="^there is no model 'none' in the repository$"):
        server.model("none")


def test_what_was_prepared_ends_with_the_server(repository):
    repository.add("m")
    with repository.server() as server:
        server.prepare("m")
        (begun,) = server._running
        pid = begun.process.pid
    assert not os.path.exists(f"/proc/{pid}")


def test_a_forgotten_model_is_found_anew(repository, server):
    repository.add("m", f"WORD = 'x'\n{TELLS}")
    answers_of(server, repository)
    pid = server.model("m").process.pid
    repository.add("m", f"WORD = 'y'\n{TELLS}", version="2")
    server.unload("m")
    assert not os.path.exists(f"/proc/{pid}")
    assert answers_of(server, repository) == "x1", "an unloaded model is what its name stood for"
    server.forget("m")
    assert answers_of(server, repository) == "y2"
    server.forget("m")
    server.prepare("m")
    (begun,) = [model for model in server._running if model.process.peak_memory()]
    server.forget("m")
    assert not os.path.exists(f"/proc/{begun.process.pid}")
    server.forget("none")


def test_a_model_that_cannot_be_loaded_is_tried_again_by_the_next_use(repository, server):
    repository.add("m", "raise ValueError('wrong')")
    with pytest.raises(ModelFailed, match="wrong"):
        server.model("m")
    (failed,) = server._running
    assert not os.path.exists(f"/proc/{failed.process.pid}")
    repository.add("m", f"WORD = 'x'\n{TELLS}")
    assert answers_of(server, repository) == "x1"


def test_two_threads_share_one_load(repository, server):
    repository.add("m", "def initialize(*_):\n    time.sleep(0.2)\n")
    found = []
    threads = [threading.Thread(target=lambda: found.append(server.model("m"))) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(found)) == 1
    assert len(server._running) == 1


FOREVER = """
def execute(requests, stub):
    stub.log("runs")
    (number, request), = requests
    while PATIENT or not stub.ask("IS_CANCELLED", number).number():
        time.sleep(0.01)
    stub.send(number, last=True)
    return [0]
def finalize(stub):
    stub.log("finalized")
"""


@pytest.mark.parametrize("patient", [False, True])
def test_an_interruption_cancels_requests_and_ends_models_that_do_not_notice(repository, patient, monkeypatch):
    monkeypatch.setattr(local_server, "_GRACE_SECONDS", 0.3 if patient else 60)
    repository.add("m", f"PATIENT = {patient}\n{FOREVER}", CONFIG + DECOUPLED)
    ended = []
    with pytest.raises(KeyboardInterrupt), repository.server() as server:
        thread = threading.Thread(target=lambda: ended.extend(server.stream(request("m", 1))))
        thread.start()
        assert soon(repository.texts)
        pid = server.model("m").process.pid
        raise KeyboardInterrupt
    thread.join()
    assert not os.path.exists(f"/proc/{pid}")
    assert repository.texts("info") == (["runs"] if patient else ["runs", "finalized"])
    ((response, last),) = ended
    assert last
    assert (response.error is not None) == patient


def test_an_error_of_the_caller_lets_models_finish(repository):
    repository.add("m", "def finalize(stub):\n    stub.log('finalized')\n")
    with pytest.raises(ValueError, match="caller"), repository.server() as server:
        server.model("m")
        raise ValueError("caller")
    assert repository.texts() == ["finalized"]
