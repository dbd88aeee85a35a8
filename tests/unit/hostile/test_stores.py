"""What strangers may have written into a store or a published repository, and addresses of any content."""

import hashlib
import json

import pytest
from hypothesis import given, strategies as st

from envpack.deployment.objects.content import Publication, PublishedFile
from envpack.deployment.objects.fetch import copy_publication
from envpack.deployment.objects.record import RECORD
from envpack.deployment.objects.send import publish
from envpack.store.location import parse_location
from envpack.store.maintenance import list_store
from envpack.store.objects import Objects
from envpack.store.shared import open_store
from envpack.support.errors import EnvironmentBuildError
from envpack.support.folders import cache_root
from envpack.support.progress import NoProgress
from envpack.workflow.shared import find_lock, obtain_environment
from tests.hostile import damaged, hostile, read_or_refused, with_one_value_replaced

KEY = "0" * 32
CONTENT = b"content"
DIGEST = hashlib.sha256(CONTENT).hexdigest()
ENTRY = {
    "schema": 1,
    "kind": "environment",
    "key": KEY,
    "blobs": [[DIGEST, len(CONTENT)]],
    "facts": {"content": "0" * 64, "size": 7, "python": "3.8", "packages": ["numpy 1"], "environment": KEY},
}
PUBLISHED = {
    "schema": 1,
    "files": {"m/1/model.py": [DIGEST, len(CONTENT), "tag"], "m/config.pbtxt": [DIGEST, len(CONTENT), "tag"]},
    "pending": {"n/config.pbtxt": 3},
}


def documents(good):
    text = json.dumps(good).encode()
    return with_one_value_replaced(good).map(json.dumps).map(lambda text: text.encode(errors="replace")) | damaged(text)


@pytest.fixture
def store(tmp_path, monkeypatch):
    monkeypatch.setenv("ENVPACK_CACHE_DIR", str(tmp_path / "cache"))
    (tmp_path / "store").mkdir()
    store = open_store(f"file://{tmp_path}/store")
    store.objects.write(f"blobs/{DIGEST[:2]}/{DIGEST}", CONTENT)
    return store


@hostile
@given(documents(ENTRY))
def test_records(store, content):
    store = open_store(store.location.url)  # which remembers what it has found
    store.objects.write(f"records/environment/{KEY}.json", content)
    store.objects.write(f"records/lock/{KEY}.json", content.replace(b"environment", b"lock", 1))

    def make(fill):
        if fill is None:  # what the store has cannot be used
            raise EnvironmentBuildError("unresolvable", "nothing is built here")
        fill(store.location.folder.parent / "unpacked")

    (store.location.folder.parent / "unpacked").mkdir(exist_ok=True)
    for read in (
        lambda: obtain_environment(store, KEY, make, cache_root(), NoProgress()),
        lambda: find_lock(store, KEY, NoProgress()),
        lambda: list_store(store),
    ):
        with read_or_refused():
            read()


@hostile
@given(documents(PUBLISHED))
def test_records_of_publications(tmp_path, content):
    (tmp_path / "published").mkdir(exist_ok=True)
    (tmp_path / "copy").mkdir(exist_ok=True)
    objects = Objects(parse_location(f"file://{tmp_path}/published"))
    objects.write(RECORD, content)
    objects.write("m/1/model.py", CONTENT)
    with read_or_refused():
        copy_publication(objects, tmp_path / "copy", NoProgress())
    with read_or_refused():
        publish(Publication((PublishedFile("m/1/model.py", content=b"new"),), ()), objects, dry_run=True, delete=True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["copy", "published"]


@hostile
@given(
    st.lists(
        st.sampled_from(
            ["s3://", "file://", "az:", "http://", "/", "..", "%2e", "@", ":", "[", "]", "?", "#", "\0", "b"]
        )
        | st.text(max_size=4),
        max_size=8,
    ).map("".join)
)
def test_addresses(text):
    with read_or_refused():
        location = parse_location(text)
        assert ".." not in location.prefix.split("/")
        assert location.bucket or location.folder
