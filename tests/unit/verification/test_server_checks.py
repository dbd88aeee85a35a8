"""Checks of the server as a whole: foreign folders, all models together, and what remains after an unload."""

import json
import os
import signal
import threading
from dataclasses import dataclass, field
from types import SimpleNamespace

import pytest

from envpack.inspection.files import folder_findings
from envpack.repository.model import open_model
from envpack.server.interface import Process
from envpack.server.kserve import IndexEntry, RequestError
from envpack.server.stale_runs import VARIABLE
from envpack.support.placed_files import STUB_NAME
from envpack.verification.checks import server as checks
from envpack.verification.checks.server import (
    check_again,
    check_finalize,
    check_home,
    check_published,
    check_repository,
    check_shared_memory,
    check_together,
    check_unchanged,
    check_written,
    stamps_of,
    unload_all,
)
from envpack.verification.verdict import failed, warning

PARAMETER = 'parameters { key: "EXECUTION_ENV_PATH" value { string_value: "$$TRITON_MODEL_DIRECTORY/python3.10" } }'
STUB = Process(7, "triton_python_b", False, ("stub", "/srv/m/1/model.py", *"abcdefgh"))


def test_a_publication_without_a_record_is_not_checked():
    assert (check_published(None).id, check_published(None).status) == ("published", "unchecked")
    assert check_published(("no server reads it", "move it")) == warning("published", "no server reads it", "move it")


@dataclass
class Client:
    """Loads models, but for those with an error; the index has these states, the last one at each further request."""

    errors: dict = field(default_factory=dict)
    states: list = field(default_factory=lambda: [{}])
    asked: list = field(default_factory=list)

    def load(self, model, *, timeout):
        self.asked.append(("load", model, timeout))
        if model in self.errors:
            raise RequestError(self.errors[model], status=400)

    def unload(self, model):
        self.asked.append(("unload", model))
        if model in self.errors:
            raise RequestError(self.errors[model], status=400)

    def index(self):
        states = self.states.pop(0) if len(self.states) > 1 else self.states[0]
        return tuple(IndexEntry(name, state, "") for name, state in states.items())


@dataclass
class Server:
    """A server with these processes and regions, once each, and then the last ones."""

    processes: list = field(default_factory=lambda: [()])
    regions: list = field(default_factory=lambda: [()])
    lost: tuple = ()

    def children(self, of=None):
        return self.processes.pop(0) if len(self.processes) > 1 else self.processes[0]

    def watched(self, pid):
        return ()

    def orphans(self):
        return self.lost

    def shared_memory(self):
        return self.regions.pop(0) if len(self.regions) > 1 else self.regions[0]


@pytest.fixture(autouse=True)
def short(monkeypatch):
    monkeypatch.setattr(checks, "_UNLOAD_SECONDS", 0.05)
    monkeypatch.setattr(checks, "_TEMPLATE_SECONDS", 0.1)
    monkeypatch.setattr(checks, "_POLL_SECONDS", 0.001)


def test_every_folder_of_the_repository_must_be_a_model(tmp_path):
    (tmp_path / "m/1").mkdir(parents=True)
    (tmp_path / "m/1/model.py").touch()
    good = check_repository(tmp_path)
    assert (good.id, good.status, good.evidence.partition(",")[0]) == ("repository", "ok", "every folder is a model")
    for name in ("notes", "other"):
        (tmp_path / name).mkdir()
    (first, _) = folder_findings(tmp_path)
    assert check_repository(tmp_path) == warning(
        "repository",
        f"a server that loads all models at its start fails because of notes, other: {first.what}",
        first.fix,
    )


def test_models_that_load_together_are_ready(tmp_path):
    client = Client(states=[{"a": "READY", "b": "READY", "c": "UNAVAILABLE", "d": ""}])
    check = check_together(client, ["a", "b"], 7.0)
    assert (check.id, check.status) == ("together", "ok")
    assert check.evidence.startswith("all 2 loaded at the same time in ")
    assert sorted(client.asked) == [("load", "a", 7.0), ("load", "b", 7.0)]


def test_an_interruption_does_not_wait_for_models_that_load_together():
    main, released, ended = threading.get_ident(), threading.Event(), []
    both = threading.Barrier(2, lambda: signal.pthread_kill(main, signal.SIGINT))

    class Slow(Client):
        def load(self, model, *, timeout):
            both.wait(timeout)
            released.wait(timeout)
            ended.append(model)

    with pytest.raises(KeyboardInterrupt):
        check_together(Slow(), ["a", "b"], 5.0)
    assert ended == []
    released.set()


@pytest.mark.parametrize(
    ("errors", "states", "reason"),
    [
        ({"b": "first\nsecond"}, {"a": "READY", "b": "UNAVAILABLE"}, "b fails: first"),
        ({"b": ""}, {"a": "READY", "b": "UNAVAILABLE"}, "b fails: no reason given"),
        ({"b": "its own"}, {"a": "READY", "b": "READY"}, "b fails: its own"),
        ({}, {"a": "READY", "b": "LOADING"}, "b fails: its state is LOADING"),
        ({}, {"a": "READY"}, "b fails: its state is None"),
        ({}, {"a": "READY", "b": ""}, "b fails: its state is None"),
    ],
)
def test_a_model_that_does_not_load_beside_the_others_is_a_fault(errors, states, reason):
    check = check_together(Client(errors, [states]), ["a", "b"], 7.0)
    assert (check.id, check.status) == ("together", "failed")
    assert check.evidence.endswith(reason)


@pytest.mark.parametrize(
    ("errors", "status", "evidence"),
    [
        ({}, "ok", "b loaded a second time in "),
        ({"b": "first\nsecond"}, "failed", "loaded a second time, b fails: first"),
    ],
)
def test_a_model_has_to_load_a_second_time(errors, status, evidence):
    client = Client(errors, [])
    check = check_again(client, "b", 7.0)
    assert (check.id, check.status, client.asked) == ("again", status, [("load", "b", 7.0)])
    assert check.evidence.startswith(evidence)


def test_models_are_unloaded_in_reverse_and_leave_nothing():
    client = Client(states=[{"m": "UNAVAILABLE", "other": "READY"}])
    check = unload_all(client, Server(), ["m", "ensemble"])
    assert (check.id, check.status) == ("shutdown", "ok")
    assert client.asked == [("unload", "ensemble"), ("unload", "m")]


def test_what_ends_shortly_after_the_unload_is_awaited(monkeypatch):
    monkeypatch.setattr(checks, "_UNLOAD_SECONDS", 60.0)
    client = Client(states=[{"m": "READY"}, {}])
    server = Server(processes=[(STUB,), ()], regions=[("region",), ()])
    assert unload_all(client, server, ["m"]).status == "ok"


@pytest.mark.parametrize(
    ("states", "processes", "regions", "left"),
    [
        ({"m": "READY"}, (STUB,), ("x",), "the model m"),
        ({"m": "UNAVAILABLE"}, (STUB,), ("x",), "process 7 of m"),
        ({}, (), ("x", "y"), "shared memory x"),
    ],
)
def test_what_remains_after_the_unload_is_a_fault(states, processes, regions, left):
    check = unload_all(Client(states=[states]), Server([processes], [regions]), ["m"])
    assert (check.id, check.status) == ("shutdown", "failed")
    assert check.evidence.startswith("0.05 s")
    assert check.evidence.endswith(left)


def test_a_process_that_outlives_its_model_is_a_fault():
    lost = (Process(8, "sleep", False, ("sleep", "600\x1b")),)
    check = unload_all(Client(), Server(lost=lost), ["m"])
    assert (check.id, check.status) == ("shutdown", "failed")
    assert check.evidence.endswith(r"process 8 (sleep 600\x1b)")


TEMPLATE = Process(9, "triton_python_b", False, (*STUB.arguments, "--template", "3", "2410", "1"))


def test_a_template_has_more_time_to_end_and_is_a_fault_then():
    check = unload_all(Client(), Server(lost=(TEMPLATE,)), ["m"])
    assert (check.id, check.status) == ("shutdown", "failed")
    assert check.evidence.startswith("0.1 s")
    assert check.evidence.endswith("process 9, a template")


def test_what_else_remains_beside_a_template_has_not():
    lost = (TEMPLATE, Process(8, "sleep", False, ("sleep", "600")))
    check = unload_all(Client(), Server(lost=lost), ["m"])
    assert (check.id, check.status) == ("shutdown", "failed")
    assert check.evidence.endswith("process 8 (sleep 600)")


def test_a_template_that_ends_in_time_is_no_fault(monkeypatch):
    class Waiting(Server):
        def orphans(self):
            return left.pop()

    left = [(), (TEMPLATE,), (TEMPLATE,)]
    monkeypatch.setattr(checks, "_UNLOAD_SECONDS", 0.0)
    monkeypatch.setattr(checks, "_TEMPLATE_SECONDS", 60.0)
    assert unload_all(Client(), Waiting(), ["m"]).status == "ok"
    assert left == []


def test_a_model_that_cannot_be_unloaded_is_a_fault():
    check = unload_all(Client({"m": "no"}), Server(), ["m"])
    assert check == failed(
        "shutdown", "a model cannot be unloaded: no", "check its finalize, and whether it ends the server"
    )


class Gone(Client):
    """A client of a server that ends when a model is unloaded, or when all models run."""

    def index(self):
        raise RequestError("no response: connection refused")


def test_a_server_that_ends_with_all_models_is_a_fault():
    check = check_together(Gone(), ["a", "b"], 1.0)
    assert (check.ok, check.id) == (False, "together")
    assert "the server does not answer" in check.evidence


def test_a_server_that_cannot_list_its_models_has_no_file_left():
    class Full(Client):
        def index(self):
            raise RequestError("failed to open directory /srv/models", status=500)

    check = check_together(Full(), ["a", "b"], 1.0)
    assert check.evidence.endswith("the server cannot list them any more: failed to open directory /srv/models")
    assert check.fix.startswith("raise the limit of open files")


def test_a_model_that_ends_the_server_at_its_end_is_a_fault():
    check = unload_all(Gone(), Server(), ["a"])
    assert (check.ok, check.id) == (False, "shutdown")
    assert "connection refused" in check.evidence


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (lambda model: (model / "1/model.py").write_text("changed"), "m/1/model.py"),
        (lambda model: (model / "config.pbtxt").unlink(), "m/config.pbtxt"),
        (lambda model: replace_folder(model / "python3.10"), "m/python3.10"),
        (lambda model: replace_file(model / STUB_NAME, "stub"), f"m/{STUB_NAME}"),
        (lambda model: (model / STUB_NAME).chmod(0o100), ""),  # as the server does
        (lambda model: (model / "python3.10/new.pyc").touch(), ""),
        (lambda model: (model / "1/downloaded.py").touch(), ""),  # by the model
    ],
)
def test_what_is_replaced_while_it_is_verified_was_not_checked(tmp_path, change, named):
    folder = tmp_path / "m"
    (folder / "1").mkdir(parents=True)
    (folder / "python3.10").mkdir()
    files = {"1/model.py": "", "config.pbtxt": f'backend: "python"\n{PARAMETER}\n', STUB_NAME: "stub"}
    for name, text in files.items():
        (folder / name).write_text(text)
    models = [open_model(folder)]
    before = stamps_of(models)
    assert check_unchanged(models, before) is None
    change(folder)
    check = check_unchanged(models, before)
    if not named:
        assert check is None
        return
    assert check.status == "unchecked"
    assert check.evidence == f"{tmp_path}/{named} was changed while it was verified; what is there now was not checked"


def test_what_a_model_wrote_beside_its_code_is_a_warning(tmp_path):
    folder = tmp_path / "m"
    (folder / "1").mkdir(parents=True)
    (folder / "1/model.py").touch()
    (folder / "python3.10/lib/python3.10/site-packages").mkdir(parents=True)
    (folder / "config.pbtxt").write_text(f'backend: "python"\n{PARAMETER}\n')
    models = [open_model(folder)]
    before = stamps_of(models, "*")
    for name in ("model.py", "model.pyc"):
        (folder / "1" / name).write_text("# edited, or compiled")
    assert check_written(models, before) is None
    (folder / "python3.10/lib/python3.10/site-packages/late").mkdir()
    replace_file(folder / "config.pbtxt", "max_batch_size: 2")
    environment = check_written(models, before)
    assert environment.evidence.startswith(f"a model wrote {folder}/python3.10/lib/python3.10/site-packages, which")
    before = stamps_of(models, "*")
    (folder / "1/cache").mkdir()
    (folder / "1/cache/weights.bin").touch()
    check = check_written(models, before)
    assert (check.status, check.ok) == ("warning", True)
    assert check.evidence.startswith(f"a model wrote {folder}/1/cache/weights.bin, which fails where")


RAISED = "OSError: store is closed\n\nAt:\n  /srv/m/1/model.py(16): finalize\n"
LOGGED = "I1128 19:49:06.229655 31388 :0] "


@pytest.mark.parametrize("text", [RAISED, json.dumps(RAISED)], ids=["before 24.03", "as newer servers write it"])
@pytest.mark.parametrize(("folder", "is_of_it"), [("/srv/m", True), ("/srv/other", False)])
def test_an_exception_in_finalize_is_a_warning(text, folder, is_of_it):
    log = f"{LOGGED}before\n{LOGGED}{text}\n{LOGGED}TRITONBACKEND_ModelFinalize: delete model state"
    server = SimpleNamespace(server_path=lambda _: folder)
    check = check_finalize(server, [SimpleNamespace(name="m", folder=None)], log)
    assert (check is not None) == is_of_it
    if check:
        assert (check.status, check.evidence) == (
            "warning",
            "m raised an exception in finalize: OSError: store is closed",
        )
        assert check.fix == "correct the model's code at /srv/m/1/model.py:16"


def test_each_model_that_raises_in_finalize_is_named_once():
    """All are unloaded twice."""
    of_n = RAISED.replace("/m/", "/n/").replace("store", "file")
    log = "\n".join(f"{LOGGED}{json.dumps(text)}" for text in (RAISED, of_n, RAISED, of_n))
    models = [SimpleNamespace(name=name, folder=f"/srv/{name}") for name in ("m", "n")]
    check = check_finalize(SimpleNamespace(server_path=str), models, log)
    assert check.evidence == (
        "m raised an exception in finalize: OSError: store is closed; "
        "n raised an exception in finalize: OSError: file is closed"
    )
    assert check.fix == "correct the model's code at /srv/m/1/model.py:16"


@pytest.mark.parametrize(("names", "whose"), [(["m"], "m"), (["m", "n"], "a model")])
def test_a_finalize_with_other_parameters_is_a_warning(names, whose):
    """It is not called, so no line of a model's code is named."""
    text = "TypeError: TritonPythonModel.finalize() missing 1 required positional argument: 'args'"
    models = [SimpleNamespace(name=name, folder=f"/srv/{name}") for name in names]
    check = check_finalize(SimpleNamespace(server_path=str), models, f"{LOGGED}{json.dumps(text)}\n")
    assert (check.status, check.evidence) == ("warning", f"{whose} raised an exception in finalize: {text}")
    assert "finalize(self)" in check.fix


def test_an_unloaded_model_that_did_not_end_by_itself_is_named():
    how = "ends although its atexit functions have not returned within 5 s"
    check = check_finalize(SimpleNamespace(server_path=str), [], f"envpack stub: 'm_0' {how}\n")
    assert (check.status, check.evidence) == ("warning", f"m_0 {how}")


def test_a_crash_of_an_unloaded_model_is_named():
    """The stub says it beside the server's lines."""
    how = "the model's process 47 was killed by signal 11 (SIGSEGV)"
    crash = f"envpack stub: 'n_0_0' crashed when it was unloaded: {how}\n"
    server, models = SimpleNamespace(server_path=str), [SimpleNamespace(name="m", folder="/srv/m")]
    again = crash.replace("process 47", "process 48")
    check = check_finalize(server, models, f"{LOGGED}before\n{again}{LOGGED}after\n{crash}")
    assert (check.status, check.evidence) == ("warning", f"n_0_0 crashed when it was unloaded: {how}")
    both = check_finalize(server, models, f"{LOGGED}{json.dumps(RAISED)}\n{crash}")
    assert both.evidence == f"m raised an exception in finalize: OSError: store is closed; {check.evidence}"


def test_more_shared_memory_than_a_container_has_is_a_warning(tmp_path, monkeypatch):
    monkeypatch.setattr(checks, "SHARED_MEMORY", str(tmp_path))
    server = SimpleNamespace(shared_memory=lambda: ("a", "b", "only_in_a_container"))
    (tmp_path / "a").write_bytes(bytes(1 << 20))
    with (tmp_path / "b").open("wb") as sparse:
        sparse.truncate(100 << 20)
    assert check_shared_memory(server) is None
    with (tmp_path / "b").open("r+b") as region:
        os.posix_fallocate(region.fileno(), 0, 64 << 20)
    check = check_shared_memory(server)
    assert (check.status, check.fix) == ("warning", "start the container with --shm-size=130m")


def test_what_models_write_to_their_home_is_a_warning(tmp_path, tmp_path_factory):
    server = SimpleNamespace(children=lambda: (STUB,), variables=lambda pid: {VARIABLE: str(tmp_path)})
    for name in ("owner", "log", "backends/python/stub", ".local/lib/probe.py", ".cache/fonts/list.json"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x")
    (tmp_path / ".cache/linked").symlink_to(tmp_path_factory.mktemp("elsewhere"))
    (tmp_path / ".cache/linked/weights.bin").write_bytes(bytes(5_000_000))
    assert check_home(server) is None
    (tmp_path / ".cache/hub").mkdir()
    (tmp_path / ".cache/hub/weights.bin").write_bytes(bytes(5_000_000))
    check = check_home(server)
    assert (check.status, check.ok) == ("warning", True)
    assert check.evidence.startswith("a model wrote .cache/hub (5.0 MB) to its home or working folder; another server")
    (tmp_path / ".cache/hub/weights.bin").unlink()
    (tmp_path / "cache.db").touch()
    assert check_home(server).evidence.startswith("a model wrote cache.db (0.0 MB) to its home")
    assert check_home(SimpleNamespace(children=lambda: (STUB,), variables=lambda pid: {"HOME": str(tmp_path)})) is None
    assert check_home(SimpleNamespace(children=lambda: ())) is None


def test_of_what_models_write_to_their_home_not_more_than_a_limit_is_listed(tmp_path, monkeypatch):
    """Which can be millions of files."""
    server = SimpleNamespace(children=lambda: (STUB,), variables=lambda pid: {VARIABLE: str(tmp_path)})
    monkeypatch.setattr(checks, "_MOST_FILES", 5)
    for number in range(10):
        (tmp_path / ".cache/a" / str(number)).mkdir(parents=True)
    (tmp_path / ".cache/b").write_bytes(bytes(5_000_000))
    assert check_home(server) is None
    (tmp_path / "cache.db").touch()
    assert check_home(server).evidence.startswith("a model wrote cache.db (0.0 MB) to its home")


def replace_folder(folder):
    folder.with_name("new").mkdir()
    folder.rename(folder.with_name("old"))
    folder.with_name("new").rename(folder)


def replace_file(file, text):
    new = file.with_name("new")
    new.write_text(text)
    new.rename(file)
