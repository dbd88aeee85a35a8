"""From a model's lock to its place in the repository: what is built, and what is refused."""

from dataclasses import replace

import pytest

from envpack.environment import from_prefix
from envpack.inspection.state import build_state
from envpack.repository.config_editor import get_string_parameter
from envpack.repository.model import open_model
from envpack.settings.releases import find_release
from envpack.settings.table import Settings
from envpack.support.errors import EnvironmentBuildError, InputError, StorageError, StubError, UsageError
from envpack.support.placed_files import STUB_NAME
from envpack.workflow import build as module
from envpack.workflow.build import build_model, environment_for, made_ingredients
from envpack.workflow.plan import plan_model
from envpack.workflow.requests import build_request
from tests.unit.stub.elf_files import write_stub

from .conftest import build, names

ENSEMBLE = 'platform: "ensemble" ensemble_scheduling { step [ { model_name: "m" model_version: -1 } ] }'


def test_a_model_gets_its_environment_and_a_second_build_changes_nothing(ready):
    built = build(ready)
    assert (built.name, built.python, built.numpy, built.packages) == ("m", "3.10.1", "1.26.4", 2)
    assert built.environment == ready.folder / "python3.10"
    assert (built.stub, built.backend, built.start, built.changed) == (None, "python", "", True)
    assert names(ready.folder) == ["1", "config.pbtxt", "envpack.lock", "python3.10", "requirements.txt"]
    config = open_model(ready.folder).config
    assert get_string_parameter(config, "EXECUTION_ENV_PATH") == "$$TRITON_MODEL_DIRECTORY/python3.10"
    assert ready.steps.seen == ["m: Python 3.10.1, 2 packages: placed as python3.10"]
    assert {form.form for form in built.forms} == {"dir", "tar.gz", "tar"}
    assert not build(ready).changed
    assert ready.steps.seen[1:] == ["m: Python 3.10.1, 2 packages: up to date"]


@pytest.mark.parametrize(("edited", "status"), [(False, "current"), (True, "unknown")])
def test_a_project_that_is_edited_during_the_build_does_not_count_as_built(machine, monkeypatch, edited, status):
    project, place = machine.folder / "tool", module.place
    project.mkdir()
    (project / "pyproject.toml").write_text('[project]\nname = "tool"\nversion = "1"\n')
    (machine.folder / "requirements.txt").write_text("numpy\n./tool\n")
    machine.write_lock()
    machine.install()

    def meanwhile(*arguments):
        if edited:
            (project / "tool.py").touch()
        return place(*arguments)

    monkeypatch.setattr(module, "place", meanwhile)
    build(machine)
    model, release = open_model(machine.folder), find_release("24.10")
    assert build_state(machine.project, model, release).status == status


def test_an_ensemble_needs_no_environment(ready):
    (ready.repository / "e/1").mkdir(parents=True)
    (ready.repository / "e/config.pbtxt").write_text(ENSEMBLE)
    built = build_model(ready.project, "e", progress=ready.steps)
    assert (built.name, built.environment, built.changed) == ("e", None, False)
    assert ready.steps.seen == ["e: an ensemble: needs no environment"]
    plan = plan_model(ready.project, "e")
    assert (plan.python, plan.changes) == ("", ())


def test_a_stub_is_placed_where_one_is_wanted(ready, stubs):
    built = build(ready, stub="always", toolchain="auto")
    assert (built.stub, stubs) == (ready.folder / STUB_NAME, [("3.10", (), "auto")])
    built = build(ready, stub="always", layout="backend")
    assert built.backend == "python_3_10"
    assert built.stub.parent.name == "python_3_10"
    assert build(ready, start="warm", layout="model").start == "warm"
    assert build(ready).start == "warm", "the model says so now"
    assert build(ready, start="cold").start == ""
    assert "ENVPACK_START" not in (ready.folder / "config.pbtxt").read_text()


def test_without_a_stub_that_of_another_python_is_removed(ready):
    stub = write_stub(ready.folder / STUB_NAME, "3.12")
    built = build(ready, stub="never")
    what = "was removed: it is for Python 3.12, and the environment has Python 3.10"
    assert (built.warnings, built.stub, built.changed) == ((f"{stub} {what}",), None, True)
    built = build(ready, stub="never")
    assert (built.warnings, built.changed) == ((), False)


@pytest.mark.parametrize("which", ["of its Python", "foreign", "a link"])
def test_without_a_stub_every_other_one_stays(ready, tmp_path, which):
    stub = ready.folder / STUB_NAME
    if which == "foreign":
        stub.write_bytes(b"foreign file")
    elif which == "a link":
        stub.symlink_to(write_stub(tmp_path / "stub", "3.12"))
    else:
        write_stub(stub, "3.10")
    before = stub.read_bytes()
    built = build(ready, stub="never")
    assert (stub.read_bytes(), built.warnings, built.stub) == (before, (), stub)


def test_a_warm_start_is_refused_if_its_stub_is_of_another_python(ready):
    write_stub(ready.folder / STUB_NAME, "3.12")
    before = names(ready.folder)
    with pytest.raises(UsageError, match=r"--stub never excludes one for Python 3\.10") as raised:
        build(ready, start="warm", stub="never")
    assert (raised.value.kind, raised.value.hint) == ("start-limits", "remove --stub never, or use --start cold")
    assert names(ready.folder) == before


def test_a_stub_that_needs_a_newer_glibc_is_made_by_zig(ready, stubs, monkeypatch):
    found = {"system": [], "zig": []}

    def mismatches(stub, environment, release, image):
        if stub is None:
            return ()
        return found["zig" if len(stubs) > 1 else "system"]

    class Mismatch:
        def __init__(self, kind):
            self.kind, self.what, self.fix = kind, f"reason of {kind}", "fix"

    monkeypatch.setattr(module, "find_mismatches", mismatches)
    found["system"] = [Mismatch("glibc-too-old")]
    build(ready, stub="always", toolchain="auto")
    assert [toolchain for *_, toolchain in stubs] == ["auto", "zig"]
    found["zig"] = [Mismatch("glibc-too-old")]
    stubs.clear()
    with pytest.raises(StubError, match="reason of glibc-too-old") as raised:
        build(ready, stub="always")
    assert raised.value.kind == "glibc-too-old"
    stubs.clear()
    with pytest.raises(StubError):
        build(ready, stub="always", toolchain="system")
    assert [toolchain for *_, toolchain in stubs] == ["system"], "another compiler was asked for"
    stubs.clear()
    found["system"] = [Mismatch("other")]
    with pytest.raises(StubError, match="reason of other"):
        build(ready, stub="always")
    assert len(stubs) == 1


def test_what_the_image_cannot_run_is_refused(ready, monkeypatch):
    class Mismatch:
        kind, what, fix = "glibc-too-old", "the environment requires glibc 2.99", "use another channel"

    monkeypatch.setattr(module, "find_mismatches", lambda stub, *_: [Mismatch] if stub is None else [])
    with pytest.raises(EnvironmentBuildError, match=r"requires glibc 2\.99") as raised:
        build(ready)
    assert (raised.value.kind, raised.value.where, raised.value.hint) == (
        "glibc-too-old", str(ready.folder), "use another channel",
    )  # fmt: skip
    assert "python3.10" not in names(ready.folder)


def test_a_plan_refuses_a_folder_that_cannot_be_taken_over(ready, tmp_path):
    with pytest.raises(InputError, match="there is no such folder") as raised:
        plan_model(ready.project.saying(Settings(from_prefix=tmp_path / "absent")), "m")
    assert (raised.value.kind, raised.value.where) == ("not-a-prefix", str(tmp_path / "absent"))


def test_what_envpack_did_not_make_is_refused_before_the_work(ready):
    (ready.folder / "python3.10").mkdir()
    (ready.folder / "python3.10/thesis").touch()
    with pytest.raises(InputError) as raised:
        build(ready)
    assert raised.value.kind == "not-ours"
    with pytest.raises(InputError):
        plan_model(ready.project, "m")
    plan = plan_model(ready.project.saying(Settings(force=True)), "m")
    assert (plan.changes[0].action, plan.changes[0].reason) == ("rename python3.10", "envpack did not make it")
    build(ready, force=True)
    assert "python3.10.saved-1" in names(ready.folder)


def test_a_configuration_that_cannot_be_replaced_is_refused_before_the_first_change(
    ready, stubs, tmp_path, permissions_for_root
):
    build(ready)
    elsewhere, config = tmp_path / "elsewhere", ready.folder / "config.pbtxt"
    elsewhere.mkdir()
    config.rename(elsewhere / "config.pbtxt")
    config.symlink_to(elsewhere / "config.pbtxt")
    other = ready.lock(python="3.12")
    ready.write_lock(other)
    ready.install(other)
    elsewhere.chmod(0o555)
    before = names(ready.folder)
    with pytest.raises(StorageError) as raised:
        build(ready, python="3.12")
    assert (raised.value.kind, raised.value.where) == ("not-writable", str(elsewhere))
    assert (names(ready.folder), stubs) == (before, [])
    elsewhere.chmod(0o755)
    assert build(ready, python="3.12").stub == ready.folder / STUB_NAME


def test_a_folder_without_the_servers_library_is_refused_before_the_first_change(ready, stubs, tmp_path):
    before, said = names(ready.folder), {"layout": "backend", "copy_library": tmp_path / "absent"}
    for use in (build, lambda machine, **said: plan_model(machine.project.saying(Settings(**said)), "m")):
        with pytest.raises(InputError, match="not the directory of a server's Python backend") as raised:
            use(ready, **said)
        assert (raised.value.kind, raised.value.where) == ("no-python-backend", str(tmp_path / "absent"))
    assert (names(ready.folder), stubs) == (before, [])


def test_an_environment_without_numpy_is_refused(machine):
    (machine.folder / "requirements.txt").write_text("tree\n")
    lock = replace(machine.lock(), pip=())
    machine.write_lock(lock)
    machine.install(lock)
    with pytest.raises(InputError, match="no NumPy in the requirements; Triton's Python backend needs it") as raised:
        build(machine)
    assert raised.value.kind == "numpy-missing"
    assert raised.value.where == str(machine.folder / "requirements.txt")


def test_an_environment_is_taken_over_from_a_folder(ready, monkeypatch, tmp_path):
    asked, found = [], ready.install(ready.lock("1.25.0"))
    monkeypatch.setattr(
        from_prefix, "environment_from_prefix", lambda prefix, **options: asked.append((prefix, options)) or found
    )
    said = Settings(python="3.10", platform="linux-64", from_prefix=tmp_path / "env", strip=True)
    request = build_request(ready.project.saying(said), open_model(ready.folder)).source
    assert environment_for(request, ready.steps, None) is found
    ((prefix, given),) = asked
    assert (prefix, given.pop("progress")) == (tmp_path / "env", ready.steps)
    release = find_release("24.10")
    assert given == {"python": "3.10", "platform": "linux-64", "glibc": release.glibc, "strip": True}
    monkeypatch.setattr(from_prefix, "environment_from_prefix", lambda prefix, **_: replace(found, packages=()))
    with pytest.raises(InputError, match="no NumPy in the environment") as raised:
        environment_for(request, ready.steps, None)
    assert raised.value.where == str(tmp_path / "env")


def test_what_is_built_stays_in_the_cache_in_the_block(ready):
    request = build_request(ready.project, open_model(ready.folder)).source
    with made_ingredients(request, ready.steps) as (environment, stub):
        assert (environment.key, stub) == (ready.lock().key, None)
        assert environment.prefix.is_relative_to(ready.cache)
