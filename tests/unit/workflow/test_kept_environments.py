"""A model without requirements keeps the environment that it names, if a build of its own would break it."""

import shutil
import tarfile

import pytest

from envpack.settings.table import Settings
from envpack.support.errors import EnvpackError, InputError
from envpack.support.placed_files import STUB_NAME
from envpack.workflow.build import build_model
from envpack.workflow.lock import lock_model
from envpack.workflow.plan import plan_model

from .conftest import CONFIG, build, names

SHARED = "$$TRITON_MODEL_DIRECTORY/../m/python3.10"


@pytest.fixture
def shared(ready, stubs):
    """A repository whose model ``two`` uses the environment of the model ``m``."""
    build(ready)
    add(ready, "two", SHARED)
    return ready


def add(machine, name, environment):
    """A model without requirements that names an environment."""
    folder = machine.repository / name
    (folder / "1").mkdir(parents=True)
    (folder / "1/model.py").touch()
    entry = f'parameters {{ key: "EXECUTION_ENV_PATH" value {{ string_value: "{environment}" }} }}\n'
    (folder / "config.pbtxt").write_text(CONFIG + entry)
    return folder


def made(machine, name, **options):
    return build_model(machine.project.saying(Settings(**options)), name, machine.steps)


def planned(machine, name, **options):
    return [change.action for change in plan_model(machine.project.saying(Settings(**options)), name).changes]


def test_a_model_keeps_the_environment_of_another(shared, stubs):
    before = (shared.repository / "two/config.pbtxt").read_text()
    assert planned(shared, "two") == []
    built = made(shared, "two")
    assert (built.changed, built.stub, built.environment.resolve()) == (False, None, shared.folder / "python3.10")
    assert names(shared.repository / "two") == ["1", "config.pbtxt"]
    assert (shared.repository / "two/config.pbtxt").read_text() == before
    assert lock_model(shared.project, "two").file is None
    assert stubs == []


def test_what_the_caller_says_and_a_kept_environment_does_not_get_is_a_warning(shared, stubs):
    said = {"start": "warm", "layout": "backend"}
    (warning,) = made(shared, "two", **said).warnings
    assert "so that --set layout=backend --start warm has no effect" in warning
    project = shared.project.saying(Settings(**said))
    assert plan_model(project, "two").warnings == (warning,)
    assert made(shared, "two", link_mode="copy").warnings == ()


def test_it_gets_a_stub_where_that_of_the_release_cannot_serve_the_environment(shared, stubs):
    lock = shared.lock("2.1.0")
    shared.write_lock(lock)
    shared.install(lock)
    build(shared)
    stubs.clear()
    assert planned(shared, "two") == ["place a stub"]
    built = made(shared, "two")
    assert (built.changed, built.stub) == (True, shared.repository / "two" / STUB_NAME)
    assert [minor for minor, *_ in stubs] == ["3.10"]
    assert planned(shared, "two") == []
    assert not made(shared, "two").changed


def test_a_stub_that_envpack_did_not_make_is_not_replaced(shared, stubs):
    stub = shared.repository / "two" / STUB_NAME
    stub.write_text("another stub")
    with pytest.raises(InputError) as caught:
        made(shared, "two", stub="always")
    assert (caught.value.kind, stub.read_text()) == ("not-ours", "another stub")


def test_an_archive_that_envpack_did_not_make_is_kept(ready, stubs):
    folder = add(ready, "two", "$$TRITON_MODEL_DIRECTORY/env.tar.gz")
    (folder / "activate").touch()
    with tarfile.open(folder / "env.tar.gz", "w:gz") as archive:
        archive.add(folder / "activate", "bin/activate")
    (folder / "activate").unlink()
    assert made(ready, "two").environment == folder / "env.tar.gz"
    assert names(folder) == ["1", "config.pbtxt", "env.tar.gz"]
    with pytest.raises(EnvpackError) as caught:
        made(ready, "two", stub="always")
    assert "libpython" in caught.value.message


@pytest.mark.parametrize("content", [b"PK\x03\x04", b"\x1f\x8bcut off", None])
def test_an_environment_that_no_server_can_use_is_not_kept(ready, stubs, content):
    folder = add(ready, "two", "$$TRITON_MODEL_DIRECTORY/env")
    if content:
        (folder / "env").write_bytes(content)
    else:
        (folder / "env/lib").mkdir(parents=True)
        (folder / "env/lib/libpython3.10.dylib").touch()
    for run in (made, planned):
        with pytest.raises(InputError) as caught:
            run(ready, "two")
        assert caught.value.kind in ("archive-unsupported", "environment-unreadable", "environment-unusable")
        assert str(folder / "env") in f"{caught.value.where} {caught.value.message}"
    assert names(folder) == ["1", "config.pbtxt", "env"]


@pytest.mark.parametrize("reason", ["requirements", "force", "setting", "missing"])
def test_it_gets_one_of_its_own_where_the_user_wants_that(shared, reason):
    options = {}
    if reason == "requirements":
        (shared.repository / "two/requirements.txt").write_text("numpy\n")
    elif reason == "force":
        options = {"force": True}
    elif reason == "setting":
        options = {"requirements": shared.folder / "requirements.txt"}
    else:
        shutil.rmtree(shared.folder / "python3.10")
    assert "place an environment as python3.10" in planned(shared, "two", **options)


def test_its_own_environment_is_built_again(shared):
    (shared.folder / "requirements.txt").unlink()
    (shared.folder / "envpack.lock").unlink()
    assert planned(shared, "m", python="3.9")[-2:] == ["edit config.pbtxt", "place a stub for Python 3.9"]
