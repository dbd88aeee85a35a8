"""Every entry of the catalogue of broken repositories that needs no container is reported with its cause and fix."""

import shutil
from pathlib import Path

import pytest

from envpack.server.choice import ServerSpec
from envpack.settings.table import Settings
from envpack.verification.run import verify
from tests.faults.repositories import CATALOGUE
from tests.faults.repositories.broken import ENVIRONMENT, KEYWORD
from tests.faults.repositories.running import Catalogue, assert_reported, build_kit, missing_tool
from tests.rings import parameters

HERE = tuple(entry for entry in CATALOGUE if entry.runtime == "process")
# In the gate is the first of each kind of those that share a server.
FIRST = {(entry.found_by, entry.kind): entry for entry in reversed(HERE) if not entry.own_server}
ENTRIES = parameters(HERE, FIRST.values(), ids=lambda entry: entry.id)


@pytest.fixture(scope="module")
def kit(server, tmp_path_factory):
    return build_kit(tmp_path_factory.mktemp("kit"))


@pytest.fixture(scope="module")
def catalogue(request, kit, tmp_path_factory):
    """All entries that are tested: one server has them together."""
    parameters = [
        item.callspec.params
        for item in request.session.items
        if item.path == request.path and hasattr(item, "callspec")
    ]
    tested = [each["entry"] for each in parameters if "entry" in each]
    entries = tuple(entry for entry in tested if not missing_tool(entry))
    return Catalogue(entries, kit, tmp_path_factory.mktemp("catalogue"))


@pytest.mark.parametrize("entry", ENTRIES)
def test_what_is_broken_is_named(entry, catalogue):
    missing = missing_tool(entry)
    if missing:
        pytest.skip(f"{entry.id} needs {missing}")
    assert_reported(entry, catalogue.reports(entry))


def test_the_good_repository_is_good(catalogue):
    assert catalogue.reports_on_good_repository("inspect") == []
    assert catalogue.reports_on_good_repository("verify") == []


@pytest.mark.thorough
def test_a_folder_that_has_lost_all_modes_serves(kit, tmp_path):
    """As it comes from object storage: the content of each file arrives, and no mode."""
    model = Path(shutil.copytree(kit.model, tmp_path / "models/copied", copy_function=shutil.copyfile))
    shutil.copytree(kit.environment, model / ENVIRONMENT, copy_function=shutil.copyfile)
    config = model / "config.pbtxt"
    config.write_text(config.read_text().replace(str(kit.environment), f"{KEYWORD}/{ENVIRONMENT}"))
    assert not any(file.stat().st_mode & 0o111 for file in model.rglob("*") if file.is_file())
    verdict = verify(model.parent, spec=ServerSpec(Settings(runtime="process")))
    assert verdict.ok, verdict.models
