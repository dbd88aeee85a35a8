"""Object stores; each is started once for all tests."""

import uuid
from concurrent.futures import ThreadPoolExecutor

import pytest

from envpack.deployment.objects.content import Publication, PublishedFile
from envpack.deployment.objects.fetch import copy_publication
from envpack.deployment.objects.send import publish
from envpack.store.location import parse_location
from envpack.store.objects import Objects
from envpack.support.progress import NoProgress
from tests import azurite, gcs, registries
from tests.object_stores import BUCKET, OTHERS, VARIABLES, faulty, moto, rclone
from tests.unit.deployment.conftest import project, release  # noqa: F401 - a small repository


@pytest.fixture(scope="session")
def s3(tmp_path_factory):
    with moto(tmp_path_factory.mktemp("moto")) as address:
        yield address


@pytest.fixture(scope="session")
def unconditional(tmp_path_factory):
    with rclone(tmp_path_factory.mktemp("rclone")) as address:
        yield address


@pytest.fixture(scope="session")
def azure(tmp_path_factory):
    """The variables that lead to an Azure Blob service."""
    if not azurite.is_installable():
        pytest.skip(azurite.MISSING)
    with azurite.azurite(tmp_path_factory.mktemp("azurite"), BUCKET) as variables:
        yield variables


@pytest.fixture(scope="session")
def google(tmp_path_factory):
    """The variables that lead to a service of Google Cloud Storage."""
    with gcs.gcs(tmp_path_factory.mktemp("gcs"), BUCKET) as variables:
        yield variables


@pytest.fixture(autouse=True)
def credentials(monkeypatch, tmp_path):
    for name in OTHERS:
        monkeypatch.delenv(name, raising=False)
    for name, value in VARIABLES.items():
        monkeypatch.setenv(name, value)
    for name in ("DOCKER_CONFIG", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("ENVPACK_CACHE_DIR", str(tmp_path / "cache"))


@pytest.fixture
def proxy(s3):
    with faulty(s3) as found:
        yield found


@pytest.fixture
def folder():
    """A folder of the bucket that no other test uses."""
    return uuid.uuid4().hex


@pytest.fixture
def url(s3, folder):
    return f"s3://{s3}/{BUCKET}/{folder}"


@pytest.fixture
def faulty_url(proxy, folder):
    return f"s3://{proxy.url}/{BUCKET}/{folder}"


@pytest.fixture
def publish_at_once(tmp_path):
    """Publishes several contents to an address at the same time; returns which one lies there, checked."""

    def run(url, *texts):
        def one(text):
            files = (PublishedFile(f"m/{name}", content=text) for name in ("1/model.py", "1/helper.py", "config.pbtxt"))
            publish(Publication(tuple(files), ()), Objects(parse_location(url)))

        with ThreadPoolExecutor(len(texts)) as pool:
            list(pool.map(one, texts))
        (tmp_path / "checked").mkdir()
        assert copy_publication(Objects(parse_location(url)), tmp_path / "checked", NoProgress()).files == 3
        (text,) = {file.read_bytes() for file in (tmp_path / "checked").rglob("*.*")}
        return text

    return run


@pytest.fixture(scope="session")
def registry(tmp_path_factory):
    """Host and port of a registry without TLS and accounts."""
    if not registries.is_installed():
        pytest.skip(registries.MISSING)
    with registries.registry(tmp_path_factory.mktemp("registry")) as host:
        yield host


@pytest.fixture(scope="session")
def protected(tmp_path_factory):
    """Host and port of a registry with TLS and an account, and its certificate."""
    if not registries.is_installed():
        pytest.skip(registries.MISSING)
    place = tmp_path_factory.mktemp("protected")
    with registries.registry(place, protected=True) as host:
        yield host, place / "registry.crt"


@pytest.fixture
def registry_proxy(registry):
    with faulty(f"http://{registry}") as found:
        yield found
