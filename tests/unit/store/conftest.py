"""A store in a folder; tests/store has object stores."""

import pytest

from envpack.store import open_store


@pytest.fixture
def url(tmp_path):
    (tmp_path / "store").mkdir()
    return f"file://{tmp_path}/store"


@pytest.fixture
def store(url):
    return open_store(url, push=True, expiry=0.6)
