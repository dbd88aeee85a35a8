"""A registry in this process, and no account of the user's."""

import pytest

from envpack.deployment.images import registry as client
from envpack.deployment.images.address import parse_image_address
from tests.memory_registry import memory_registry


@pytest.fixture(autouse=True)
def no_accounts(monkeypatch, tmp_path):
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path / "docker"))
    for name in ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(client, "_PAUSE", 0)


@pytest.fixture
def registry():
    with memory_registry() as found:
        yield found


@pytest.fixture
def address(registry):
    return parse_image_address(f"oci://{registry.host}/team/models:1")
