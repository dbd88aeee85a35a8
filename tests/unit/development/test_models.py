"""The models of a session, and the debugger of one of them."""

import json
import socket
import types
from pathlib import Path

import pytest

from envpack.development import debugger as module
from envpack.development.debugger import Debugger
from envpack.development.models import ServedModels, in_lines
from envpack.local.starting import Instruments, Python
from envpack.repository.model import open_model
from envpack.server.kserve import RequestError
from envpack.support.errors import InputError, ServerError
from envpack.support.progress import NoProgress

from .fakes import CODE, write_model
from .test_session import ENSEMBLE

CALLS = CODE.replace("return []", 'return pb_utils.InferenceRequest(model_name="one")')


@pytest.fixture
def repository(tmp_path):
    for name in ("one", "two"):
        write_model(tmp_path, name)
    write_model(tmp_path, "e", ENSEMBLE)
    write_model(tmp_path, "calls", code=CALLS)
    write_model(tmp_path, "other", 'backend: "onnxruntime"')
    (tmp_path / "other/1/model.py").rename(tmp_path / "other/1/model.onnx")
    (tmp_path / ".hidden/1").mkdir(parents=True)
    (tmp_path / ".hidden/1/model.py").touch()
    (tmp_path / "notes").mkdir()
    return tmp_path


def test_all_models_of_the_repository_each_after_those_it_needs(repository):
    models = ServedModels(repository, ())
    order = models.order()
    assert sorted(order) == ["calls", "e", "one", "two"]
    assert order.index("one") < order.index("e")
    assert order.index("one") < order.index("calls")
    needed = {name: set(models.needs(name)) for name in order}
    assert needed == {"calls": {"one"}, "e": {"one"}, "one": set(), "two": set()}
    assert [model.name for model in models.models()] == list(models._models)
    assert [models.fault(name) for name in order] == [""] * 4
    assert not models.would_change()


def test_named_models_with_those_that_they_need(repository):
    assert ServedModels(repository, ["e"]).order() == ("one", "e")
    assert ServedModels(repository, ["two"]).order() == ("two",)


@pytest.mark.parametrize(
    ("names", "kind"),
    [(["absent"], "model-missing"), (["other"], "not-a-python-model"), (["notes"], "model-without-code")],
)
def test_names_of_no_model(repository, names, kind):
    if kind == "model-without-code":
        assert ServedModels(repository, names).fault("notes")
        return
    with pytest.raises(InputError) as raised:
        ServedModels(repository, names)
    assert raised.value.kind == kind


def test_a_repository_without_models_is_an_error(tmp_path):
    with pytest.raises(InputError) as raised:
        ServedModels(tmp_path, ())
    assert raised.value.kind == "repository-empty"
    with pytest.raises(InputError) as raised:
        ServedModels(tmp_path / "absent", ())
    assert raised.value.kind == "repository-missing"


def test_a_model_that_cannot_be_read_is_a_fault_of_its_own(repository, permissions_for_root):
    models = ServedModels(repository, ())
    config = repository / "two/config.pbtxt"
    config.chmod(0)
    for found in (models, ServedModels(repository, ["two"])):
        found.refresh()
        assert found.model("two") is None
        what, where, fix = found.fault("two").splitlines()
        assert (what, where) == ("cannot be read or written: Permission denied", str(config))
        assert fix.startswith("fix: change its permissions")
    assert {name for name in models.order() if not models.fault(name)} == {"calls", "e", "one"}
    config.chmod(0o644)
    models.refresh()
    assert models.fault("two") == ""


def test_a_change_affects_the_ensembles_that_run_a_model(repository):
    outer = ENSEMBLE.replace('"one"', '"e"')
    write_model(repository, "outer", outer)
    models = ServedModels(repository, ())
    assert models.affected_by("one") == ("one", "e", "outer")
    assert models.affected_by("two") == ("two",)
    assert models.affected_by("calls") == ("calls",)


def test_folders_that_come_and_go_would_change_the_models(repository):
    models, named = ServedModels(repository, ()), ServedModels(repository, ["one"])
    (repository / "new").mkdir()
    assert not models.would_change(), "an empty folder is no model"
    write_model(repository, "new")
    assert models.would_change()
    assert not named.would_change()
    models.refresh()
    assert "new" in models.order()
    assert not models.would_change()
    (repository / "one").rename(repository / ".gone")
    assert models.would_change()
    assert named.would_change()
    assert named.is_gone("one")
    named.refresh()
    assert not named.would_change()
    assert named.model("one") is None
    assert named.fault("one")
    (repository / ".gone").rename(repository / "one")
    assert named.would_change()


def test_an_error_in_lines():
    assert in_lines(InputError("x", "wrong", "correct it", "file")) == "wrong\nfile\nfix: correct it"
    assert in_lines(InputError("x", "wrong", "")) == "wrong"


# The debugger


@pytest.fixture
def debugger(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    (tmp_path / "tools").mkdir()
    return Debugger("one", Instruments(tmp_path / "tools", debug_port=port), Path("/server/utilities.py"))


def settings_of(debugger):
    (file,) = debugger.variables().values()
    return json.loads(Path(file).read_text())


def test_no_model_waits_until_the_debugger_is_prepared(debugger, repository, tmp_path):
    assert debugger.address == f"127.0.0.1:{debugger.tools.debug_port}"
    assert list(debugger.variables()) == ["ENVPACK_DEBUG"]
    assert settings_of(debugger) == {"utilities": "/server/utilities.py", "name": ""}
    (tmp_path / "prefix/lib/python3.10/site-packages/debugpy").mkdir(parents=True)
    python = Python(Path("/stub"), tmp_path / "prefix")
    debugger.prepare(open_model(repository / "one"), lambda: python, NoProgress())
    settings = settings_of(debugger)
    program = Path(settings.pop("program"))
    assert (program.name, program.is_file()) == ("envpack_run.py", True)
    assert settings == {
        "utilities": "/server/utilities.py",
        "name": "one",
        "folder": str(repository / "one"),
        "run": {
            "debug": ["127.0.0.1", debugger.tools.debug_port],
            "debugger": "",
            "claim": str(tmp_path / "tools/claim"),
        },
    }
    assert settings_of(debugger)["name"] == "one", "a later server keeps the settings"


def test_the_next_instance_waits_until_the_last_has_ended(debugger, monkeypatch):
    left, asked, slept = [2, 1], [], []
    client = types.SimpleNamespace(unload=asked.append)
    monkeypatch.setattr(module, "instances", lambda server, model: model == "one" and left and left.pop())
    monkeypatch.setattr("time.sleep", slept.append)
    debugger.release(client, None)
    assert (asked, left, len(slept)) == (["one"], [], 2)

    def refuse(model):
        raise RequestError("it is not loaded")

    debugger.release(types.SimpleNamespace(unload=refuse), None)


def test_a_model_that_stands_in_the_debugger_is_named_and_not_the_port_that_it_has(debugger, monkeypatch):
    monkeypatch.setattr(module, "instances", lambda server, model: (model,))
    monkeypatch.setattr(module, "_RELEASE_SECONDS", 0.1)
    client = types.SimpleNamespace(unload=lambda model: None)
    place = ("127.0.0.1", debugger.tools.debug_port)
    with socket.create_server(place), pytest.raises(ServerError, match="one is not loaded again") as raised:
        debugger.release(client, None)
    assert raised.value.hint == "let it go on, or detach the debugger; then save a file again"


def test_a_port_that_something_else_has_is_an_error(debugger, monkeypatch):
    monkeypatch.setattr(module, "instances", lambda server, model: ())
    monkeypatch.setattr(module, "_RELEASE_SECONDS", 0.1)
    client, place = types.SimpleNamespace(unload=lambda model: None), ("127.0.0.1", debugger.tools.debug_port)
    with socket.create_server(place), pytest.raises(ServerError, match="the debugger cannot listen") as raised:
        debugger.release(client, None)
    assert (raised.value.kind, raised.value.where) == ("port-taken", debugger.address)
