"""The same through podman's socket, which implements Docker's API."""

import pytest

from tests.container.conftest import Envpack, environment_in_home

pytestmark = pytest.mark.thorough


def test_a_model_is_served_in_podman(podman, repository):
    code, document = Envpack(podman, repository).verify()
    assert code == 0, document
    assert document["verdict"]["runtime"] == "podman"
    assert document["verdict"]["checks"][-1]["id"] == "stop"


def test_a_home_that_the_image_closes_is_opened_for_an_environment_in_it(podman, repository):
    with environment_in_home(repository / "double"):
        code, document = Envpack(podman, repository).verify()
    assert code == 0, document
