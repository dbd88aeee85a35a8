"""What signed statements say, and what they refuse."""

import hashlib
import os
import shutil
from dataclasses import replace

import pytest

from envpack.deployment.objects import content as module
from envpack.deployment.objects.content import PublishedFile
from envpack.deployment.objects.fetch import check_signed
from envpack.deployment.objects.record import RECORD
from envpack.deployment.objects.send import publish
from envpack.deployment.signing import opened, parse_statement, read_public_key, read_signing_key, read_trust
from envpack.support.errors import InputError
from tests.faults.command_line import assert_refused, envpack
from tests.signing_keys import write_pair
from tests.unit.deployment.objects.publications import SIGNED, below, config, copied, publication, written_to


def test_each_model_gets_a_signed_statement_and_an_unchanged_one_is_not_sent_again(objects, remote, keys, tmp_path):
    key = read_signing_key(keys[0])
    done = publish(publication(**config("a"), **config("b")), objects, keys=[key])
    assert done.sent[:2] == (SIGNED, "b/.envpack-statement.json")
    assert publish(publication(**config("a"), **config("b")), objects, keys=[key]).sent == ()
    copied(objects, tmp_path, keys[1])
    again = publish(publication(**config("a", "new"), **config("b")), objects, keys=[key])
    assert sorted(again.sent) == ["a/.envpack-statement.json", "a/1/model.py", "a/config.pbtxt"]
    copied(objects, tmp_path, keys[1])
    assert (tmp_path / "copy/a/1/model.py").read_text() == "new"


def test_the_record_does_not_count_where_a_signature_is_required(objects, remote, keys, tmp_path):
    """An intruder who may write changes a file and the record, but cannot sign."""
    publish(publication(**config("a")), objects, keys=[read_signing_key(keys[0])])
    publish(publication(**config("a", "evil")), objects, only=["b"])
    copied(objects, tmp_path)
    with pytest.raises(InputError) as raised:
        copied(objects, tmp_path, keys[1])
    assert raised.value.kind == "published-changed"
    publish(publication(**config("a", "evil")), objects, keys=[read_signing_key(write_pair(tmp_path, "other")[0])])
    with pytest.raises(InputError) as raised:
        copied(objects, tmp_path, keys[1])
    assert raised.value.kind == "signature-invalid"


@pytest.fixture
def downloaded(objects, remote, keys):
    """The folder of an object store is what a download of it is."""
    publish(publication(**config("a"), **config("b")), objects, keys=[read_signing_key(keys[0])])
    (remote / RECORD).unlink()
    return remote


def test_downloaded_models_are_compared_with_what_was_signed(downloaded, keys):
    trust = read_trust([keys[1]])
    places = {".": 4, "a": 2, "a/1": 1, "a/1/model.py": 1}
    assert {place: check_signed(downloaded / place, trust) for place in places} == places


@pytest.mark.parametrize(
    ("change", "place", "kind"),
    [
        (written_to("a/1/model.py", "b"), "a/1/model.py", "published-changed"),
        (written_to("a/2/model.py", "a"), "a", "published-changed"),
        (lambda folder: (folder / "a/1/model.py").unlink(), "a", "published-changed"),
        (written_to(SIGNED, "{}"), "a", "signature-invalid"),
        (lambda folder: (folder / SIGNED).unlink(), "a/1/model.py", "signature-invalid"),
        (lambda folder: shutil.move(folder / "a", folder / "c"), "c", "signature-invalid"),
    ],
)
def test_downloaded_models_that_differ_are_refused(downloaded, keys, change, place, kind):
    change(downloaded)
    with pytest.raises(InputError) as raised:
        check_signed(downloaded / place, read_trust([keys[1]]))
    assert raised.value.kind == kind
    ended = envpack("inspect", downloaded / place, "--require-signature", keys[1], "--json")
    assert_refused(ended, 3, kind)


def test_the_statement_of_a_model_covers_the_archive_of_another_that_it_uses(objects, remote, keys, tmp_path):
    models = publication(a__env="packed", **config("a"), **config("b"))
    models = replace(models, borrowed={"b": "a/env"})
    publish(models, objects, keys=[read_signing_key(keys[0])])
    trust, archive = read_trust([keys[1]]), remote / "a/env"
    copied(objects, tmp_path, keys[1])
    assert {place: check_signed(remote / place, trust) for place in ("b", "a", "b/1")} == {"b": 3, "a": 3, "b/1": 1}
    for change in (lambda: archive.write_text("another"), archive.unlink, lambda: archive.symlink_to("config.pbtxt")):
        change()
        with pytest.raises(InputError, match="a/env") as raised:
            check_signed(remote / "b", trust)
        assert raised.value.kind == "published-changed"


def test_a_statement_goes_with_the_unsigned_publication_that_makes_it_wrong(objects, remote, keys, tmp_path):
    key = read_signing_key(keys[0])
    publish(publication(**config("a"), **config("b")), objects, keys=[key])
    unsigned = publication(**config("a", "new"), **config("b"))
    assert publish(unsigned, objects, dry_run=True).removed == (SIGNED,)
    assert (remote / SIGNED).exists()
    objects.written.clear()
    done = publish(unsigned, objects)
    assert (done.removed, done.outdated) == ((SIGNED,), ("b/.envpack-statement.json",))
    assert (objects.removed, (remote / SIGNED).exists()) == ([SIGNED], False)
    with pytest.raises(InputError, match="the model has none") as raised:
        copied(objects, tmp_path, keys[1])
    assert (raised.value.kind, raised.value.where) == ("signature-invalid", f"{objects.location}/a")
    assert publish(unsigned, objects).removed == ()
    publish(unsigned, objects, keys=[key])
    assert copied(objects, tmp_path, keys[1]).files == 6


def test_no_statement_stays_beside_files_of_an_unsigned_publication_that_was_interrupted(objects, remote, keys):
    publish(publication(**config("a")), objects, keys=[read_signing_key(keys[0])])
    objects.broken = "a/config.pbtxt"
    with pytest.raises(KeyboardInterrupt):
        publish(publication(**config("a", "new")), objects)
    assert below(remote) == ["a/1/model.py", "a/config.pbtxt"]


def test_a_statement_that_is_older_than_the_files_has_a_remedy(objects, remote, keys, tmp_path):
    key = read_signing_key(keys[0])
    publish(publication(**config("a")), objects, keys=[key])
    before = (remote / SIGNED).read_bytes()
    publish(publication(a__1__more="x", **(config("a") | {"a__1__model.py": "new"})), objects)
    (remote / SIGNED).write_bytes(before)
    again = "publish again: with --sign if the statement is older, with "
    forced = f"{again}--force if another program writes there"
    for change, message, hint in (
        (
            lambda: None,
            "a/1/more was not published",
            f"{again}--delete if an earlier publication left it; otherwise remove it",
        ),
        ((remote / "a/1/more").unlink, "a/1/model.py is not what was published", forced),
        ((remote / "a/1/model.py").unlink, "a/1/model.py is missing", forced),
    ):
        change()
        with pytest.raises(InputError) as raised:
            copied(objects, tmp_path, keys[1])
        error = raised.value
        assert (error.kind, error.where) == ("published-changed", str(objects.location))
        assert error.message == message
        assert error.hint == hint


def test_each_remedy_for_a_file_that_was_not_published_works(objects, remote, keys, tmp_path):
    key = read_signing_key(keys[0])
    publish(publication(a__1__more="x", **config("a")), objects, keys=[key])
    publish(publication(**config("a")), objects, keys=[key])  # leaves the other file
    with pytest.raises(InputError, match="a/1/more was not published") as raised:
        copied(objects, tmp_path, keys[1])
    assert "with --delete if an earlier publication left it" in raised.value.hint
    publish(publication(**config("a")), objects, keys=[key], delete=True)
    assert copied(objects, tmp_path, keys[1]).files == 3
    (remote / "a/1/more").write_text("of another program")
    with pytest.raises(InputError, match="a/1/more was not published") as raised:
        copied(objects, tmp_path)
    assert raised.value.hint == "remove it, or publish to an empty folder"
    (remote / "a/1/more").unlink()
    assert copied(objects, tmp_path).files == 3


def test_a_statement_names_the_packages_of_the_environment(described, objects, remote, keys):
    publish(described, objects, keys=[read_signing_key(keys[0])])
    statement = opened((remote / "late/.envpack-statement.json").read_bytes(), [read_public_key(keys[1])], "")
    assert set(parse_statement(statement).subjects) == {name for name in below(remote) if name.startswith("late/")} - {
        "late/.envpack-statement.json"
    }
    build = statement["predicate"]["buildDefinition"]
    assert build["externalParameters"] == {"model": "late", "triton": "24.10", "address": str(objects.location)}
    assert [package["name"] for package in build["resolvedDependencies"]] == ["x 1", "y 1"]


class TestDigests:
    """Digests of files are remembered, and forgotten with any change."""

    @pytest.fixture
    def file(self, tmp_path, monkeypatch):
        monkeypatch.setattr(module, "_SETTLED", 0)
        (tmp_path / "weights.bin").write_bytes(b"before")
        return tmp_path / "weights.bin"

    def digest(self, file):
        (described,) = module.describe_files([PublishedFile("m/weights.bin", file)], "place")
        return described.sha256

    def test_an_unchanged_file_is_not_read_again(self, file, monkeypatch):
        before = self.digest(file)
        monkeypatch.setattr(module, "_sha256", lambda *_: pytest.fail("it was read"))
        assert self.digest(file) == before

    def test_a_change_that_keeps_size_and_modification_time_is_noticed(self, file):
        before, status = self.digest(file), file.stat()
        file.write_bytes(b"after!")
        os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))
        assert (file.stat().st_size, file.stat().st_mtime_ns) == (status.st_size, status.st_mtime_ns)
        assert self.digest(file) == hashlib.sha256(b"after!").hexdigest() != before

    def test_another_file_in_its_place_is_noticed(self, file, tmp_path):
        before, status = self.digest(file), file.stat()
        (tmp_path / "other").write_bytes(b"after!")
        os.utime(tmp_path / "other", ns=(status.st_atime_ns, status.st_mtime_ns))
        (tmp_path / "other").rename(file)
        assert self.digest(file) != before

    def test_what_has_just_been_written_is_read_again(self, file, monkeypatch):
        """Its next change may have the same time stamps."""
        monkeypatch.setattr(module, "_SETTLED", 10**12)
        self.digest(file)
        monkeypatch.setattr(module, "_sha256", lambda *_: "read")
        assert self.digest(file) == "read"
