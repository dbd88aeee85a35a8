"""The record of a publication: what the store lists counts, and what another program changed is noticed."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from envpack.deployment.objects import fetch as fetching, record as module
from envpack.deployment.objects.record import RECORD, PublicationRecord
from envpack.deployment.objects.send import publish
from envpack.store.objects import ObjectInfo
from envpack.support.errors import StorageError

from .publications import Noted, config, copied, publication

MODEL = "a/1/model.py"


class Changing(Noted):
    """A store whose list is changed by the test."""

    def __init__(self, location):
        super().__init__(location)
        self.change = lambda info: [info]
        self.before_list = lambda: None

    def list(self, folder=""):
        self.before_list()
        for info in super().list(folder):
            yield from self.change(info)


@pytest.fixture
def changing(objects):
    return Changing(objects.location)


def other_tag(info):
    return [replace(info, tag=f"listed {info.tag}") if info.path == MODEL else info]


def test_a_store_may_list_other_tags_than_it_gave(changing, monkeypatch):
    monkeypatch.setattr("envpack.store.objects.CHUNK", 1)  # so that the content is compared in several pieces
    changing.change = other_tag
    publish(publication(**config("a", "text")), changing)
    entry = PublicationRecord.read(changing).entries[MODEL]
    assert entry.tag.startswith("listed ")
    changing.written.clear()
    assert publish(publication(**config("a", "text")), changing).sent == ()
    assert changing.written == []


def test_content_that_another_program_wrote_meanwhile_is_no_such_tag(changing, remote):
    changing.change = other_tag
    changing.before_list = lambda: (remote / MODEL).exists() and (remote / MODEL).write_text("TEXT")
    with pytest.raises(StorageError) as raised:
        publish(publication(**config("a", "text")), changing)
    error = raised.value
    assert (error.kind, error.where) == ("publication-conflict", str(changing.location))
    assert error.message == f"{MODEL} is not what was sent: another program writes there"
    assert error.hint == "publish again when nothing else writes there"


@pytest.mark.parametrize("change", [lambda info: [], lambda info: [replace(info, size=info.size + 1)]])
def test_an_object_that_is_gone_or_of_another_size_is_not_what_was_sent(changing, change):
    publish(publication(**config("b")), changing)
    changing.change = lambda info: change(info) if info.path == MODEL else [info]
    with pytest.raises(StorageError, match=f"{MODEL} is not what was sent"):
        publish(publication(**config("a")), changing)


def test_a_file_that_was_there_before_is_not_read_to_explain_another_tag(changing):
    publish(publication(**config("a", "text")), changing)
    record = PublicationRecord.read(changing)
    changing.change = other_tag
    with pytest.raises(StorageError, match=f"{MODEL} is not what was sent"):
        record.finish([MODEL])


def test_a_large_file_is_noted_at_once(changing, monkeypatch):
    for size, noted in ((3, ["a/1/weights"]), (4, [])):
        monkeypatch.setattr(module, "_LARGE", size)
        changing.broken = "a/config.pbtxt"
        with pytest.raises(KeyboardInterrupt):
            publish(publication(a__1__weights="text", **config("a")), changing)
        changing.broken = ""
        assert [*PublicationRecord.read(changing).entries] == noted
        publish(publication(), changing, delete=True)


def test_a_record_knows_what_was_published_and_what_would_have_been(changing):
    record = PublicationRecord.read(changing)
    assert (record.exists, record.known()) == (False, ())
    record.announce({"a": 1, "b": 2})
    again = PublicationRecord.read(changing)
    assert (again.exists, again.known(), again.pending) == (True, ("a", "b"), {"a": 1, "b": 2})


def test_a_record_is_renewed_unless_another_publication_has_written_one(changing):
    first = PublicationRecord.read(changing)
    first.announce({"a": 1})
    assert first.renew() is True
    PublicationRecord.read(changing).announce({"b": 2})
    assert first.renew() is False


def test_a_store_that_fails_is_not_another_publication(changing, monkeypatch):
    record = PublicationRecord.read(changing)
    record.announce({"a": 1})

    def fail(*_):
        raise StorageError("store-forbidden", "not allowed", "ask the owner")

    monkeypatch.setattr(changing, "replace", fail)
    with pytest.raises(StorageError, match="not allowed"):
        record.renew()


def test_folders_that_a_console_made_are_no_files(changing, tmp_path):
    """The web consoles of stores write an empty object for each folder."""
    publish(publication(**config("a"), a__1__data__deep__x="x"), changing)
    folders = [ObjectInfo(path, 0, 0.0) for path in ("a", "a/1", "a/1/data", "a/1/data/deep")]
    changing.change = lambda info: [info, *(folders if info.path == MODEL else ())]
    assert copied(changing, tmp_path).files == 3


def test_an_empty_file_is_a_file(changing, tmp_path):
    publish(publication(**config("a"), a__1__empty=""), changing)
    assert copied(changing, tmp_path).files == 3
    assert (tmp_path / "copy/a/1/empty").read_bytes() == b""


# Copies


def without_record(changing, remote):
    publish(publication(**config("a")), changing)
    (remote / RECORD).unlink()


@pytest.mark.parametrize("path", ["a/../../x", "a/./x", "a//x"])
def test_a_name_that_leads_to_another_folder_is_not_copied(changing, remote, tmp_path, path):
    without_record(changing, remote)
    changing.change = lambda info: [info, ObjectInfo(path, 1, 0.0)]
    with pytest.raises(StorageError) as raised:
        copied(changing, tmp_path)
    error = raised.value
    assert (error.kind, error.where) == ("store-corrupt", str(changing.location))
    assert error.message == f"{path} in the store cannot be used: its name leads to another folder"


def test_a_file_and_a_folder_of_one_name_are_not_copied(changing, remote, tmp_path, monkeypatch):
    monkeypatch.setattr(fetching, "_AT_ONCE", 1)
    without_record(changing, remote)
    below = ObjectInfo(f"{MODEL}/below", 0, 0.0)
    for change, reason in (
        (lambda info: [info, below] if info.path == MODEL else [info], "another object has the name of its folder"),
        (lambda info: [below, info] if info.path == MODEL else [info], "another object has its name as a folder"),
    ):
        changing.change = change
        with pytest.raises(StorageError, match=reason) as raised:
            copied(changing, tmp_path)
        assert raised.value.kind == "store-corrupt"


def test_a_copy_that_does_not_fit_is_refused_before_it_begins(objects, tmp_path, monkeypatch):
    publish(publication(**config("a", "text")), objects)
    needed = fetching._SPARE + 2 * len("text")
    for free, fits in ((needed, True), (needed - 1, False)):
        monkeypatch.setattr(fetching.shutil, "disk_usage", lambda folder, free=free: SimpleNamespace(free=free))
        if fits:
            assert copied(objects, tmp_path).size == 8
        else:
            with pytest.raises(StorageError) as raised:
                copied(objects, tmp_path)
            assert (raised.value.kind, raised.value.where) == ("disk-full", str(tmp_path))
            assert list((tmp_path / "copy").iterdir()) == []


def test_a_large_file_is_copied_in_pieces(objects, tmp_path, monkeypatch):
    monkeypatch.setattr("envpack.store.objects.CHUNK", 3)
    publish(publication(**config("a", "12345678")), objects)
    assert copied(objects, tmp_path).size == 16
    assert (tmp_path / "copy" / MODEL).read_text() == "12345678"
