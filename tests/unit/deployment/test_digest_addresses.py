"""Addresses with the digest of what lies there: nothing overwrites them, and old ones are removed on request."""

import hashlib
import os

import pytest

from envpack.deployment.objects import prune, send
from envpack.deployment.objects.content import Publication, PublishedFile, pin
from envpack.deployment.objects.fetch import copy_publication
from envpack.deployment.objects.prune import parse_digest_address
from envpack.deployment.objects.record import RECORD, PublicationRecord
from envpack.deployment.objects.send import publish
from envpack.deployment.signing import read_signing_key, read_trust
from envpack.settings.table import Settings
from envpack.store.claims import reserved
from envpack.store.objects import Objects
from envpack.support.errors import InputError, StorageError, UsageError
from envpack.support.progress import NoProgress
from envpack.workflow.publish import publish_objects
from tests.signing_keys import write_pair
from tests.steps import Steps


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("ENVPACK_CACHE_DIR", str(tmp_path / "cache"))


@pytest.fixture
def parent(tmp_path):
    (tmp_path / "remote").mkdir()
    return tmp_path / "remote"


@pytest.fixture
def address(parent):
    return parse_digest_address(f"file://{parent}/models-{{digest}}")


def publication(text):
    names = ("m/1/model.py", "m/1/helper.py", "m/config.pbtxt")
    return Publication(tuple(PublishedFile(name, content=text.encode()) for name in names), ())


def published(address, text, **options):
    pinned = pin(publication(text), "place")
    objects = Objects(address.of(pinned.digest))
    return objects, pinned.digest, publish(pinned, objects, renew=True, **options)


def test_the_digest_is_that_of_what_sha256sum_prints():
    text = "".join(
        f"{hashlib.sha256(b'a').hexdigest()}  {name}\n" for name in ("m/1/helper.py", "m/1/model.py", "m/config.pbtxt")
    )
    assert pin(publication("a"), "place").digest == hashlib.sha256(text.encode()).hexdigest()


def test_each_content_has_its_own_address_and_an_unchanged_one_is_not_sent_again(address, parent):
    first, digest, done = published(address, "a")
    assert len(done.sent) == 3
    second, other, _ = published(address, "b")
    assert sorted(path.name for path in parent.iterdir()) == sorted([f"models-{digest}", f"models-{other}"])
    assert published(address, "a")[2].sent == ()
    assert {objects.read("m/1/model.py", 9)[0] for objects in (first, second)} == {b"a", b"b"}


def test_a_signature_there_is_one_of_all_models(address, parent, tmp_path):
    """Who may write could take one away otherwise, and the others would still be signed."""
    private, public = write_pair(tmp_path)
    files = tuple(PublishedFile(f"{model}/config.pbtxt", content=b"") for model in ("a", "b"))
    pinned = pin(Publication(files, ()), "place")
    objects, trust = Objects(address.of(pinned.digest)), read_trust([public])
    publish(pinned, objects, keys=[read_signing_key(private)])
    for place, missing in (("whole", False), ("part", True)):
        (tmp_path / place).mkdir()
        if missing:
            objects.delete([info.path for info in objects.list() if info.path.startswith("b/")])
            with pytest.raises(InputError, match="models of the publication are missing"):
                copy_publication(objects, tmp_path / place, NoProgress(), trust=trust)
        else:
            assert copy_publication(objects, tmp_path / place, NoProgress(), trust=trust).files == 4


def names(parent):
    """The publications below a folder."""
    return {path.parent.name for path in parent.glob(f"*/{RECORD}")}


def of(*digests):
    return {f"models-{digest}" for digest in digests}


def test_prune_keeps_the_newest_and_what_is_of_others(address, parent):
    digests = [published(address, text)[1] for text in "abcd"]
    (parent / "notes").mkdir()
    (parent / "notes/readme.txt").write_text("of somebody")
    (parent / f"models-{'0' * 64}").mkdir()
    (parent / f"models-{'0' * 64}/file").write_text("of somebody")
    (parent / f"models-{digests[0]}/m/own.txt").write_text("of somebody")
    (parent / f"models-{digests[1]}/m/1/model.py#1").write_text("of a killed publication")
    probe = parent / f"models-{digests[1]}/{send.LEASE}probe-0"
    probe.write_text("of a killed publication")
    os.utime(probe, (0, 0))
    removed = address.prune(2, digests[3], NoProgress())[0]
    assert removed == tuple(f"file://{parent}/models-{digest}" for digest in digests[:2])
    assert names(parent) == of(*digests[2:])
    left = sorted(str(path.relative_to(parent)) for path in parent.rglob("*") if path.is_file())
    others = [f"models-{'0' * 64}/file", f"models-{digests[0]}/m/own.txt", "notes/readme.txt"]
    assert [path for path in left if not path.startswith(tuple(of(*digests[2:])))] == sorted(others)
    assert not (parent / f"models-{digests[1]}").exists()
    assert address.prune(2, digests[3], NoProgress())[0] == ()


def test_a_removal_that_was_interrupted_costs_no_other_publication(address, parent, monkeypatch):
    """It has written the record of what it removes anew, which makes that the newest by its time."""
    digests = [published(address, text)[1] for text in "abc"]
    monkeypatch.setattr(prune, "remove", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        address.prune(2, digests[2], NoProgress())
    monkeypatch.undo()
    assert names(parent) == of(*digests)
    address.prune(2, published(address, "d")[1], NoProgress())
    assert names(parent) == of(digests[0], digests[2], pin(publication("d"), "place").digest)
    address.prune(1, published(address, "d")[1], NoProgress())
    assert names(parent) == of(pin(publication("d"), "place").digest)


def test_the_path_of_a_folder_may_be_quoted(parent):
    address = parse_digest_address(f"file://{parent}/of%20a-{{digest}}")
    old, new = (published(address, text)[1] for text in "ab")
    assert address.newest(new).head("m/1/model.py")
    assert address.prune(1, new, NoProgress())[0] == (f"file://{parent}/of%20a-{old}",)
    assert [path.name for path in parent.iterdir()] == [f"of a-{new}"]


def test_what_was_published_again_unchanged_is_new(address, parent):
    digests = [published(address, text)[1] for text in "abc"]
    published(address, "a")
    published(address, "d")
    address.prune(2, pin(publication("d"), "place").digest, NoProgress())
    assert names(parent) == of(digests[0], pin(publication("d"), "place").digest)


def test_what_somebody_publishes_stays(address, parent):
    objects, old, _ = published(address, "a")
    _, new, _ = published(address, "b")
    objects.write(f"{send.LEASE}9", b"owner")
    assert address.prune(1, new, NoProgress())[0] == ()
    assert names(parent) == of(old, new)


def test_who_finds_everything_there_while_it_is_removed_sends_it_again(address, parent, monkeypatch):
    """The record is read before the removal begins, and written after its announcement."""
    objects = published(address, "a")[0]
    new = published(address, "b")[1]
    real = send._Publishing._difference
    turns = []

    def interrupted(self, only):
        found = real(self, only)
        if not turns:
            turns.append(address.prune(1, new, NoProgress())[0])
        return found

    monkeypatch.setattr(send._Publishing, "_difference", interrupted)
    done = published(address, "a")[2]
    assert len(turns[0]) == 1
    assert len(done.sent) == 3
    assert objects.read("m/1/model.py", 9)[0] == b"a"


def test_what_others_have_published_since_stays(address, parent):
    """Of two publishers that prune at once, none removes what the other one has just published."""
    _, oldest, _ = published(address, "oldest")
    _, mine, _ = published(address, "mine")
    _, later, _ = published(address, "later")
    assert address.prune(1, mine, NoProgress())[0] == (str(address.of(oldest)),)
    assert address.prune(1, later, NoProgress())[0] == (str(address.of(mine)),)
    assert names(parent) == of(later)


def test_what_was_published_again_before_its_lease_is_taken_stays(address, parent, monkeypatch):
    old = published(address, "old")[0]
    _, newest, _ = published(address, "new")

    def late(*given, **options):
        PublicationRecord.read(old).renew()  # another publication ends here
        return reserved(*given, **options)

    monkeypatch.setattr(prune, "reserved", late)
    assert address.prune(1, newest, NoProgress())[0] == ()
    assert len(names(parent)) == 2


def test_what_was_published_again_at_the_last_moment_stays(address, parent, monkeypatch):
    published(address, "old")
    _, newest, _ = published(address, "new")
    renew, steps = PublicationRecord.renew, Steps()

    def late(record):
        renew(PublicationRecord.read(record._objects))  # another publication ends here
        return renew(record)

    monkeypatch.setattr(PublicationRecord, "renew", late)
    assert address.prune(1, newest, steps)[0] == ()
    assert len(names(parent)) == 2
    (text,) = steps.seen
    assert text.endswith(" stays: another publication has just ended there")


def test_a_publication_with_a_damaged_record_stays_and_does_not_keep_others(address, parent):
    oldest, damaged, newest = (published(address, text)[:2] for text in ("oldest", "damaged", "newest"))
    folder = damaged[0].location.folder
    written = (folder / RECORD).stat().st_mtime_ns
    (folder / RECORD).write_text("{")
    os.utime(folder / RECORD, ns=(written, written))
    assert address.prune(2, newest[1], NoProgress()) == ((), ())
    pruned, cautions = address.prune(1, newest[1], NoProgress())
    assert pruned == (str(oldest[0].location),)
    reason = f"{RECORD} in the store cannot be used: it is no record of this version of envpack"
    assert cautions == (f"{damaged[0].location} stays: {reason}; if nothing uses it, remove it from the store",)
    assert len(names(parent)) == 2
    assert (folder / "m/1/model.py").read_text() == "damaged"


def test_another_error_of_the_store_ends_the_removal(address, monkeypatch):
    published(address, "old")
    _, newest, _ = published(address, "new")

    def fail(*_):
        raise StorageError("store-forbidden", "not allowed", "ask the owner")

    monkeypatch.setattr(PublicationRecord, "renew", fail)
    with pytest.raises(StorageError, match="not allowed"):
        address.prune(1, newest, NoProgress())


@pytest.mark.parametrize(
    "url", ["s3://{digest}", "s3://{digest}/models", "s3://b/{digest}/m", "s3://b/{digest}-{digest}", "x/{digest}"]
)
def test_other_addresses_are_refused(url):
    with pytest.raises(UsageError) as raised:
        parse_digest_address(url)
    assert raised.value.kind == "bad-store-address"
    assert "0" * 64 not in raised.value.message, "the address as it was typed"


@pytest.mark.parametrize("url", ["file:///models/{Digest}", "s3://b/{sha256}", "s3://b/{name}/{digest}"])
def test_another_word_in_braces_is_refused(url):
    with pytest.raises(UsageError, match=r"replaces \{digest\} alone") as raised:
        parse_digest_address(url)
    assert raised.value.kind == "bad-store-address"


def test_the_address_is_part_of_the_result(project, parent, tmp_path):
    project = project.saying(Settings(backends=tmp_path / "backends"))
    bare = [model for model in ("both", "early", "late") if (project.repository / model).exists()]
    assert bare
    for model in ("early", "late"):
        folder = project.repository / model
        (folder / "config.pbtxt").write_text('backend: "python"\n')
    steps = Steps()
    done = publish_objects(project, (), f"file://{parent}/{{digest}}", steps)
    assert steps.seen[-1].endswith(f": {len(done.published.sent)} files, {done.published.size / 1e6:.1f} MB")
    assert done.url.startswith(f"file://{parent}/")
    assert done.command == ("tritonserver", f"--model-repository={done.url.removeprefix('file://')}")
    again = publish_objects(project, (), f"file://{parent}/{{digest}}", NoProgress(), prune=1)
    assert (again.url, again.published.sent, again.pruned) == (done.url, (), ())
    (project.repository / "early/1/model.py").write_text("other")
    changed = publish_objects(project, (), f"file://{parent}/{{digest}}", NoProgress(), prune=1)
    assert changed.pruned == (done.url,)
    assert changed.url != done.url
    (parent / changed.url.rpartition("/")[2] / RECORD).write_text("{")
    (project.repository / "early/1/model.py").write_text("another")
    newest = publish_objects(project, (), f"file://{parent}/{{digest}}", NoProgress(), prune=1)
    assert (len(newest.published.sent) > 1, newest.pruned) == (True, ())
    assert newest.cautions[-1].startswith(f"{changed.url} stays: {RECORD} in the store cannot be used")
