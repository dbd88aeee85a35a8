"""Publishing a repository: only what changed is sent, configurations last, and nothing of others is touched."""

import hashlib
import json
import os
from pathlib import Path

import pytest

from envpack.deployment.objects.content import Publication, PublishedFile, describe_files, pieces
from envpack.deployment.objects.record import RECORD
from envpack.deployment.objects.send import publish
from envpack.store.faults import explained
from envpack.store.objects import Objects
from envpack.support.errors import InputError, StorageError
from envpack.support.progress import NoProgress
from tests.tables import every_row
from tests.unit.deployment.objects.publications import below, config, copied, publication, written_to


def test_what_a_server_acts_on_is_sent_last_and_model_by_model(objects, remote):
    siblings = {"a__1__helper.py": "a", "b__1__helper.py": "b", "a__weights.bin": "a"}
    done = publish(publication(**config("a"), **config("b"), **siblings), objects)
    assert sorted(objects.written[:3]) == ["a/1/helper.py", "a/weights.bin", "b/1/helper.py"]
    for model in ("a", "b"):
        of_model = [path for path in objects.written[3:] if path.startswith(model)]
        assert of_model == [f"{model}/config.pbtxt", f"{model}/1/model.py"]
    assert below(remote) == sorted(done.sent)
    assert (len(done.sent), done.unchanged, done.size) == (7, 0, 7)


def test_what_is_there_is_not_sent_again(objects):
    publish(publication(**config("a"), **config("b")), objects)
    objects.written.clear()
    done = publish(publication(**config("a"), **config("b", "changed")), objects)
    assert (sorted(objects.written), done.unchanged) == (["b/1/model.py", "b/config.pbtxt"], 2)
    objects.written.clear()
    done = publish(publication(**config("a"), **config("b", "changed")), objects)
    assert (objects.written, done.sent, done.unchanged) == ([], (), 4)


def test_what_is_going_to_be_sent_is_said_before(objects):
    said = []

    class Said(NoProgress):
        def detail(self, text):
            said.append((len(objects.written), text))

    environment = "e" * 5_000_000
    models = publication(a__environment=environment, b__environment=environment, **config("a"))
    publish(models, objects, progress=Said())
    publish(publication(a__environment=environment, b__environment="e", **config("a")), objects, progress=Said())
    first, second = said
    assert first == (0, "to send: 4 files, 10.0 MB; what is published takes 4 files, 10.0 MB")
    assert second == (4, "to send: 1 file, 0.0 MB; what is published takes 4 files, 5.0 MB")


def test_a_dry_run_changes_nothing(objects, remote):
    done = publish(publication(**config("a")), objects, dry_run=True)
    assert done.sent == ("a/config.pbtxt", "a/1/model.py")
    assert os.listdir(remote) == []
    publish(publication(**config("a")), objects)
    done = publish(publication(**config("b")), objects, dry_run=True, delete=True)
    assert sorted(done.removed) == ["a/1/model.py", "a/config.pbtxt"]
    assert below(remote) == ["a/1/model.py", "a/config.pbtxt"]


def test_what_went_stays_until_it_is_to_be_deleted(objects, remote):
    publish(publication(**config("a"), **config("b")), objects)
    done = publish(publication(**config("b")), objects)
    assert (done.removed, sorted(done.outdated)) == ((), ["a/1/model.py", "a/config.pbtxt"])
    done = publish(publication(**config("b")), objects, delete=True)
    assert (sorted(done.removed), done.outdated) == (["a/1/model.py", "a/config.pbtxt"], ())
    assert objects.removed == ["a/1/model.py", "a/config.pbtxt"]
    assert below(remote) == ["b/1/model.py", "b/config.pbtxt"]
    assert not (remote / "a").exists(), "a server would take it for a model"


def test_what_a_killed_publication_was_writing_is_removed(objects, remote):
    publish(publication(**config("a")), objects)
    for name in ("model.py#1", "model.py#12", "other.py#1", "model.py#x"):
        (remote / "a/1" / name).write_text("the beginning")
    publish(publication(**config("a", "new")), objects)
    assert sorted(os.listdir(remote / "a/1")) == ["model.py", "model.py#x", "other.py#1"]


def test_other_models_are_no_concern_of_some(objects, remote):
    publish(publication(**config("a"), **config("b")), objects)
    done = publish(publication(**config("b", "new")), objects, only=["b"], delete=True)
    assert (done.removed, done.outdated) == ((), ())
    assert len(below(remote)) == 4
    done = publish(publication(**config("a"), **config("b", "new")), objects)
    assert (done.sent, done.unchanged) == ((), 4)


def test_what_went_from_one_of_several_models_is_removed_with_that_one_only(objects, remote):
    publish(publication(**config("a"), **config("b")), objects)
    done = publish(publication(**{"a/config.pbtxt": "a"}), objects, only=["a"], delete=True)
    assert done.removed == ("a/1/model.py",)
    assert below(remote) == ["a/config.pbtxt", "b/1/model.py", "b/config.pbtxt"]


def test_what_others_wrote_is_neither_replaced_nor_removed(objects, remote):
    (remote / "a").mkdir()
    (remote / "a/config.pbtxt").write_text("of somebody")
    (remote / "notes.txt").write_text("of somebody")
    with pytest.raises(InputError) as raised:
        publish(publication(**config("a")), objects)
    assert raised.value.kind == "published-not-ours"
    assert below(remote) == ["a/config.pbtxt", "notes.txt"]
    publish(publication(**config("a")), objects, force=True)
    publish(publication(**config("b")), objects, delete=True)
    assert below(remote) == ["b/1/model.py", "b/config.pbtxt", "notes.txt"]


def test_what_others_changed_since_is_neither_replaced_nor_removed(objects, remote):
    publish(publication(**config("a"), **config("b")), objects)
    (remote / "a/config.pbtxt").write_text("changed by somebody")
    with pytest.raises(InputError) as raised:
        publish(publication(**config("a"), **config("b")), objects)
    assert raised.value.kind == "published-not-ours"
    done = publish(publication(**config("b")), objects, delete=True)
    assert (done.removed, done.outdated) == (("a/1/model.py",), ("a/config.pbtxt",))
    assert (remote / "a/config.pbtxt").read_text() == "changed by somebody"


@pytest.mark.parametrize("at", ["b/1/model.py", "a/config.pbtxt", "b/config.pbtxt"])
def test_a_publication_that_was_interrupted_can_be_repeated(objects, remote, at):
    publish(publication(**config("a")), objects)
    objects.broken = at
    new = publication(**config("a", "new"), **config("b", "new"))
    with pytest.raises(KeyboardInterrupt):
        publish(new, objects)
    objects.broken = ""
    publish(new, objects)
    assert {(remote / name).read_text() for name in below(remote)} == {"new"}
    assert publish(new, objects).sent == ()
    assert json.loads((remote / RECORD).read_text())["pending"] == {}


def test_a_publication_that_found_the_disk_full_can_be_repeated(objects, remote, tmp_path):
    objects.broken, objects.failure = "b/config.pbtxt", explained(OSError("No space left on device"), objects.location)
    new = publication(**config("a"), **config("b"))
    with pytest.raises(StorageError) as raised:
        publish(new, objects)
    assert (raised.value.kind, raised.value.message) == ("disk-full", "the disk of this store is full")
    assert below(remote) != []  # so it is not said that nothing was changed
    with pytest.raises(InputError) as raised:
        copied(objects, tmp_path)
    assert raised.value.kind == "published-changed"
    objects.broken = ""
    publish(new, objects)
    assert copied(objects, tmp_path).files == 4


def interrupted(objects, at, **contents):
    objects.broken = at
    with pytest.raises(KeyboardInterrupt):
        publish(publication(**contents), objects)
    objects.broken = ""


def test_what_an_interrupted_publication_left_in_a_model_counts_as_that_of_an_earlier_one(objects, remote, tmp_path):
    interrupted(objects, "a/config.pbtxt", a__1__weights="first", **config("a"))
    renamed = publication(a__1__weights2="first", **config("a"))
    assert publish(renamed, objects).outdated == ("a/1/weights",)
    assert copied(objects, tmp_path).files == 4
    assert publish(renamed, objects).sent == ()
    (remote / "a/1/weights").write_text("other")
    with pytest.raises(InputError, match="a/1/weights is not what was published"):
        copied(objects, tmp_path)


def test_a_file_that_an_interrupted_publication_did_not_reach_stays_as_it_was(objects, remote, tmp_path):
    publish(publication(a__1__weights="old", **config("a")), objects)
    interrupted(objects, "a/1/weights", a__1__weights="newer", **config("a"))
    publish(publication(**config("a", "b")), objects)
    assert (copied(objects, tmp_path).files, (remote / "a/1/weights").read_text()) == (3, "old")


@pytest.mark.parametrize("change", ["another program writes", "a version is gone"])
def test_what_may_be_half_of_a_publication_stays_refused_until_it_is_deleted(objects, remote, tmp_path, change):
    left = "a/2/weights" if change == "a version is gone" else "a/1/weights"
    interrupted(objects, "a/config.pbtxt", **{left.replace("/", "__"): "sent"}, **config("a"))
    if change == "another program writes":
        (remote / left).write_text("sen")
    publish(publication(**config("a")), objects)
    with pytest.raises(InputError) as raised:
        copied(objects, tmp_path)
    error = raised.value
    assert (error.kind, error.where) == ("published-changed", str(objects.location))
    assert error.message == f"a publication has not ended, which would write {left}"
    assert error.hint.endswith("publish again, with --delete if the repository no longer has this file")
    publish(publication(**config("a")), objects, delete=True)
    assert copied(objects, tmp_path).files == 2


def test_two_publications_at_once_are_noticed(objects, remote, monkeypatch):
    """The lease of the other one has expired, but it goes on."""
    create = objects.create

    def late(path, content):
        return create(path, b"of the other") if path == RECORD else create(path, content)

    monkeypatch.setattr(objects, "create", late)
    with pytest.raises(StorageError) as raised:
        publish(publication(**config("a")), objects)
    assert raised.value.kind == "publication-conflict"
    assert below(remote) == []


DAMAGED = (
    *("", "[]", '{"schema": 2}', '{"schema": 1, "files": {"a": 1}, "pending": {}}'),
    *(f'{{"schema": 1, "files": {{"a/1/model.py": {entry}}}, "pending": {{}}}}' for entry in (
        '["", 1, "tag"]', f'["{"z" * 64}", 1, "tag"]', f'["{"0" * 64}", -1, "tag"]', f'["{"0" * 64}", 1e999, "tag"]'
    )),
    '{"schema": 1, "files": {}, "pending": {"a/1/model.py": Infinity}}',
)  # fmt: skip


@pytest.mark.parametrize("content", DAMAGED)
def test_a_damaged_record_is_refused_unless_everything_is_sent_again(objects, remote, content):
    (remote / RECORD).write_text(content)
    with pytest.raises(StorageError) as raised:
        publish(publication(**config("a")), objects)
    assert raised.value.kind == "store-corrupt"
    publish(publication(**config("a")), objects, force=True)
    assert publish(publication(**config("a")), objects).sent == ()


def test_a_file_that_changes_while_it_is_published_is_an_error(objects, tmp_path):
    file = tmp_path / "model.py"
    file.write_text("before")
    with pytest.raises(StorageError, match="changed while") as raised:
        publish(Publication((PublishedFile("a/1/model.py", file, sha256="0" * 64),), ()), objects)
    assert raised.value.kind == "file-unusable"


@every_row(
    "read",
    [
        lambda file: describe_files([PublishedFile("a/1/model.py", file)], ""),
        lambda file: describe_files([PublishedFile("a/1/model.py", file, sha256="0" * 64)], ""),
        lambda file: list(pieces(file, hashlib.sha256())),
    ],
)
def test_what_is_no_file_any_more_is_not_read(read, cache):
    """It may be a pipe, which is waited for without limit."""
    with pytest.raises(OSError, match="not a regular file") as raised:
        read(Path("/dev/null"))
    assert raised.value.filename == "/dev/null"


def test_a_copy_is_what_was_published(objects, remote, tmp_path):
    publish(publication(**config("a")), objects)
    assert copied(objects, tmp_path).compared
    assert below(tmp_path / "copy") == ["a/1/model.py", "a/config.pbtxt"]
    for change in (
        lambda file: file.write_text("b"),
        lambda file: file.write_text("longer"),
        lambda file: file.unlink(),
    ):
        change(remote / "a/1/model.py")
        with pytest.raises(InputError) as raised:
            copied(objects, tmp_path)
        assert raised.value.kind == "published-changed"


def test_a_file_that_has_another_size_than_was_published_is_not_copied(objects, remote, tmp_path):
    """It may be as large as the disk."""
    publish(publication(**config("a")), objects)
    (remote / "a/1/model.py").write_text("longer")
    with pytest.raises(InputError, match="a/1/model.py is not what was published") as raised:
        copied(objects, tmp_path)
    assert raised.value.kind == "published-changed"
    assert below(tmp_path / "copy") == []


def test_a_publication_while_another_one_is_read_is_not_taken_for_another_program(objects, tmp_path, monkeypatch):
    publish(publication(a__1__weights="first", **config("a")), objects)
    read = Objects.read_part

    def publish_before(reader, *arguments):
        monkeypatch.setattr(Objects, "read_part", read)
        publish(publication(a__1__weights="other", **config("a", "b")), objects)
        return read(reader, *arguments)

    monkeypatch.setattr(Objects, "read_part", publish_before)
    with pytest.raises(InputError, match="was published again while it was read") as raised:
        copied(objects, tmp_path)
    assert (raised.value.kind, raised.value.hint[:15]) == ("published-changed", "run the command")


def test_half_a_publication_is_refused_until_it_is_repeated(objects, remote, tmp_path):
    publish(publication(**config("a")), objects)
    new = publication(**config("a", "new"), **config("b", "new"))
    objects.broken = "b/1/model.py"
    with pytest.raises(KeyboardInterrupt):
        publish(new, objects)
    objects.broken = ""
    with pytest.raises(InputError, match="a publication has not ended") as raised:
        copied(objects, tmp_path)
    assert raised.value.kind == "published-changed"
    publish(publication(**config("a", "new")), objects)
    with pytest.raises(InputError, match="b/config.pbtxt") as raised:
        copied(objects, tmp_path)
    assert "--delete" in raised.value.hint
    publish(publication(**config("a", "new")), objects, delete=True)
    assert copied(objects, tmp_path).files == 2


def test_a_model_that_another_program_put_beside_is_refused(objects, remote, tmp_path):
    """A server would load it."""
    publish(publication(**config("a")), objects)
    written_to("c/config.pbtxt", "")(remote)
    with pytest.raises(InputError, match="c/config.pbtxt was not published"):
        copied(objects, tmp_path)


def test_an_address_with_a_record_and_nothing_else_is_refused(objects, remote, tmp_path):
    publish(publication(**config("a")), objects)
    publish(publication(), objects, delete=True)
    with pytest.raises(InputError, match="nothing is published there"):
        copied(objects, tmp_path)
