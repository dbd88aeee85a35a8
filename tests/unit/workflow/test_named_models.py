"""The models and the store that a command line names, and interpreters in a channel."""

import hashlib
from pathlib import Path
from types import SimpleNamespace

import pytest

from envpack.conda import channels, choice, interpreters
from envpack.deployment.objects.content import content_digest
from envpack.settings.project import open_project
from envpack.settings.table import Settings
from envpack.store.shared import open_store
from envpack.support.errors import InputError, StorageError
from envpack.support.progress import NoProgress
from envpack.verification.run import verify
from envpack.workflow import cache
from envpack.workflow.project import (
    check_model,
    chosen_folders,
    complete_names,
    list_shared,
    model_names,
    prune_shared,
    repository_digest,
    verify_shared,
)
from tests.steps import Steps


@pytest.fixture
def project(tmp_path):
    for name in ("one", "two"):
        (tmp_path / name / "1").mkdir(parents=True)
        (tmp_path / name / "1/model.py").write_text(name)
        (tmp_path / name / "config.pbtxt").write_text('backend: "python"\n')
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes/README").touch()
    return open_project(tmp_path)


def test_a_model_is_named_once_by_its_name_or_a_path(project, monkeypatch):
    monkeypatch.chdir(project.repository)
    assert model_names(project, ["two", "one", "./two", str(project.repository / "one")]) == ("two", "one")
    assert model_names(project, []) == ()
    assert chosen_folders(project, []) == ["one", "two"]
    assert chosen_folders(project, ["two"]) == ["two"]


def test_a_digest_changes_with_the_files_of_the_models_that_are_named(project):
    before = repository_digest(project, ["one"])
    digests = {
        f"one/{name}": hashlib.sha256((project.repository / "one" / name).read_bytes()).hexdigest()
        for name in ("1/model.py", "config.pbtxt")
    }
    assert before == content_digest(digests)
    assert repository_digest(project, []) == repository_digest(project, ["one", "two"]) != before
    (project.repository / "two/1/model.py").write_text("changed")
    assert repository_digest(project, ["one"]) == before
    (project.repository / "one/1/model.py").write_text("changed")
    assert repository_digest(project, ["one"]) != before


def test_a_digest_changes_with_what_a_model_needs_beyond_its_folder(project, tmp_path_factory):
    """Otherwise a Job would have the name, and with it the verdict, of another content."""
    outside = tmp_path_factory.mktemp("weights") / "file"
    places = [outside, project.repository / "two/1/model.py", project.repository / "env.tar"]
    for place in places:
        place.write_text("before")
    (project.repository / "one/1/weights").symlink_to(outside.parent)
    (project.repository / "one/1/circle").symlink_to("..")
    environment = '"EXECUTION_ENV_PATH" value { string_value: "$$TRITON_MODEL_DIRECTORY/../env.tar" }'
    (project.repository / "one/config.pbtxt").write_text(f'backend: "python"\nparameters {{ key: {environment} }}\n')
    (project.repository / "one/1/model.py").write_text('pb_utils.InferenceRequest(model_name="two")')
    digests = [repository_digest(project, ["one"])]
    for place in places:
        place.write_text("after")
        digests.append(repository_digest(project, ["one"]))
    assert len(set(digests)) == 4


def test_what_is_no_model_has_no_part_in_the_digest(project):
    before = repository_digest(project, [])
    (project.repository / "notes/README").write_text("more")
    (project.repository / "README").write_text("more")
    assert repository_digest(project, []) == before
    assert repository_digest(project, ["absent"]) == content_digest({})


def test_a_file_that_cannot_be_read_is_an_error_for_the_user(project, permissions_for_root):
    (project.repository / "one/1/model.py").chmod(0)
    with pytest.raises(StorageError, match="model.py"):
        repository_digest(project, ["one"])


def test_what_is_wrong_with_a_model_is_an_error_before_any_work(project):
    check_model(project, "one")
    (project.repository / "one/config.pbtxt").write_text('backend: "onnxruntime"\n')
    for name, reason in (("one", "onnxruntime"), ("absent", "absent")):
        with pytest.raises(InputError, match=reason):
            check_model(project, name)


def test_a_repository_that_is_missing_is_named_and_not_its_model(tmp_path):
    with pytest.raises(InputError) as caught:
        verify(tmp_path / "none", ["m"])
    assert (caught.value.kind, caught.value.where) == ("repository-missing", str(tmp_path / "none"))


def test_names_are_completed_from_the_models(project, tmp_path):
    (project.repository / "envpack.toml").touch()
    assert complete_names(project.repository, "") == ["one", "two"]
    assert complete_names(project.repository, "t") == ["two"]
    assert complete_names(project.repository, "n") == []
    assert complete_names(tmp_path / "absent", "") == []


# A store


@pytest.fixture
def url(tmp_path):
    folder = tmp_path / "store"
    folder.mkdir()
    (tmp_path / "file").write_text("content")
    open_store(f"file://{folder}", push=True).add("package", "k", tmp_path / "file")
    return f"file://{folder}"


def test_a_store_is_listed_checked_and_pruned_by_its_address(url, tmp_path):
    content = list_shared(url)
    assert ([entry.key for entry in content.entries], content.size, content.loose) == (["k"], 7, 0)
    assert verify_shared(url, repair=False, progress=NoProgress()).damaged == ()
    (blob,) = (file for file in (tmp_path / "store/blobs").rglob("*") if file.is_file())
    blob.write_text("CONTENT")
    found = verify_shared(url, repair=False, progress=NoProgress())
    assert (len(found.damaged), found.removed) == (2, False), "the blob, and the record that names it"
    assert blob.exists()
    assert verify_shared(url, repair=True, progress=NoProgress()).removed
    assert not blob.exists()


def test_a_dry_run_prunes_nothing(url, tmp_path):
    files = sorted(tmp_path.rglob("*"))
    planned = prune_shared(url, 0, locks=[], dry_run=True, progress=NoProgress())
    assert sorted(tmp_path.rglob("*")) == files
    assert prune_shared(url, 0, locks=[], dry_run=False, progress=NoProgress()).entries == planned.entries
    assert list_shared(url).entries == ()


# A channel


@pytest.fixture
def added(monkeypatch):
    """Replaces the packaging: records the interpreters."""
    asked = []

    def add_interpreter(interpreter, place, *, progress):
        asked.append((interpreter.how, place))
        return SimpleNamespace(version="3.10.2"), len(asked) == 1

    def found(how):
        return SimpleNamespace(how=how, prefix=Path("/opt/python"))

    monkeypatch.setattr(channels, "add_interpreter", add_interpreter)
    monkeypatch.setattr(interpreters, "interpreter_at", lambda place, minor: found(("at", place, minor)))
    monkeypatch.setattr(choice, "interpreter_for", lambda minor, **how: found(("for", minor, how)))
    monkeypatch.setattr(channels, "read_channel", lambda place: [place])
    return asked


def test_an_interpreter_is_added_to_a_channel_once(added, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    steps = Steps()
    first = cache.add_python("3.10", Path("/opt/python"), Path("mine"), Settings(), steps)
    assert (first.channel, first.package.version, first.changed) == ((tmp_path / "mine").as_uri(), "3.10.2", True)
    again = cache.add_python("3.10", Path("/opt/python"), Path("mine"), Settings(), steps)
    assert again.changed is False
    assert added == [(("at", Path("/opt/python"), "3.10"), tmp_path / "mine")] * 2
    assert steps.seen == ["Python 3.10.2 of /opt/python: added", "Python 3.10.2 of /opt/python: up to date"]


def test_without_a_place_the_best_interpreter_is_added_to_envpacks_channel(added, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    progress, said = NoProgress(), Settings(python_preference="only-system")
    made = cache.add_python("3.10", None, None, said, progress)
    assert added == [
        (("for", "3.10", {"preference": "only-system", "progress": progress}), tmp_path / "envpack/channels/own")
    ]
    assert made.channel == (tmp_path / "envpack/channels/own").as_uri()


def test_the_packages_of_a_channel_are_listed_with_its_address(added, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert cache.list_channel(Path("mine")) == ((tmp_path / "mine").as_uri(), [tmp_path / "mine"])
