"""What people with the right to write can do to signed models and images, and what each check says of it.

Each row is one manipulation. The models lie in a folder store, which is also what a download of them is.
"""

import dataclasses
import hashlib
import json
import os
import shutil
from time import time as now

import pytest

from envpack.deployment.images import signature
from envpack.deployment.images.fetch import pull_image
from envpack.deployment.images.send import publish_image
from envpack.deployment.objects.content import Publication, PublishedFile
from envpack.deployment.objects.fetch import check_signed, copy_publication
from envpack.deployment.objects.record import RECORD, STATEMENT
from envpack.deployment.objects.send import publish
from envpack.deployment.signing import Statement, read_signing_key, read_trust, sign
from envpack.store.location import parse_location
from envpack.store.objects import Objects
from envpack.support.errors import EnvpackError, InputError
from envpack.support.progress import NoProgress
from tests.signing_keys import write_pair
from tests.tables import every_row

FILES = {"1/model.py": "code", "1/weights.bin": "weights", "config.pbtxt": "config", "lib/util.py": "util"}
DAY = 86400.0


class Models:
    """Two signed models, and what an intruder has: other keys, and what was published before and elsewhere."""

    def __init__(self, folder):
        self.folder, self.root = folder, folder / "remote"
        self.keys = {name: write_pair(folder, name) for name in ("owner", "stranger")}
        self.publish(folder / "elsewhere", "elsewhere")
        self.publish(folder / "old", "old")
        for model in ("a", "b"):
            self.sign(folder / "old" / model, time=-30)
        self.publish(self.root, "new")
        shutil.copytree(self.root, folder / "untouched")

    def publish(self, root, text):
        root.mkdir()
        files = [
            PublishedFile(f"{model}/{path}", content=f"{text} {content}".encode())
            for model in ("a", "b")
            for path, content in FILES.items()
        ]
        publish(Publication(tuple(files), ()), Objects(parse_location(f"file://{root}")), keys=[self.private()])

    def restore(self):
        """Undo a manipulation."""
        for name in ("remote", "outside", "moved"):
            shutil.rmtree(self.folder / name, ignore_errors=True)
        shutil.copytree(self.folder / "untouched", self.root)

    def private(self, name="owner"):
        return read_signing_key(self.keys[name][0])

    def sign(self, model, *, key="owner", kind="publication", address="", time=0.0, names=None, prefix=""):
        """A statement as its owner could have made it, now or days ago, of what is there."""
        prefix = prefix or model.name
        subjects = {f"{prefix}/{name}": _sha256(model / name) for name in (FILES if names is None else names)}
        where = address or f"file://{self.root}"
        statement = Statement(kind, subjects, where, {"model": prefix}, time=now() + time * DAY)
        (model / STATEMENT).write_bytes(sign(statement.document(), [self.private(key)]))


def _sha256(file):
    return hashlib.sha256(file.read_bytes()).hexdigest()


def write(name, text="evil"):
    def change(models):
        file = models.root / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    return change


def remove(name):
    return lambda models: (models.root / name).unlink()


def restore(name):
    """The older state of a file or folder, which was signed too."""

    def change(models):
        there, old = models.root / name, models.folder / "old" / name
        shutil.rmtree(there) if there.is_dir() else there.unlink()
        shutil.copytree(old, there) if old.is_dir() else shutil.copy(old, there)

    return change


def statement(change):
    """Change the envelope of a model's statement."""

    def changed(models):
        file = models.root / "a" / STATEMENT
        envelope = json.loads(file.read_bytes())
        change(envelope)
        file.write_text(json.dumps(envelope))

    return changed


def signed(**how):
    return lambda models: models.sign(models.root / "a", **how)


def link(name, target):
    """In a download, a link in place of what is there."""

    def change(models):
        there = models.root / name
        shutil.rmtree(there) if there.is_dir() else there.unlink(missing_ok=True)
        there.symlink_to(target)

    return change


def moved(source, target):
    return lambda models: shutil.move(models.root / source, models.root / target)


def outside(models):
    shutil.copytree(models.root / "a/lib", models.folder / "outside")
    link("a/lib", models.folder / "outside")(models)


def same_elsewhere(models):
    shutil.copy(models.root / "a/1/model.py", models.folder / "same.py")
    link("a/1/model.py", models.folder / "same.py")(models)


def both(*changes):
    def change(models):
        for one in changes:
            one(models)

    return change


def cleared(models):
    for name in ("a", "b"):
        shutil.rmtree(models.root / name)


def from_elsewhere(models):
    cleared(models)
    for name in ("a", "b"):
        shutil.copytree(models.folder / "elsewhere" / name, models.root / name)


def statement_in_version(models):
    """A valid statement of the owner about one file more, in a folder of the model."""
    write("a/1/extra.py")(models)
    models.sign(models.root / "a/1", names=["extra.py"], prefix="1")


CHANGED, INVALID = "published-changed", "signature-invalid"
# What is done to the object store, and the kind of error that a copy of it and a check of the folder end with.
MANIPULATIONS = {
    "one byte of code": (write("a/1/model.py", "New code"), CHANGED),
    "one byte of weights": (write("b/1/weights.bin", "new weightz"), CHANGED),
    "the configuration": (write("a/config.pbtxt"), CHANGED),
    "an empty file": (write("a/1/model.py", ""), CHANGED),
    "a longer file": (write("a/1/model.py", "new code and more"), CHANGED),
    "a file less": (remove("a/lib/util.py"), CHANGED),
    "a configuration less": (remove("a/config.pbtxt"), CHANGED),
    "a file more": (write("a/1/sitecustomize.py"), CHANGED),
    "a version more": (write("a/2/model.py"), CHANGED),
    "a hidden file more": (write("a/.env"), CHANGED),
    "a statement's name deeper": (write(f"a/1/{STATEMENT}"), CHANGED),
    "a statement's name two folders deeper": (write(f"a/1/x/{STATEMENT}"), CHANGED),
    "another statement in a version": (statement_in_version, CHANGED),
    "a file renamed": (moved("a/lib/util.py", "a/lib/utils.py"), CHANGED),
    "a file of the other model": (
        lambda models: shutil.copy(models.root / "b/config.pbtxt", models.root / "a/1"),
        CHANGED,
    ),
    "two files swapped": (
        both(moved("a/1/model.py", "x"), moved("a/lib/util.py", "a/1/model.py"), moved("x", "a/lib/util.py")),
        CHANGED,
    ),
    "an older file": (restore("a/1/model.py"), CHANGED),
    "an older statement": (restore(f"a/{STATEMENT}"), "too old"),
    "an unsigned model more": (write("c/1/model.py"), INVALID),
    "a model renamed": (moved("a", "c"), INVALID),
    "a hidden model": (write(".c/1/model.py"), INVALID),
    "no statement": (remove(f"a/{STATEMENT}"), INVALID),
    "an empty statement": (write(f"a/{STATEMENT}", ""), INVALID),
    "a statement that is JSON": (write(f"a/{STATEMENT}", "{}"), INVALID),
    "a statement without signature": (statement(lambda envelope: envelope.update(signatures=[])), INVALID),
    "a statement of another type": (statement(lambda envelope: envelope.update(payloadType="text/plain")), INVALID),
    "an altered statement": (statement(lambda envelope: envelope.update(payload="e30=")), INVALID),
    "the statement of the other model": (
        lambda models: shutil.copy(models.root / "b" / STATEMENT, models.root / "a"),
        INVALID,
    ),
    "signed by a stranger": (signed(key="stranger"), INVALID),
    "a stranger's files and signature": (both(write("a/1/model.py"), signed(key="stranger")), INVALID),
    "a statement about an image": (signed(kind="image"), INVALID),
    "a statement about nothing": (signed(names=[]), INVALID),
    "a statement about files elsewhere": (signed(prefix="b"), INVALID),
    "an older model": (restore("a"), "too old"),
    "all of an older publication": (both(restore("a"), restore("b")), "too old"),
    "a statement from the future": (signed(time=30), INVALID),
    "a publication to another address": (signed(address="s3://bucket/elsewhere"), "elsewhere"),
    "models that were published elsewhere": (from_elsewhere, "elsewhere"),
    "nothing left": (cleared, INVALID),
}
# What only a file system can hold, and the kind of error of a check there.
LINKS = {
    "a linked version": (link("a/2", "1"), CHANGED),
    "a version that is a link to elsewhere": (both(outside, link("a/2", "/tmp")), CHANGED),
    "a folder replaced by a link to the same": (outside, CHANGED),
    "a file replaced by a link to the same": (same_elsewhere, CHANGED),
    "a dangling link": (link("a/1/x.py", "nowhere"), CHANGED),
    "a link to a file of the model": (link("a/1/again.py", "model.py"), CHANGED),
    "a linked statement": (both(moved(f"a/{STATEMENT}", "s"), link(f"a/{STATEMENT}", "../s")), CHANGED),
    "a linked model": (both(moved("a", "../moved"), link("a", "../moved")), CHANGED),
    "a pipe": (lambda models: os.mkfifo(models.root / "a/1/pipe"), CHANGED),
}


@pytest.fixture
def models(tmp_path, monkeypatch):
    monkeypatch.setenv("ENVPACK_CACHE_DIR", str(tmp_path / "cache"))
    (tmp_path / "models").mkdir()
    return Models(tmp_path / "models")


def kind_of(check, *words, **more):
    """The kind of error that a check ends with, ``""`` if it has no objection."""
    try:
        check(*words, **more)
    except EnvpackError as error:
        return error.kind if error.where else "an error that names no place"
    return ""


def copied(models, **trust):
    place = models.folder / "copy"
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir()
    objects = Objects(parse_location(f"file://{models.root}"))
    return kind_of(copy_publication, objects, place, NoProgress(), **trust)


def trusted(models, *names, max_days=7):
    return read_trust([models.keys[name][1] for name in names or ("owner",)], max_days)


def rows(table):
    return [(name, change, kind) for name, (change, kind) in table.items()]


def test_what_is_signed_is_accepted(models):
    for names in (("owner",), ("stranger", "owner")):
        assert copied(models, trust=trusted(models, *names)) == ""
        assert kind_of(check_signed, models.root, trusted(models, *names)) == ""
    assert copied(models) == ""


def test_there_are_as_many_manipulations_as_the_guide_says():
    assert len(MANIPULATIONS) + len(LINKS) >= 40


@every_row(("name", "change", "kind"), rows(MANIPULATIONS))
def test_every_manipulation_is_refused_when_a_signature_is_required(models, name, change, kind):
    models.restore()
    change(models)
    assert copied(models, trust=trusted(models)) == {"too old": INVALID, "elsewhere": INVALID}.get(kind, kind), name


@every_row(("name", "change", "kind"), rows(MANIPULATIONS | LINKS))
def test_every_manipulation_of_a_download_is_refused(models, name, change, kind):
    """What a download does not show is where it was published."""
    models.restore()
    change(models)
    (models.root / RECORD).unlink()
    wanted = {"too old": INVALID, "elsewhere": ""}.get(kind, kind)
    assert kind_of(check_signed, models.root, trusted(models)) == wanted, name


def test_old_publications_are_accepted_without_a_limit(models):
    both(restore("a"), restore("b"))(models)
    assert copied(models, trust=trusted(models, max_days=None)) == ""
    assert copied(models, trust=trusted(models, max_days=31)) == ""


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({}, ""),
        ({"kind": "publication"}, "not about an image"),
        ({"address": "oci://elsewhere/team/models"}, "a publication to oci://elsewhere"),
        ({"time": 1e9}, "days old, and 7 days are the most"),
        ({"subjects": {"models": "0" * 64}}, "it belongs to another image"),
    ],
)
def test_what_is_attached_to_an_image_counts_only_if_it_is_about_that_image(
    plan, address, registry, tmp_path, monkeypatch, change, reason
):
    """A data file in a signed model could have the digest of an image as its content's."""
    private, public = write_pair(tmp_path)
    made = signature.Statement

    def altered(*words):
        return dataclasses.replace(made(*words), **change)

    monkeypatch.setattr(signature, "Statement", altered)
    publish_image(plan, address, keys=[read_signing_key(private)])
    (tmp_path / "pulled").mkdir()
    trust = read_trust([public], 7)
    if not reason:
        pull_image(address, tmp_path / "pulled", NoProgress(), trust=trust)
        return
    with pytest.raises(InputError, match=reason) as raised:
        pull_image(address, tmp_path / "pulled", NoProgress(), trust=trust)
    assert raised.value.kind == INVALID


def test_an_image_has_the_signatures_of_several_keys(plan, address, registry, tmp_path):
    pairs = [write_pair(tmp_path, name) for name in ("old", "new")]
    publish_image(plan, address, keys=[read_signing_key(private) for private, _ in pairs])
    for number, (_, public) in enumerate(pairs):
        (tmp_path / f"pulled{number}").mkdir()
        pull_image(address, tmp_path / f"pulled{number}", NoProgress(), trust=read_trust([public]))
