"""Every entry of the catalogue of broken repositories that needs a container is reported with its cause and fix."""

from pathlib import Path

import pytest

from tests.faults.repositories import CATALOGUE
from tests.faults.repositories.running import Catalogue, assert_reported, build_kit

THERE = tuple(entry for entry in CATALOGUE if entry.runtime == "docker")


@pytest.fixture(scope="module")
def catalogue(daemon, tmp_path_factory):
    kit = build_kit(tmp_path_factory.mktemp("kit"))
    folder = tmp_path_factory.mktemp("catalogue")
    return Catalogue(THERE, kit, folder, ("--image", daemon.image), {"DOCKER_HOST": daemon.address})


@pytest.mark.parametrize("entry", THERE, ids=lambda entry: entry.id)
def test_what_is_broken_is_named(entry, catalogue, daemon):
    if entry.id == "gpu-missing" and ("nvidia" in daemon.client.info()["Runtimes"] or Path("/dev/nvidiactl").exists()):
        pytest.skip("this machine has a GPU")
    assert_reported(entry, catalogue.reports(entry))


def test_the_good_repository_is_good(catalogue):
    assert catalogue.reports_on_good_repository("verify", "docker") == []
