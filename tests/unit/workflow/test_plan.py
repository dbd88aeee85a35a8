"""What a build would do: a plan names all of it, and nothing else."""

import importlib.metadata
import json
import re
import shutil
from pathlib import Path

import pytest

from envpack.settings.table import Settings
from envpack.support.errors import EnvpackError, StubError
from envpack.support.placed_files import RELEASE_FILE, STUB_NAME
from envpack.workflow.plan import plan_model
from tests.tables import every_row
from tests.unit.stub.elf_files import EM_AARCH64, write_stub

from .conftest import CONFIG, build


def planned(machine, **options):
    plan = plan_model(machine.project.saying(Settings(**{"link_mode": "auto", **options})), "m")
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


def test_a_plan_warns_of_imports_as_a_build_does(machine):
    code = machine.folder / "1/model.py"
    code.write_text(f"import tree\n{code.read_text()}")
    assert plan_model(machine.project, "m").warnings == ()  # not before the packages are known
    machine.write_lock()
    machine.install()
    warnings = plan_model(machine.project, "m").warnings
    assert warnings == build(machine).warnings
    assert "it imports tree" in warnings[0]


@every_row(
    ("text", "kind", "what"),
    [
        ("@EXPLICIT\nhttps://a.org/linux-64/python-3.10.1-0.conda\n", "bad-requirements", "has no hash"),
        ("--require-hashes\nnumpy==1.26.4\n", "hash-missing", "has no hash"),
    ],
)
def test_a_plan_refuses_what_no_resolution_would_make_right(machine, text, kind, what):
    (machine.folder / "requirements.txt").write_text(text)
    with pytest.raises(EnvpackError) as raised:
        planned(machine)
    assert (raised.value.kind, what in raised.value.message) == (kind, True)


@pytest.fixture
def without_headers(monkeypatch):
    """The extra with what a stub is compiled with is not installed."""

    def missing(name):
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr("importlib.metadata.distribution", missing)


@pytest.mark.usefixtures("without_headers")
def test_what_a_stub_needs_is_missed_before_the_environment_is_made(machine):
    with pytest.raises(StubError, match="compiling a stub needs the Python package pybind11==") as raised:
        planned(machine, python="3.12")
    with pytest.raises(StubError, match=re.escape(raised.value.message)):
        build(machine, python="3.12")
    assert machine.steps.seen == []
    assert not (machine.cache / "locks").exists()


@pytest.mark.usefixtures("without_headers")
@pytest.mark.parametrize("options", [{"python": "3.10"}, {"python": "3.12", "stub": "never"}], ids=str)
def test_only_who_compiles_needs_headers(machine, options):
    assert PLACE[0].replace("3.10", options["python"]) in dict(planned(machine, **options))


@pytest.mark.usefixtures("without_headers")
@pytest.mark.parametrize("elsewhere", [{"store": "s3://bucket/store"}, {"on": "local:2"}], ids=str)
def test_other_machines_can_have_what_this_one_cannot_compile(machine, elsewhere):
    assert "place a stub for Python 3.12" in dict(planned(machine, python="3.12", **elsewhere))


def test_a_plan_refuses_interpreters_of_this_machine_for_another_platform(machine):
    assert planned(machine, platform="linux-aarch64")  # of its channel
    with pytest.raises(EnvpackError, match="none for linux-aarch64") as caught:
        planned(machine, platform="linux-aarch64", channels=("local",))
    assert caught.value.kind == "no-channel"
    assert planned(machine, platform="linux-aarch64", channels=("local",), store="file:///s")  # which may have a lock


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


def test_a_plan_names_the_stub(ready, stubs):
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


def test_a_plan_names_the_environment_of_another_model_by_its_path(ready):
    build(ready)
    (ready.repository / "post").symlink_to(ready.folder)
    text = (ready.folder / "config.pbtxt").read_text().replace("DIRECTORY/", "DIRECTORY/../post/")
    (ready.folder / "config.pbtxt").write_text(text)
    assert planned(ready)[0] == ("place an environment as python3.10", f"it has {ready.repository}/post/python3.10")


BACKEND, STUB, ON_3_12 = {"layout": "backend"}, {"stub": "always"}, "it is for Python 3.12 on x86_64"
IN_BACKEND = "place the backend python_3_10"


def of_backend(machine):
    return machine.repository.parent / "backends/python_3_10"


def replaced(file, write):
    """Let a file be another one; those that a build placed may be read-only."""
    file.unlink()
    write(file)


def compiled_otherwise(stub):
    """Change a stub and none of its facts."""
    stub.write_bytes(stub.read_bytes() + b"\0")


@pytest.mark.parametrize(
    ("before", "change", "options", "expected"),
    [
        (
            STUB, None, BACKEND,
            {
                "edit config.pbtxt": "backend becomes python_3_10",
                IN_BACKEND: "it is not in {backends}",
                "remove the stub": "the server would prefer it to that of python_3_10",
            },
        ),
        (
            BACKEND, None, {"layout": "model", **STUB},
            {"edit config.pbtxt": "backend becomes python", "place a stub": "--stub always"},
        ),
        (BACKEND, lambda m: shutil.rmtree(of_backend(m)), {}, {IN_BACKEND: "it is not in {backends}"}),
        (
            BACKEND, lambda m: (of_backend(m) / "libtriton_python_3_10.so").unlink(), {},
            {IN_BACKEND: "libtriton_python_3_10.so is missing or differs"},
        ),
        (
            BACKEND, lambda m: replaced(of_backend(m) / "triton_python_backend_utils.py", Path.touch), {},
            {IN_BACKEND: "triton_python_backend_utils.py is missing or differs"},
        ),
        (
            BACKEND, lambda m: replaced(of_backend(m) / "model.py", Path.touch), {},
            {IN_BACKEND: "model.py is missing or differs"},
        ),
        (BACKEND, lambda m: (of_backend(m) / STUB_NAME).unlink(), {}, {IN_BACKEND: f"{STUB_NAME}: it is missing"}),
        (
            BACKEND, lambda m: write_stub(of_backend(m) / STUB_NAME, "3.12"), {},
            {IN_BACKEND: f"{STUB_NAME}: {ON_3_12}"},
        ),
        (STUB, lambda m: write_stub(m.folder / STUB_NAME, "3.12"), {}, {"replace the stub": ON_3_12}),
        (
            STUB, lambda m: write_stub(m.folder / STUB_NAME, machine=EM_AARCH64), {},
            {"replace the stub": "it is for Python 3.10 on aarch64"},
        ),
        (
            STUB, lambda m: write_stub(m.folder / STUB_NAME, version="0.0.1"), {},
            {"replace the stub": "it is of envpack 0.0.1"},
        ),
        (
            STUB, lambda m: compiled_otherwise(m.folder / STUB_NAME), {},
            {"replace the stub": "the cache has no such stub: its sources, Python or compiler differ"},
        ),
        (STUB, lambda m: (m.folder / STUB_NAME).chmod(0o700), {}, {"replace the stub": "its mode is 0700"}),
        (STUB, lambda m: (m.folder / STUB_NAME).chmod(0o777), {}, {}),
        (
            STUB, lambda m: (m.folder / STUB_NAME).write_bytes(b"envpack_stub_run"), {},
            {"replace the stub": "not a stub of envpack: not a readable ELF file, or a damaged one"},
        ),
        (
            STUB, lambda m: write_stub(m.folder / STUB_NAME, "3.12"), {"stub": "never"},
            {"remove the stub": "it is for Python 3.12, and the environment has Python 3.10"},
        ),
        (STUB, None, {"triton": "24.10"}, {f"write {RELEASE_FILE}": "for Triton 24.10"}),
        (STUB | {"triton": "24.10"}, None, {}, {f"remove {RELEASE_FILE}": "no release is named"}),
        (STUB | {"triton": "24.10"}, None, {"triton": "24.10"}, {}),
        (
            {"format": "tar"}, lambda m: replaced(m.folder / "python3.10.tar", Path.touch), {},
            {"replace python3.10.tar": "python3.10.tar was changed or removed"},
        ),
        (
            {"format": "tar.gz"}, lambda m: (m.folder / "python3.10.tar.gz").unlink(), {},
            {"replace python3.10.tar.gz": "python3.10.tar.gz was changed or removed"},
        ),
        ({"format": "tar"}, lambda m: (m.folder / "python3.10.tar").touch(), {}, {}),
        (BACKEND, None, {}, {}),
        (STUB, None, {"stub": "never"}, {}),
    ],
)  # fmt: skip
def test_a_build_changes_something_exactly_if_its_plan_says_so(ready, stubs, before, change, options, expected):
    build(ready, **before)
    if change:
        change(ready)
    backends = of_backend(ready).parent
    assert dict(planned(ready, **options)) == {
        action: why.format(backends=backends) for action, why in expected.items()
    }
    assert build(ready, **options).changed is bool(expected)
    assert planned(ready, **options) == []
    assert not build(ready, **options).changed


@pytest.mark.parametrize("form", ["dir", "tar.gz"])
def test_a_plan_names_files_that_are_made_otherwise_from_the_same_packages(ready, form):
    build(ready, format=form)
    ready.install(strip=True)
    name = "python3.10" if form == "dir" else "python3.10.tar.gz"
    why = "its packages have other builds, --set strip differs, or another envpack made it"
    assert planned(ready, strip=True) == [(f"replace {name}", why)]
    assert build(ready, strip=True).changed
    assert planned(ready, strip=True) == []


def test_a_plan_names_the_path_on_the_server_that_files_contain(machine):
    machine.write_lock()
    manifest = machine.install().prefix / "envpack-environment.json"
    manifest.write_text(json.dumps(json.loads(manifest.read_text()) | {"stand_ins": 1}))
    build(machine, served_from="/models")
    assert planned(machine, served_from="/models/") == []
    replaced = [("replace python3.10", "its files are for /models/m/python3.10 on the server, not /srv/m/python3.10")]
    assert planned(machine, served_from="/srv") == replaced
    assert build(machine, served_from="/srv").changed
    assert planned(machine, served_from="/srv") == []
