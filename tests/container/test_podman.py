"""The same through podman's socket, which implements Docker's API."""

import pytest

from tests.container.conftest import Envpack

pytestmark = pytest.mark.thorough


def test_a_model_is_served_in_podman(podman, repository):
    code, document = Envpack(podman, repository).verify()
    assert code == 0, document
    assert document["verdict"]["runtime"] == "podman"
    assert document["verdict"]["checks"][-1]["id"] == "stop"
