"""A store in a folder; tests/store has object stores."""

import os
import time

import pytest

from envpack.store.claims import ENDED
from envpack.store.shared import open_store


@pytest.fixture
def url(tmp_path):
    (tmp_path / "store").mkdir()
    return f"file://{tmp_path}/store"


@pytest.fixture
def store(url):
    return open_store(url, push=True, expiry=0.6)


@pytest.fixture
def add(store, tmp_path):
    def put(kind, key, *pieces, days=0.0, **facts):
        (tmp_path / "file").write_bytes(b"".join(pieces))
        store.add(kind, key, tmp_path / "file", sizes=[len(piece) for piece in pieces], facts=facts)
        record = store.find(kind, key)
        for path in (record.path, *(blob.path for blob in record.blobs)):
            age(store, path, days)

    return put


def age(store, path, days):
    used = time.time() - days * 86400
    os.utime(store.location.folder / path, (used, used))


def paths(store, folder=""):
    """The paths of all objects below a folder of a store."""
    return sorted(found.path for found in store.objects.list(folder))


def requests_to(store):
    """The paths that a store is asked for from now on, as a list that grows."""
    asked, objects = [], store.objects

    def noted(method):
        def ask(path, *rest):
            asked.append(path)
            return method(path, *rest)

        return ask

    for name in ("head", "read", "read_part", "list_here"):
        setattr(objects, name, noted(getattr(objects, name)))
    return asked


def claimed_paths(store):
    """The paths of claims that their owners have not released."""
    return sorted(found.path for found in store.objects.list("claims") if found.size > len(ENDED))
