"""A GCS service: conditions by generation, large objects, and a publication that is repeated."""

import pytest

from envpack.deployment.objects.content import Publication, PublishedFile
from envpack.deployment.objects.send import publish
from envpack.store.claims import probe
from envpack.store.location import parse_location
from envpack.store.objects import Objects
from envpack.store.shared import open_store
from envpack.support.errors import StorageError
from envpack.support.progress import NoProgress
from tests.object_stores import BUCKET

pytestmark = pytest.mark.thorough

CONTENT = bytes(range(256)) * 40_000  # more than two parts


@pytest.fixture
def url(google, folder, monkeypatch):
    for name, value in google.items():
        monkeypatch.setenv(name, value)
    return f"gs://{BUCKET}/{folder}"


def test_what_was_put_there_comes_back(url, tmp_path):
    (tmp_path / "file").write_bytes(CONTENT)
    store = open_store(url, push=True)
    assert store.add("package", "0", tmp_path / "file", sizes=[100, len(CONTENT) - 100]) == len(CONTENT)
    store = open_store(url)
    store.fetch(store.find("package", "0"), tmp_path / "back", NoProgress())
    assert (tmp_path / "back").read_bytes() == CONTENT


def test_the_service_honours_conditions(url):
    objects = open_store(url, push=True).objects
    assert probe(objects)[0]
    assert objects.create("a", b"1")
    assert not objects.create("a", b"2")
    tag = objects.head("a").tag
    assert objects.replace("a", b"3", tag)
    assert not objects.replace("a", b"4", tag)
    assert not objects.replace("absent", b"5", tag)
    assert objects.read("a", 10)[0] == b"3"


def test_a_missing_bucket_is_named(url):
    with pytest.raises(StorageError) as raised:
        open_store("gs://absent/folder").find("stub", "a")
    assert raised.value.kind == "store-absent"


def test_a_publication_can_be_repeated(url):
    objects = Objects(parse_location(url))
    for text in (b"one", b"two", b"two"):
        files = [PublishedFile(f"m/{name}", content=text) for name in ("1/model.py", "config.pbtxt")]
        sent = publish(Publication(tuple(files), ()), objects).sent
    assert sent == ()
    assert objects.read("m/config.pbtxt", 10)[0] == b"two"


def test_of_publishers_at_once_one_is_the_last(url, publish_at_once):
    texts = [b"1", b"2", b"3"]
    assert publish_at_once(url, *texts) in texts
