"""What several of these tests judge."""

import pytest

from envpack.repository.model import open_model
from tests.unit.verification.words import Server


@pytest.fixture
def model(tmp_path):
    """An empty Python model, the only one of its repository."""
    (tmp_path / "m/1").mkdir(parents=True)
    (tmp_path / "m/1/model.py").write_text("")
    (tmp_path / "m/config.pbtxt").write_text('backend: "python"\n')
    return open_model(tmp_path / "m")


@pytest.fixture
def server():
    """A server of words with one stub."""
    return Server()
