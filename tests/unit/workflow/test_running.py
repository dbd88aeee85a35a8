"""Models of a repository that run without a server: which environment, stub and version each gets."""

import json
import os
import shutil
import socket
from pathlib import Path
from types import SimpleNamespace

import pytest

import envpack
from envpack.local import running as module
from envpack.local.model_process import ModelFailed
from envpack.local.running import local_server, needs_server, python_of
from envpack.local.starting import Instruments, ModelSource, Python, check_debug_port, opened_instruments
from envpack.repository.model import open_model
from envpack.repository.placement import in_model_folder, point_to_environment
from envpack.settings.table import Settings
from envpack.stub import target
from envpack.stub.build import Stub
from envpack.stub.inspection import inspect_stub
from envpack.support.errors import EnvironmentBuildError, InputError, ServerError, StorageError
from envpack.support.placed_files import STUB_NAME
from envpack.support.processes import CompletedProcess
from envpack.support.progress import NoProgress
from tests.tables import every_row
from tests.unit.stub.elf_files import EM_AARCH64, write_library, write_stub


@pytest.fixture
def placed(machine):
    """A machine whose model has an environment and a stub."""
    (machine.folder / "env/lib").mkdir(parents=True)
    (machine.folder / "env/bin").mkdir()
    (machine.folder / "env/bin/activate").touch()
    point_to_environment(open_model(machine.folder), in_model_folder("env"))
    write_stub(machine.folder / STUB_NAME)
    return machine


def found(machine, name="m", **options):
    return local_server(machine.project, **options)._find(name)


def test_a_model_runs_in_what_it_has(placed):
    source = found(placed)
    assert isinstance(source, ModelSource)
    assert (source.name, source.folder, source.version, source.variables) == ("m", placed.folder, "1", {})
    assert source.python == Python(placed.folder / STUB_NAME, placed.folder / "env")
    assert source.config.backend == "python"


def test_a_model_has_the_variables_that_its_server_would_have(placed):
    (placed.project.repository / "envpack.toml").write_text('env = ["A=1"]\n')
    assert local_server(placed.project)._find("m").variables == {"A": "1"}


@every_row("part", ["env", "."])
def test_what_cannot_be_started_is_named_before_a_process_ends_without_a_word(placed, monkeypatch, part):
    noexec = SimpleNamespace(f_flag=os.ST_NOEXEC)
    others = os.statvfs
    place = (placed.folder / part).resolve()
    monkeypatch.setattr(os, "statvfs", lambda path: noexec if Path(path) == place else others(path))
    with pytest.raises(StorageError) as raised:
        found(placed)
    error = raised.value
    assert (error.kind, error.where) == ("noexec", str(place))
    assert error.message == "no program can run in this folder: its file system is mounted with noexec"
    assert error.hint == "mount it without noexec, or move what is there to another one"
    monkeypatch.setattr(os, "statvfs", others)


def without_activate(folder):
    (folder / "env/bin/activate").unlink()


def by_a_spaced_path(folder):
    (folder / "env").rename(folder.parent / "my env")
    (folder / "env").symlink_to(folder.parent / "my env")


def relative(folder):
    config = folder / "config.pbtxt"
    config.write_text(config.read_text().replace(in_model_folder("env"), "env"))


def spaced(folder):
    (folder / "env").rename(folder / "my env")
    config = folder / "config.pbtxt"
    config.write_text(config.read_text().replace(in_model_folder("env"), in_model_folder("my env")))


def another_python_without_stub(folder):
    (folder / STUB_NAME).unlink()
    write_library(folder / "env/lib/libpython3.12.so.1.0")


def no_archive(folder):
    shutil.rmtree(folder / "env")
    (folder / "env").write_bytes(b"PK\x03\x04")


# What a server cannot run a model with: the kind, the place, and words of the message and of the hint.
UNUSABLE = {
    without_activate: ("environment-unusable", "env", "it has no bin/activate", "envpack build m"),
    by_a_spaced_path: ("bad-path", "env", "links lead to", "move the target"),
    relative: ("bad-environment-path", "config.pbtxt", "'env' is relative", "write $$TRITON_MODEL_DIRECTORY/NAME"),
    spaced: ("bad-path", "config.pbtxt", "contains ' '", "give the environment a name of letters"),
    no_archive: ("archive-unsupported", "env", "it is compressed with zip", "envpack build --format tar.gz m"),
    another_python_without_stub: ("python-mismatch", "", "has Python 3.12, but the model has no stub", "envpack stub"),
}


@pytest.mark.parametrize("change", UNUSABLE, ids=lambda change: change.__name__)
def test_an_environment_with_which_a_server_runs_no_model_is_refused(placed, change):
    """The real server of Triton 24.10 fails, or waits forever."""
    change(placed.folder)
    with pytest.raises(InputError) as refused:
        found(placed)
    kind, place, message, hint = UNUSABLE[change]
    error = refused.value
    assert (error.kind, Path(error.where)) == (kind, placed.folder / place)
    assert message in error.message
    assert hint in error.hint


def test_a_repository_that_is_served_from_elsewhere_has_other_paths_there(placed):
    by_a_spaced_path(placed.folder)
    project = placed.project.saying(Settings(served_from="/models"))
    python = python_of(project, open_model(placed.folder), placed.steps)
    assert python.prefix == placed.folder / "env"


SEQUENCES = "sequence_batching { }"
AGENTS = 'model_repository_agents { agents [ { name: "checksum" } ] }'
OVERRIDES = "pb_utils.load_model(name, config=json.dumps({'backend': 'python'}))"
# The model's configuration and code, and what only a server runs.
NEEDS_SERVER = {
    "onnx": ('backend: "onnxruntime"', "", "is a model of the backend 'onnxruntime'"),
    "ensemble": ('platform: "ensemble" ensemble_scheduling { step [ ] }', "", "is an ensemble"),
    "sequences": (f'backend: "python" {SEQUENCES}', "", "has sequence_batching"),
    "agents": (f'backend: "python" {AGENTS}', "", "has model_repository_agents"),
    "overrides": ('backend: "python"', OVERRIDES, "gives load_model() another configuration or files"),
    "itself": (
        'backend: "python" instance_group { count: 2 }',
        "pb_utils.InferenceRequest(model_name = 'itself')",
        "sends requests to itself, for which it has several instances",
    ),
    "alone": ('backend: "python" instance_group { count: 1 }', "pb_utils.InferenceRequest(model_name='alone')", ""),
    "asks_another": ('backend: "python" instance_group { count: 2 }', "InferenceRequest(model_name='itself')", ""),
    "plain": ('backend: "python"', "pb_utils.load_model(name)  # config=None", ""),
}


def test_what_only_a_server_runs_is_refused(placed):
    said = {}
    for name, (config, code, _) in NEEDS_SERVER.items():
        (placed.repository / name / "1").mkdir(parents=True)
        (placed.repository / name / "config.pbtxt").write_text(config)
        (placed.repository / name / "1/model.py").write_text(code)
        said[name] = needs_server(open_model(placed.repository / name, foreign=True))
    assert said == {name: reason for name, (*_, reason) in NEEDS_SERVER.items()}
    for name, reason in said.items():
        if reason:
            with pytest.raises(InputError) as refused:
                found(placed, name)
            assert refused.value.message == f"it {reason}, and only a server runs that"
            assert (refused.value.kind, refused.value.where) == ("needs-server", str(placed.repository / name))


def test_a_field_that_the_release_does_not_know_is_refused_as_by_its_server(placed):
    config = placed.folder / "config.pbtxt"
    config.write_text(config.read_text() + "model_metrics { }\n")
    with pytest.raises(InputError, match=r"Triton 24.10 does not know the field model_metrics") as refused:
        found(placed)
    assert (refused.value.kind, refused.value.where) == ("bad-config", str(config))
    later = local_server(placed.project.saying(Settings(triton="24.11")))
    assert later._find("m").config.HasField("model_metrics")


def test_names_stand_for_models_or_nothing(placed):
    (placed.repository / "notes").mkdir()
    assert [found(placed, name) for name in ("absent", "notes")] == [None, None]
    with pytest.raises(ModelFailed, match="there is no model 'absent'"), local_server(placed.project) as server:
        server.model("absent")


def test_the_highest_version_that_the_policy_allows(placed):
    for version in ("2", "10", "notes"):
        (placed.folder / version).mkdir()
        (placed.folder / version / "model.py").touch()
    assert found(placed).version == "10"
    text = (placed.folder / "config.pbtxt").read_text()
    (placed.folder / "config.pbtxt").write_text(f"{text}version_policy {{ specific {{ versions: [ 1, 2 ] }} }}\n")
    assert found(placed).version == "2"
    (placed.folder / "config.pbtxt").write_text(f"{text}version_policy {{ specific {{ versions: [ 7 ] }} }}\n")
    with pytest.raises(InputError, match="no version folder is one of those that version_policy names") as raised:
        found(placed)
    assert (raised.value.kind, raised.value.hint) == ("model-without-code", "known versions: 1, 2, 10")


def test_an_environment_and_a_stub_are_made_for_a_model_that_has_none(machine, monkeypatch, tmp_path):
    machine.write_lock()
    made = machine.install()
    asked = []

    def stub_for(cell, *, progress, store):
        asked.append((cell.target.minor, cell.releases, store))
        path = write_stub(tmp_path / "made" / STUB_NAME)
        return Stub(path, inspect_stub(path), fresh=True, seconds=1)

    monkeypatch.setattr("envpack.workflow.shared.stub_for", stub_for)
    python = python_of(machine.project, open_model(machine.folder), machine.steps)
    assert python == Python(tmp_path / "made" / STUB_NAME, made.prefix)
    assert asked == [("3.10", (), None)]


def test_an_environment_without_headers_gets_a_stub_with_those_of_an_interpreter_here(placed, monkeypatch, tmp_path):
    """As packers of virtual environments make them; it has no place where a package with headers could go."""
    (placed.folder / STUB_NAME).unlink()
    write_library(placed.folder / "env/lib/libpython3.10.so.1.0")
    include, asked = tmp_path / "usr/include/python3.10", []
    include.mkdir(parents=True)
    for header in ("Python.h", "pyconfig.h"):
        (include / header).touch()
    monkeypatch.setattr(target, "target_from_interpreter", lambda *_, **__: SimpleNamespace(include=include))
    stub = SimpleNamespace(path=write_stub(tmp_path / STUB_NAME))
    monkeypatch.setattr("envpack.workflow.shared.stub_for", lambda cell, **_: asked.append(cell.target) or stub)
    python = python_of(placed.project, open_model(placed.folder), placed.steps)
    assert python == Python(stub.path, placed.folder / "env")
    assert [(found.include, found.library.parent) for found in asked] == [(include, placed.folder / "env/lib")]


@pytest.mark.parametrize(("key", "runs"), [("its own", True), ("another", False), ("", False)])
def test_a_model_with_an_archive_runs_in_no_other_environment(machine, monkeypatch, tmp_path, key, runs):
    """A server unpacks the archive, whatever the requirements say now."""
    machine.write_lock()
    made = machine.install()
    archive = machine.folder / "env.tar.gz"
    archive.write_bytes(b"\x1f\x8bas it was built")
    status = archive.stat()
    recorded = {"key": made.key if key == "its own" else key, "size": status.st_size, "mtime_ns": status.st_mtime_ns}
    (machine.folder / "env.tar.gz.json").write_text(json.dumps(recorded))
    (machine.folder / "config.pbtxt").write_text(
        'backend: "python" parameters { key: "EXECUTION_ENV_PATH"'
        ' value { string_value: "$$TRITON_MODEL_DIRECTORY/env.tar.gz" } }'
    )
    monkeypatch.setattr(module, "_placed_stub", lambda *_: tmp_path / "stub")
    model = open_model(machine.folder)
    if runs:
        assert python_of(machine.project, model, machine.steps).prefix == made.prefix
        archive.write_bytes(b"\x1f\x8bas it")  # a copy that was broken off
        with pytest.raises(InputError, match="was changed after the build") as raised:
            python_of(machine.project, model, machine.steps)
        assert (raised.value.kind, raised.value.where) == ("environment-changed", str(model.folder))
        return
    with pytest.raises(InputError) as raised:
        python_of(machine.project, model, machine.steps)
    kind, what = ("requirements-changed", "has another environment than") if key else ("needs-server", "did not make")
    assert (raised.value.kind, raised.value.where, what in raised.value.message) == (kind, str(model.folder), True)


def test_a_model_with_the_archive_of_another_one_is_not_told_to_build_its_own(machine):
    machine.write_lock()
    machine.install()
    archive = machine.repository / "core/env.tar.gz"
    archive.parent.mkdir()
    archive.write_bytes(b"\x1f\x8bas it was built")
    archive.with_name("env.tar.gz.json").write_text(json.dumps({"key": "another"}))
    (machine.folder / "config.pbtxt").write_text(
        'backend: "python" parameters { key: "EXECUTION_ENV_PATH"'
        ' value { string_value: "$$TRITON_MODEL_DIRECTORY/../core/env.tar.gz" } }'
    )
    with pytest.raises(InputError, match="is that of another model, and only a server unpacks it") as raised:
        python_of(machine.project, open_model(machine.folder), machine.steps)
    assert (raised.value.kind, raised.value.where) == ("needs-server", str(machine.folder))
    assert raised.value.hint == "let it be served: `envpack verify`, `envpack dev`"


def test_a_stub_for_another_python_than_that_of_a_new_environment_is_not_taken(placed, tmp_path):
    model, stub = open_model(placed.folder), placed.folder / STUB_NAME
    for minor, taken in ((inspect_stub(stub).python, stub), ("2.7", None)):
        (tmp_path / minor / "lib" / f"python{minor}").mkdir(parents=True)
        assert module._placed_stub(placed.project, model, tmp_path / minor) == taken


def test_a_stub_of_the_release_beside_the_model_does_not_hide_ours(placed):
    other = placed.repository.parent / "backends/python" / STUB_NAME
    other.parent.mkdir(parents=True)
    ours = write_stub(other)
    (placed.folder / STUB_NAME).write_bytes(b"\x7fELF of somebody else")
    project = placed.project.saying(Settings(backends=placed.repository.parent / "backends"))
    assert module._placed_stub(project, open_model(placed.folder), None) == ours


def test_only_a_stub_of_this_version_and_machine_is_taken(placed, monkeypatch, tmp_path):
    model, stub = open_model(placed.folder), placed.folder / STUB_NAME
    other = placed.repository.parent / "backends/python" / STUB_NAME
    assert module._placed_stub(placed.project, model, None) == stub
    stub.chmod(0o644)
    monkeypatch.setattr(
        module.os, "access", lambda path, mode: Path(path).stat().st_mode & 0o111 if Path(path).exists() else 0
    )
    assert module._placed_stub(placed.project, model, None) is None
    for make in (
        lambda: write_stub(stub, version="0.0.1"),
        lambda: write_stub(stub, machine=EM_AARCH64),
        lambda: stub.write_bytes(b"the release's own") and stub.chmod(0o755),
    ):
        make()
        assert module._placed_stub(placed.project, model, None) is None
    write_stub(other)
    assert module._placed_stub(placed.project, model, None) == other
    assert inspect_stub(other).version == envpack.__version__


def test_a_folder_is_an_environment_if_it_has_a_python_or_libraries(tmp_path):
    for name, expected in (("lib/x", True), ("bin/python3", True), ("bin/other", False), ("other", False)):
        (tmp_path / name.replace("/", "-") / name).mkdir(parents=True)
        assert module._is_prefix(tmp_path / name.replace("/", "-")) == expected


def test_the_release_of_the_project_is_a_number(placed):
    assert local_server(placed.project)._release == 2410


# Instruments


@pytest.fixture
def python(tmp_path):
    (tmp_path / "prefix/lib/python3.10/site-packages/debugpy").mkdir(parents=True)
    return Python(tmp_path / "stub", tmp_path / "prefix")


@pytest.fixture
def port():
    with socket.create_server(("127.0.0.1", 0)) as free:
        return free.getsockname()[1]


def settings(tools, python):
    variables = tools.variables(python, NoProgress())
    return {name: json.loads(text) for name, text in variables.items()}


def test_instruments_reach_the_model_as_a_variable(placed, python, port, tmp_path):
    assert settings(Instruments(tmp_path), python) == {}
    tools = Instruments(tmp_path, port, profile=True, memory=True)
    assert settings(tools, python) == {
        "ENVPACK_RUN": {
            "debug": ["127.0.0.1", port],
            "debugger": "",
            "claim": str(tmp_path / "claim"),
            "profile": str(tmp_path / "profile.json"),
            "memray": str(tmp_path / "memray.bin"),
        }
    }
    assert (tmp_path / "claim").is_file()
    source = found(placed, instruments={"m": Instruments(tmp_path, profile=True)})
    assert json.loads(source.variables["ENVPACK_RUN"]) == {"profile": str(tmp_path / "profile.json")}
    assert found(placed, instruments={"other": tools}).variables == {}


def test_a_profile_is_read_once_it_is_there(tmp_path):
    with opened_instruments() as unused:
        assert not unused.are_used
    with opened_instruments(profile=True) as tools:
        assert (tools.profile, tools.memory, tools.debug_port, tools.functions()) == (True, False, 0, [])
        tools.profile_file.write_text('[{"name": "f"}]')
        assert tools.functions() == [{"name": "f"}]
        folder = tools.folder
    assert not folder.exists()


def test_a_debugger_is_installed_beside_an_environment_without_one(tmp_path, port, monkeypatch, machine):
    asked = []

    def run_uv(arguments):
        asked.append(arguments)
        return CompletedProcess(len(asked) - 1, "", "the output")

    monkeypatch.setattr("envpack.support.uv.run_uv", run_uv)
    tools, python = Instruments(tmp_path, port), Python(tmp_path / "stub", tmp_path / "bare")
    variables = tools.variables(python, machine.steps)
    assert json.loads(variables["ENVPACK_RUN"])["debugger"] == str(tmp_path / "debugger")
    assert machine.steps.seen == ["install debugpy: ready"]
    program = tmp_path / "bare/bin/python3"
    assert asked == [["pip", "install", "--target", tmp_path / "debugger", "--python", program, "--no-deps", "debugpy"]]
    with pytest.raises(EnvironmentBuildError, match="debugpy cannot be installed") as raised:
        tools.variables(python, machine.steps)
    assert (raised.value.kind, raised.value.details) == ("debugger-missing", "the output")


def test_a_port_that_is_in_use_is_refused(port):
    check_debug_port(port)
    with (
        socket.create_server(("127.0.0.1", port)),
        pytest.raises(ServerError, match="the debugger cannot listen: ") as raised,
    ):
        check_debug_port(port)
    assert (raised.value.kind, raised.value.where) == ("port-taken", f"127.0.0.1:{port}")
