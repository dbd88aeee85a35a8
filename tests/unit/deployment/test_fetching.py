"""`envpack fetch`: a checked copy of published models, in one step."""

import json
import os
import subprocess

import pytest

from envpack.deployment.objects.content import Publication, PublishedFile
from envpack.deployment.objects.fetch import FETCHED
from envpack.deployment.objects.send import publish
from envpack.deployment.signing import read_signing_key
from envpack.store.location import parse_location
from envpack.store.objects import Objects
from tests.faults.command_line import assert_refused, command, envpack, variables
from tests.signing_keys import write_pair

NAMES = ("a/1/model.py", "a/triton_python_backend_stub", "a/config.pbtxt", "b/config.pbtxt")


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("ENVPACK_CACHE_DIR", str(tmp_path / "cache"))


@pytest.fixture
def keys(tmp_path):
    return write_pair(tmp_path)


@pytest.fixture
def remote(tmp_path, keys):
    (tmp_path / "remote").mkdir()
    send(tmp_path / "remote", keys, "first")
    return tmp_path / "remote"


def send(remote, keys, text, names=NAMES):
    files = tuple(PublishedFile(name, content=text.encode()) for name in names)
    objects = Objects(parse_location(f"file://{remote}"))
    publish(Publication(files, ()), objects, keys=[read_signing_key(keys[0])], delete=True)


def fetch(remote, place, *words):
    return envpack("fetch", f"file://{remote}", place, *words, "--json")


def texts(place):
    return {path.read_text() for path in place.rglob("*") if path.is_file() and not path.name.startswith(".")}


def test_a_new_folder_becomes_the_models(remote, tmp_path, keys):
    done = fetch(remote, tmp_path / "models", "--require-signature", keys[1])
    assert done.code == 0, done
    document = done.document
    assert document["command"] == ["tritonserver", f"--model-repository={tmp_path}/models"]
    assert document["files"] == len(NAMES) + 2
    assert sorted(os.listdir(tmp_path / "models")) == [FETCHED, "a", "b"]
    assert texts(tmp_path / "models") == {"first"}
    assert (tmp_path / "models/a/triton_python_backend_stub").stat().st_mode & 0o111 == 0o111
    assert (tmp_path / "models/a/1/model.py").stat().st_mode & 0o111 == 0
    assert envpack("inspect", tmp_path / "models/a/1/model.py", "--require-signature", keys[1]).code != 3


MOUNTED = 'mount --bind "$1" "$1" && shift && exec "$@"'


def test_a_mount_point_is_filled_and_stays(remote, tmp_path, keys):
    """As the volume of an init container, whose neighbours are not writable."""
    place = tmp_path / "pod/models"
    (place / "lost+found").mkdir(parents=True)
    for text, names in (("first", NAMES), ("second", NAMES[:3])):
        send(remote, keys, text, names)
        inside = command("fetch", f"file://{remote}", place)
        done = subprocess.run(
            ["unshare", "--mount", "--map-root-user", "sh", "-c", MOUNTED, "sh", place, *inside],
            env=variables(),
            capture_output=True,
            text=True,
            check=False,
        )
        if done.stderr.startswith("unshare: "):
            pytest.skip(f"needs the right to mount: {done.stderr.strip()}")
        assert done.returncode == 0, done.stderr
        assert texts(place) == {text}
    assert sorted(os.listdir(place)) == [FETCHED, "a", "lost+found"]
    assert os.listdir(place.parent) == ["models"]
    assert json.loads((place / FETCHED).read_text())["models"] == ["a"]


def refused(done, kind, place):
    assert_refused(done, 3, kind)
    assert not place.exists() or texts(place) in ({"first"}, {"own"})
    assert [path for path in place.parent.iterdir() if path.name.endswith(".partial")] == []


def test_what_is_not_as_published_or_signed_leaves_the_folder_as_it_was(remote, tmp_path, keys):
    place, other = tmp_path / "models", write_pair(tmp_path, "other")[1]
    refused(fetch(remote, place, "--require-signature", other), "signature-invalid", place)
    assert fetch(remote, place).code == 0
    refused(fetch(remote, place, "--require-signature", other), "signature-invalid", place)
    (remote / "a/1/model.py").write_text("evil!")
    refused(fetch(remote, place), "published-changed", place)
    refused(fetch(remote, place, "--require-signature", keys[1]), "published-changed", place)


def test_without_record_and_signature_nothing_can_be_compared(remote, tmp_path, keys):
    (remote / ".envpack-publication.json").unlink()
    refused(fetch(remote, tmp_path / "models"), "published-changed", tmp_path / "models")
    assert fetch(remote, tmp_path / "models", "--require-signature", keys[1]).code == 0


@pytest.mark.parametrize(
    "words", [("oci://registry/models:1",), ("s3://bucket/{digest}",), ("nowhere",), ("file:///tmp", "--max-age", "1")]
)
def test_other_addresses_and_options_are_refused(tmp_path, words):
    done = envpack("fetch", words[0], tmp_path / "models", *words[1:], "--json")
    assert done.code == 2
    assert not (tmp_path / "models").exists()
