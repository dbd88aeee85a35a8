"""From a model's lock to its place in the repository: what is built, what is refused, and what a build would do."""

import json
from dataclasses import replace

import pytest

from envpack.repository import STUB_NAME, get_string_parameter, open_model
from envpack.settings import Settings, find_release
from envpack.stub import Stub, inspect_stub
from envpack.support.errors import EnvironmentBuildError, InputError, StorageError, StubError, UsageError
from envpack.workflow import build as module, build_model, plan_model
from envpack.workflow.build import environment_for, made_ingredients
from envpack.workflow.requests import build_request
from tests.unit.stub.elf_files import write_stub

from .conftest import CONFIG, names

ENSEMBLE = 'platform: "ensemble" ensemble_scheduling { step [ { model_name: "m" model_version: -1 } ] }'


@pytest.fixture
def ready(machine):
    """A machine whose cache has the environment of the model's lock."""
    machine.write_lock()
    machine.install()
    return machine


@pytest.fixture
def stubs(ready, monkeypatch, tmp_path):
    """Compiles nothing: notes for what a stub is wanted, and gives one."""
    asked = []

    def stub_for(target, releases, *, toolchain, progress, store):
        asked.append((target.minor, releases, toolchain))
        path = write_stub(tmp_path / f"stub-{toolchain}" / STUB_NAME, target.minor)
        return Stub(path, inspect_stub(path), fresh=True, seconds=1)

    monkeypatch.setattr("envpack.workflow.build.stub_for", stub_for)
    return asked


def build(machine, **options):
    return build_model(machine.project.saying(Settings(**options)), "m", machine.steps)


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


def test_an_ensemble_needs_no_environment(ready):
    (ready.repository / "e/1").mkdir(parents=True)
    (ready.repository / "e/config.pbtxt").write_text(ENSEMBLE)
    built = build_model(ready.project, "e", progress=ready.steps)
    assert (built.name, built.environment, built.changed) == ("e", None, False)
    assert ready.steps.seen == ["e: an ensemble: needs no environment"]
    plan = plan_model(ready.project, "e")
    assert (plan.python, plan.changes) == ("", ())


def test_a_stub_is_placed_where_one_is_wanted(ready, stubs):
    built = build(ready, stub="always")
    assert (built.stub, stubs) == (ready.folder / STUB_NAME, [("3.10", None, "auto")])
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
    what = "was removed, because it is for Python 3.12 and the environment has Python 3.10"
    assert (built.warnings, built.stub, built.changed) == ((f"{stub} {what}",), None, True)
    built = build(ready, stub="never")
    assert (built.warnings, built.changed) == ((), False)


@pytest.mark.parametrize("which", ["of its Python", "foreign", "a link"])
def test_without_a_stub_every_other_one_stays(ready, tmp_path, which):
    stub = ready.folder / STUB_NAME
    if which == "foreign":
        stub.write_bytes(b"by somebody else")
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
    build(ready, stub="always")
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
    before = names(ready.folder)
    with pytest.raises(InputError, match="not the directory of a server's Python backend") as raised:
        build(ready, layout="backend", copy_library=tmp_path / "absent")
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
        module, "environment_from_prefix", lambda prefix, **options: asked.append((prefix, options)) or found
    )
    said = Settings(python="3.10", platform="linux-64", from_prefix=tmp_path / "env", strip=True)
    request = build_request(ready.project.saying(said), open_model(ready.folder)).source
    assert environment_for(request, ready.steps, None) is found
    ((prefix, given),) = asked
    assert (prefix, given.pop("progress")) == (tmp_path / "env", ready.steps)
    release = find_release("24.10")
    assert given == {"python": "3.10", "platform": "linux-64", "glibc": release.glibc, "strip": True}
    monkeypatch.setattr(module, "environment_from_prefix", lambda prefix, **_: replace(found, packages=()))
    with pytest.raises(InputError, match="no NumPy in the environment") as raised:
        environment_for(request, ready.steps, None)
    assert raised.value.where == str(tmp_path / "env")


def test_what_is_built_stays_in_the_cache_in_the_block(ready):
    request = build_request(ready.project, open_model(ready.folder)).source
    with made_ingredients(request, ready.steps) as (environment, stub):
        assert (environment.key, stub) == (ready.lock().key, None)
        assert environment.prefix.is_relative_to(ready.cache)


# Plans


def planned(machine, **options):
    plan = plan_model(machine.project.saying(Settings(**options)), "m")
    return [(change.action, change.reason) for change in plan.changes]


EDIT = ("edit config.pbtxt", "EXECUTION_ENV_PATH becomes $$TRITON_MODEL_DIRECTORY/python3.10")
PLACE = ("place an environment as python3.10", "it has none")


def test_a_plan_names_what_a_build_would_do(machine):
    resolve = ("resolve the packages", "these requirements were not resolved on this machine before")
    assert planned(machine) == [resolve, PLACE, EDIT]
    machine.write_lock()
    assert planned(machine) == [("install 2 packages", "the store has no such environment"), PLACE, EDIT]
    machine.install()
    assert planned(machine) == [PLACE, EDIT]
    build(machine)
    assert planned(machine) == []
    plan = plan_model(machine.project, "m")
    assert (plan.name, plan.python, plan.python_source, plan.release) == ("m", "3.10", "envpack.lock", "24.10")


def test_a_plan_names_packages_that_differ(ready):
    build(ready)
    lock = ready.lock("1.26.5")
    ready.write_lock(lock)
    ready.install(lock)
    assert planned(ready) == [("replace python3.10", "numpy 1.26.4 → 1.26.5")]
    both = "other files are excluded; numpy 1.26.4 → 1.26.5"
    assert planned(ready, exclude=("*.txt",)) == [("replace python3.10", both)]


def test_a_plan_names_only_some_packages(ready):
    build(ready)
    place = ready.folder / "python3.10/envpack-environment.json"
    metadata = json.loads(place.read_text())
    extra = [{**metadata["packages"][0], "name": name, "version": "1", "url": "https://x/y"} for name in "abcde"]
    bundled = {**metadata["packages"][0], "name": "bundled", "version": "1", "url": ""}
    place.chmod(0o644)
    place.write_text(json.dumps({**metadata, "packages": [*metadata["packages"], *extra, bundled]}))
    ((action, reason),) = planned(ready)
    assert action == "replace python3.10"
    assert "a 1 → –, b 1 → –, c 1 → –, and 2 more" in reason


def test_a_plan_names_files_that_were_changed(ready):
    build(ready, link_mode="copy")
    file = ready.folder / "python3.10/lib/changed-by-pip.txt"
    file.chmod(0o644)
    file.write_text("by hand")
    ((action, reason),) = planned(ready)
    assert action == "replace python3.10"
    assert "lib/changed-by-pip.txt was changed" in reason


def test_a_plan_names_the_link_mode(ready):
    build(ready, link_mode="copy")
    assert planned(ready, link_mode="copy") == []
    assert planned(ready, link_mode="hardlink") == [("replace python3.10", "--set link_mode=hardlink")]


def test_a_plan_names_another_form(ready):
    build(ready)
    changes = planned(ready, format="tar.gz")
    assert changes[0] == ("place an environment as python3.10.tar.gz", "it has python3.10")
    assert changes[1][1] == "EXECUTION_ENV_PATH becomes $$TRITON_MODEL_DIRECTORY/python3.10.tar.gz"
    build(ready, format="tar.gz")
    assert planned(ready) == []


def test_a_plan_names_an_environment_of_somebody_else(ready):
    text = CONFIG + 'parameters { key: "EXECUTION_ENV_PATH" value { string_value: "/srv/env" } }\n'
    (ready.folder / "config.pbtxt").write_text(text)
    assert planned(ready)[0] == (PLACE[0], "/srv/env was not made by envpack, or is missing")


def test_a_plan_names_the_stub(ready):
    own = "the stub of Triton 24.10 embeds Python 3.10"
    assert ("place a stub", "--stub always") in planned(ready, stub="always")
    assert ("place a stub", "only envpack's stub starts models warm") in planned(ready, start="warm")
    assert ("edit config.pbtxt", f"{EDIT[1]}; ENVPACK_START becomes warm") in planned(ready, start="warm")
    other = ready.lock(python="3.12")
    ready.write_lock(other)
    ready.install(other)
    changes = planned(ready, python="3.12")
    assert ("place a stub for Python 3.12", own) in changes
    assert not [action for action, _ in planned(ready, python="3.12", stub="never") if "stub" in action]
    assert not [action for action, _ in planned(ready, python="3.12", layout="backend") if "stub" in action]
    write_stub(ready.folder / STUB_NAME, "3.12")
    assert not [action for action, _ in planned(ready, python="3.12") if "stub" in action]


def test_a_plan_names_a_numpy_that_the_releases_stub_cannot_serve(machine):
    machine.write_lock(machine.lock("2.0.0"))
    reason = "the stub of Triton 24.10 cannot serve NumPy 2.0.0"
    assert planned(machine)[-1] == ("place a stub for Python 3.10", reason)


def test_a_plan_names_the_start(ready, stubs):
    build(ready, start="warm")
    assert planned(ready) == []
    assert planned(ready, start="warm") == []
    assert planned(ready, start="cold") == [("edit config.pbtxt", "ENVPACK_START is removed")]


def test_a_plan_takes_over_a_folder(ready, tmp_path):
    (tmp_path / "conda-meta").mkdir()
    record = {"name": "python", "version": "3.10.13", "build": "0", "build_number": 0, "files": []}
    (tmp_path / "conda-meta/python.json").write_text(json.dumps(record))
    (tmp_path / "bin").mkdir(exist_ok=True)
    (tmp_path / "bin/python3").touch(mode=0o755)
    assert planned(ready, from_prefix=tmp_path) == [
        (f"take over {tmp_path}, if it has changed", "files of an environment are compared")
    ]
