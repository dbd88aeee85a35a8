"""How objects of a publication are sent: one publication at a time, ensembles last, large files in parts."""

from dataclasses import replace

import pytest

from envpack.deployment.objects import content as module, send
from envpack.deployment.objects.content import Publication, PublishedFile
from envpack.deployment.objects.record import PublicationRecord
from envpack.deployment.objects.send import publish
from envpack.support.errors import InputError, StorageError
from tests.steps import Steps

from .publications import below, config, publication, written_to


def test_models_that_run_others_come_after_all_others(objects):
    models = publication(**config("a"), **config("b"), **config("c"), a__weights="w")
    publish(replace(models, late=frozenset({"a"})), objects)
    assert objects.written[0] == "a/weights"
    assert objects.written[-2:] == ["a/config.pbtxt", "a/1/model.py"]
    assert {path.split("/")[0] for path in objects.written[1:5]} == {"b", "c"}


@pytest.mark.parametrize(("size", "in_parts"), [(4, False), (5, True)])
def test_a_large_file_is_sent_in_parts(objects, remote, tmp_path, monkeypatch, size, in_parts):
    uploaded, upload = [], objects.upload
    monkeypatch.setattr(objects, "upload", lambda path, *rest: uploaded.append(path) or upload(path, *rest))
    monkeypatch.setattr(send, "PIECE", 4)
    monkeypatch.setattr(module, "PIECE", 2)  # what is read at once
    (tmp_path / "weights").write_bytes(b"w" * size)
    steps = Steps()
    published = publish(Publication((PublishedFile("a/weights", tmp_path / "weights"),), ()), objects, progress=steps)
    assert uploaded == (["a/weights"] if in_parts else [])
    assert (remote / "a/weights").read_bytes() == b"w" * size
    assert (published.size, steps.advanced[-1]) == (size, (size, size, "bytes", 0))
    entry = PublicationRecord.read(objects).entries["a/weights"]
    assert (entry.size, entry.tag) == (size, objects.head("a/weights").tag)


def test_an_archive_that_is_not_as_it_is_described_is_named_with_a_remedy(objects, tmp_path):
    """Its size and time stamp are those that are recorded, so that only its content shows the damage."""
    (tmp_path / "e.tar.gz").write_bytes(b"damaged")
    described = PublishedFile("a/e.tar.gz", tmp_path / "e.tar.gz", sha256="0" * 64)
    with pytest.raises(StorageError, match="this file changed") as raised:
        publish(Publication((described,), ()), objects)
    assert raised.value.hint.endswith("an archive that fails again is damaged: remove it and build")


def test_a_second_publication_waits_and_gives_up(objects, remote, monkeypatch):
    monkeypatch.setattr(send, "_PATIENCE", 0.0)
    objects.write(f"{send.LEASE}9", b"owner")
    steps = Steps()
    with pytest.raises(StorageError) as raised:
        publish(publication(**config("a")), objects, progress=steps)
    error = raised.value
    assert (error.kind, error.where) == ("publication-conflict", str(objects.location))
    assert error.message == "another publication to this address runs, or this one stood still for too long"
    assert error.hint == "publish again when it has ended"
    assert steps.seen[1:] == [f"another machine writes to {objects.location}; wait for it, at most 0 s"]
    assert below(remote) == []


def test_a_publication_that_lost_its_lease_sends_nothing_more(objects, remote, monkeypatch):
    monkeypatch.setattr(send.Claim, "held", property(lambda claim: len(objects.written) < 1))
    with pytest.raises(StorageError, match="another publication to this address runs"):
        publish(publication(**config("a"), **config("b")), objects)
    assert len(below(remote)) == 1


@pytest.mark.parametrize(
    ("names", "which"), [(["a/config.pbtxt"], ""), (["a/config.pbtxt", "a/1/model.py"], " and 1 more")]
)
def test_objects_of_others_are_named_with_a_remedy(objects, remote, names, which):
    for name in names:
        written_to(name, "foreign")(remote)
    with pytest.raises(InputError) as raised:
        publish(publication(**config("a")), objects)
    error = raised.value
    assert (error.kind, error.where) == ("published-not-ours", str(objects.location))
    what = "would be replaced, and envpack did not publish it, or it was changed since"
    assert error.message == f"a/config.pbtxt{which} {what}"
    assert error.hint == "publish to an empty folder, remove what is there, or add --force to replace it"


def test_an_object_that_is_gone_is_sent_again(objects, remote):
    publish(publication(**config("a")), objects)
    (remote / "a/config.pbtxt").unlink()
    assert publish(publication(**config("a")), objects).sent == ("a/config.pbtxt",)


def test_the_record_is_renewed_only_if_that_is_asked_for(objects, remote):
    publish(publication(**config("a")), objects)
    before = PublicationRecord.read(objects).written
    for renew in (False, True):
        assert publish(publication(**config("a")), objects, renew=renew).sent == ()
        assert (PublicationRecord.read(objects).written != before) is renew


def test_what_an_interrupted_publication_announced_is_finished_without_anything_to_send(objects):
    publish(publication(**config("a")), objects)
    PublicationRecord.read(objects).announce({"b/config.pbtxt": 1})
    assert publish(publication(**config("a")), objects).sent == ()
    assert PublicationRecord.read(objects).pending == {}
