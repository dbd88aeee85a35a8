"""A store in a folder, and a repository with environments to publish there."""

import shutil

import pytest

from envpack.archive.folder import place_folder
from envpack.archive.selection import Selection
from envpack.archive.tarball import pack_archive
from envpack.deployment.objects.content import published_files
from envpack.deployment.plan import plan_deployment
from envpack.repository.model import open_model
from envpack.repository.placement import in_model_folder, point_to_environment
from envpack.settings.table import Settings
from envpack.store.location import parse_location
from envpack.support.progress import NoProgress
from tests.signing_keys import write_pair
from tests.unit.archive.conftest import Prefixes
from tests.unit.deployment.objects.publications import Noted


@pytest.fixture
def objects(tmp_path):
    (tmp_path / "remote").mkdir()
    return Noted(parse_location(f"file://{tmp_path}/remote"))


@pytest.fixture
def remote(objects):
    return objects.location.folder


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("ENVPACK_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def keys(tmp_path):
    return write_pair(tmp_path)


@pytest.fixture
def repository(project, tmp_path, cache):
    """The repository of other tests; one model has an environment of the cache as a folder, another as an archive."""
    environment = Prefixes(cache / "environments").make("one")
    selection = Selection(exclude=("/lib/nothing",))
    for model, place in (("early", "python3.8"), ("late", "python3.8.tar.gz")):
        folder = project.repository / model
        shutil.rmtree(folder / "python3.8")
        if place.endswith(".gz"):
            pack_archive(environment, folder / place)
        else:
            place_folder(environment, folder / place, selection, served_as=str(folder / place))
        point_to_environment(open_model(folder), in_model_folder(place))
    (project.repository / "late/requirements.txt").write_text("--index-url https://me:word@example.org/simple\nx\n")
    (project.repository / "early/requirements.txt").write_text("--index-url https://example.org/simple?a=b\nx\n")
    return project


@pytest.fixture
def described(repository, release, tmp_path):
    plan = plan_deployment(repository.saying(Settings(backends=tmp_path / "backends")))
    with published_files(plan, NoProgress()) as publication:
        yield publication
