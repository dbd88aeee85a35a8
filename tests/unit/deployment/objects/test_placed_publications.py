"""A published repository in a folder: what a server finds there, and what stays of what was there before."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys

import pytest

from envpack.deployment.objects import fetch as module
from envpack.deployment.objects.fetch import FETCHED, place_publication
from envpack.deployment.objects.send import publish
from envpack.deployment.signing import read_signing_key, read_trust
from envpack.store.objects import Objects
from envpack.support.errors import InputError, UsageError
from envpack.support.placed_files import STUB_NAME
from envpack.support.progress import NoProgress
from envpack.support.temp_dirs import partial_folder
from tests.steps import Steps

from .publications import below, config, publication


@pytest.fixture
def place(tmp_path):
    return tmp_path / "models"


def placed(objects, place, **options):
    return place_publication(Objects(objects.location), place, NoProgress(), **options)


def models_in(place):
    return {path.name: (path / "config.pbtxt").read_text() for path in place.iterdir() if path.is_dir()}


def test_a_new_folder_gets_the_models_and_says_where_they_come_from(objects, place):
    publish(publication(**config("a"), **config("b")), objects)
    steps = Steps()
    copied = place_publication(Objects(objects.location), place, steps)
    assert (copied.files, copied.size, copied.compared) == (4, 4, True)
    assert models_in(place) == {"a": "a", "b": "a"}
    assert place.stat().st_mode & 0o777 == 0o755
    document = {"schema": 1, "address": objects.location.name, "models": ["a", "b"]}
    assert json.loads((place / FETCHED).read_text()) == document
    assert (place / FETCHED).read_text().splitlines()[1].startswith(' "'), "people read it"
    assert steps.advanced[-1] == (4, 4, "bytes", 0)


def test_each_model_of_a_folder_that_exists_is_replaced_and_one_that_went_is_removed(objects, place):
    publish(publication(**config("a"), **config("b")), objects)
    place.mkdir()
    (place / "lost+found").mkdir()
    placed(objects, place)
    node = place.stat().st_ino
    publish(publication(**config("a", "new"), **config("c")), objects, delete=True)
    placed(objects, place)
    assert sorted(os.listdir(place)) == [FETCHED, "a", "c", "lost+found"]
    assert (place / "a/config.pbtxt").read_text() == "new"
    assert place.stat().st_ino == node, "it may be a mount point"
    assert json.loads((place / FETCHED).read_text())["models"] == ["a", "c"]


def test_a_folder_says_what_is_in_it_at_any_time(objects, place, monkeypatch):
    """What a killed process leaves, the next one knows as envpack's."""
    publish(publication(**config("a")), objects)
    place.mkdir()
    placed(objects, place)
    publish(publication(**config("b")), objects, delete=True)

    def killed(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as context:
        context.setattr(module, "replaced_folder", killed)
        with pytest.raises(KeyboardInterrupt):
            placed(objects, place)
    assert json.loads((place / FETCHED).read_text()) == {"schema": 1, "address": "", "models": ["a", "b"]}
    placed(objects, place)
    assert sorted(os.listdir(place)) == [FETCHED, "b"]


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"models": 1}', '{"models": [1, "../a", "a/b"]}'])
def test_a_damaged_description_names_no_models(objects, place, content):
    publish(publication(**config("a")), objects)
    place.mkdir()
    placed(objects, place)
    (place.parent / "a").mkdir()
    (place / FETCHED).write_text(content)
    publish(publication(**config("b")), objects, delete=True)
    placed(objects, place)
    assert sorted(os.listdir(place)) == [FETCHED, "a", "b"], "what nothing names stays"
    assert (place.parent / "a").exists()


# Fetches an address to a folder, and kills itself before the operation on files there with this number.
PROGRAM = """
import os, signal, sys
from pathlib import Path
from envpack.deployment.objects.fetch import place_publication
from envpack.store.location import parse_location
from envpack.store.objects import Objects
from envpack.support.progress import NoProgress

url, folder, place = sys.argv[1], sys.argv[2], int(sys.argv[3])
operations = 0


def count(event, arguments):
    global operations
    if event != "os.kill" and event.startswith(("open", "os.", "ctypes.")) and folder in str(arguments):
        operations += 1
        if operations == place:
            os.kill(os.getpid(), signal.SIGKILL)


sys.addaudithook(count)
place_publication(Objects(parse_location(url)), Path(folder), NoProgress())
print(operations)
"""


@pytest.mark.parametrize("fetched", [False, True])
def test_what_a_killed_fetch_leaves_is_removed_by_the_next_one(objects, tmp_path, fetched):
    publish(publication(**config("a"), **config("gone")), objects)
    before = tmp_path / "before"
    before.mkdir()
    if fetched:
        placed(objects, before)
    publish(publication(**config("a", "new"), **config("b")), objects, delete=True)

    def killed_at(number):
        folder = tmp_path / f"at{number}/models"
        shutil.copytree(before, folder)
        command = [sys.executable, "-c", PROGRAM, f"file://{objects.location.folder}", str(folder), str(number)]
        return folder, subprocess.run(command, capture_output=True, text=True, check=False)

    _, complete = killed_at(0)
    operations = int(complete.stdout)
    left = set()
    for part in range(1, PLACES + 1):
        folder, done = killed_at(operations * part // (PLACES + 1))
        assert done.returncode == -signal.SIGKILL, done
        left |= {re.sub("[a-z0-9_]{8}[.]partial", "X", name) for name in os.listdir(folder)}
        placed(objects, folder)
        assert sorted(os.listdir(folder)) == [FETCHED, "a", "b"]
        assert models_in(folder) == {"a": "new", "b": "a"}
    assert ".envpack.X" in left


PLACES = 6


@pytest.mark.parametrize("name", [".a.abcdefgh.partial", ".gone.abcdefgh.partial", ".gone.replaced.partial"])
def test_what_a_killed_fetch_left_of_a_model_is_removed(objects, place, name):
    publish(publication(**config("a"), **config("gone")), objects)
    place.mkdir()
    placed(objects, place)
    (place / name / "1").mkdir(parents=True)
    publish(publication(**config("a")), objects, delete=True)
    placed(objects, place)
    assert sorted(os.listdir(place)) == [FETCHED, "a"]


def test_the_copy_of_a_fetch_that_runs_stays(objects, place):
    """It may run in another container, with its own cache and so its own lock."""
    publish(publication(**config("a")), objects)
    place.mkdir()
    with partial_folder(place) as other:
        placed(objects, place)
        assert other.is_dir()
    assert sorted(os.listdir(place)) == [FETCHED, "a"]


@pytest.mark.parametrize("name", ["..", ".", "", "a/..", ".hidden", "lost\nfound"])
def test_a_name_that_no_model_has_leads_nowhere(objects, place, name):
    publish(publication(**config("a")), objects)
    place.mkdir()
    placed(objects, place)
    own = place.parent / "own"
    own.touch()
    kept = place / name / "kept"
    kept.parent.mkdir(exist_ok=True)
    kept.touch()
    (place / FETCHED).write_text(json.dumps({"models": ["a", name]}))
    placed(objects, place)
    assert (own.exists(), kept.exists(), (place / "a/config.pbtxt").read_text()) == (True, True, "a")


@pytest.mark.parametrize("kind", ["folder", "file", "link", "link in place of a fetched model"])
def test_what_has_the_name_of_a_new_model_is_refused_before_anything_changes(objects, place, kind):
    fetched = ["a", "b"] if kind.endswith("fetched model") else ["a"]
    publish(publication(**{path: text for name in fetched for path, text in config(name).items()}), objects)
    place.mkdir()
    placed(objects, place)
    own = place.parent / "own"
    own.mkdir()
    (own / "config.pbtxt").write_text("own")
    if kind == "folder":
        own.rename(place / "b")
    elif kind == "file":
        (place / "b").write_text("own")
    else:
        shutil.rmtree(place / "b", ignore_errors=True)
        (place / "b").symlink_to(own)
    before = (place / FETCHED).read_text()
    publish(publication(**config("a", "new"), **config("b", "new")), objects, delete=True)
    with pytest.raises(InputError) as raised:
        placed(objects, place)
    error = raised.value
    assert (error.kind, error.where) == ("output-not-ours", str(place.resolve() / "b"))
    assert error.message == "this exists, and `envpack fetch` did not create it"
    assert error.hint == "move it out of this folder, or fetch into another one"
    assert (place / "a/config.pbtxt").read_text() == "a"
    assert (place / FETCHED).read_text() == before
    assert kind == "file" or (place / "b/config.pbtxt").read_text() == "own"
    assert sorted(os.listdir(place)) == [FETCHED, "a", "b"]


def test_a_link_in_place_of_a_model_that_went_is_not_removed(objects, place):
    publish(publication(**config("a"), **config("b")), objects)
    place.mkdir()
    placed(objects, place)
    (place / "b").rename(place.parent / "own")
    (place / "b").symlink_to(place.parent / "own")
    publish(publication(**config("a")), objects, delete=True)
    placed(objects, place)
    assert (place / "b/config.pbtxt").read_text() == "a"


def test_every_user_can_read_the_models_whatever_the_umask(objects, place):
    stub = {f"a__{STUB_NAME}": "stub"}
    publish(publication(**config("a"), a__1__data__deep__x="x", **stub), objects)
    before = os.umask(0o077)
    try:
        placed(objects, place / "new")
        (place / "old").mkdir(mode=0o755)
        placed(objects, place / "old")
    finally:
        os.umask(before)
    for folder in (place / "new", place / "old"):
        modes = {path: path.stat().st_mode & 0o777 for path in folder.rglob("*")}
        assert {mode for path, mode in modes.items() if path.is_dir()} == {0o755}
        assert modes.pop(folder / "a" / STUB_NAME) == 0o755
        assert {mode for path, mode in modes.items() if path.is_file()} == {0o644}


def test_a_folder_is_left_as_it_was_if_the_models_are_not_as_published(objects, remote, place):
    publish(publication(**config("a")), objects)
    place.mkdir()
    placed(objects, place)
    (remote / "a/config.pbtxt").write_text("b")
    before = {path: path.read_bytes() for path in place.rglob("*") if path.is_file()}
    with pytest.raises(InputError) as raised:
        placed(objects, place)
    assert raised.value.kind == "published-changed"
    assert {path: path.read_bytes() for path in place.rglob("*") if path.is_file()} == before
    assert sorted(os.listdir(place)) == [FETCHED, "a"]


def test_nothing_is_placed_where_nothing_is_published(objects, place):
    with pytest.raises(InputError, match="no model is published there") as raised:
        placed(objects, place)
    assert (raised.value.kind, raised.value.where) == ("repository-empty", str(objects.location))
    assert not place.exists()


def test_what_nothing_records_is_not_placed(objects, remote, place):
    (remote / "a/1").mkdir(parents=True)
    (remote / "a/1/model.py").write_text("x")
    with pytest.raises(InputError) as raised:
        placed(objects, place)
    error = raised.value
    assert (error.kind, error.where) == ("published-changed", str(objects.location))
    assert error.message == "nothing records what was published there, so that a changed file would not be noticed"
    assert error.hint == "publish it with `envpack publish`, and leave its record there"
    assert not place.exists()


def test_who_must_have_signed_is_checked(objects, place, keys):
    publish(publication(**config("a")), objects, keys=[read_signing_key(keys[0])])
    copied = placed(objects, place, trust=read_trust([keys[1]]))
    assert (copied.files, copied.compared) == (3, True)
    publish(publication(**config("a", "new")), objects)
    with pytest.raises(InputError) as raised:
        placed(objects, place, trust=read_trust([keys[1]]))
    assert raised.value.kind == "signature-invalid"
    assert models_in(place) == {"a": "a"}


@pytest.mark.parametrize("kind", ["file", "folder", "link"])
def test_what_envpack_did_not_fetch_is_refused(objects, place, kind):
    publish(publication(**config("a")), objects)
    if kind == "file":
        place.write_text("own")
    elif kind == "folder":
        place.mkdir()
        (place / "own").touch()
    else:
        place.symlink_to(place.parent / "nowhere")
        (place.parent / "nowhere").mkdir()
        (place.parent / "nowhere/own").touch()
    with pytest.raises(InputError) as raised:
        placed(objects, place)
    error = raised.value
    assert (error.kind, error.where) == ("output-not-ours", str(place.resolve()))
    assert error.message == "this exists, and `envpack fetch` did not create it"
    assert error.hint == "give a folder that does not exist or is empty, or remove this one"


def test_a_link_to_a_new_folder_is_followed(objects, place):
    publish(publication(**config("a")), objects)
    place.symlink_to("elsewhere")
    placed(objects, place)
    assert (place.is_symlink(), models_in(place.parent / "elsewhere")) == (True, {"a": "a"})


def test_a_publication_is_not_copied_into_itself(objects, remote):
    """The copy would change the publication, and every later fetch would reject it."""
    publish(publication(**config("a")), objects)
    for place in (remote, remote / "copy", remote / "a/copy"):
        with pytest.raises(UsageError, match="cannot be inside the publication") as raised:
            placed(objects, place)
        assert (raised.value.kind, raised.value.where) == ("output-inside", str(place))
    assert below(remote) == ["a/1/model.py", "a/config.pbtxt"]
