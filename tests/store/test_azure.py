"""An Azure Blob service: as a store that machines share, and with a published repository."""

import pytest

from envpack.deployment.objects.content import Publication, PublishedFile, published_files
from envpack.deployment.objects.fetch import copy_publication
from envpack.deployment.objects.send import publish
from envpack.deployment.plan import plan_deployment
from envpack.settings.table import Settings
from envpack.store import records
from envpack.store.claims import probe
from envpack.store.location import parse_location, server_address
from envpack.store.maintenance import list_store
from envpack.store.objects import Objects
from envpack.store.shared import open_store
from envpack.support.errors import StorageError
from envpack.support.progress import NoProgress
from tests import azurite
from tests.object_stores import BUCKET, faulty

pytestmark = pytest.mark.thorough

CONTENT = bytes(range(256)) * 40_000  # more than two parts


@pytest.fixture
def url(azure, folder, monkeypatch):
    for name, value in azure.items():
        monkeypatch.setenv(name, value)
    return f"az://{BUCKET}/{folder}"


@pytest.fixture
def azure_proxy(url, azure, monkeypatch):
    """A proxy in front of the service, to which its address leads from now on."""
    address, _, account = azure["AZURE_STORAGE_ENDPOINT"].rpartition("/")
    with faulty(address) as proxy:
        monkeypatch.setenv("AZURE_STORAGE_ENDPOINT", f"{proxy.url}/{account}")
        yield proxy


def test_what_was_put_there_comes_back(url, tmp_path):
    (tmp_path / "file").write_bytes(CONTENT)
    store = open_store(url, push=True)
    assert store.add("package", "0", tmp_path / "file", sizes=[100, len(CONTENT) - 100]) == len(CONTENT)
    assert store.add("package", "1", tmp_path / "file", sizes=[100, len(CONTENT) - 100]) == 0
    store = open_store(url)
    store.fetch(store.find("package", "0"), tmp_path / "back", NoProgress())
    assert (tmp_path / "back").read_bytes() == CONTENT


def test_the_service_honours_conditions(url):
    store = open_store(url, push=True)
    assert probe(store.objects)[0]
    assert store.objects.create("a", b"1")
    assert not store.objects.create("a", b"2")
    tag = store.objects.head("a").tag
    assert store.objects.replace("a", b"3", tag)
    assert not store.objects.replace("a", b"4", tag)
    assert store.objects.read("a", 10)[0] == b"3"


def test_a_missing_container_and_a_wrong_key_are_named(url, monkeypatch):
    with pytest.raises(StorageError) as raised:
        open_store("az://absent/folder").find("stub", "a")
    assert raised.value.kind == "store-absent"
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", "d3Jvbmc=")
    with pytest.raises(StorageError) as raised:
        open_store(url).find("stub", "a")
    assert raised.value.kind == "store-forbidden"


def test_a_repository_is_published_and_copied_back(url, project, release, tmp_path):
    for path in project.repository.glob("*/python3.8"):  # no environment of the cache
        path.rename(tmp_path / path.parent.name)
        (path.parent / "config.pbtxt").write_text('backend: "python"\n')
    objects = Objects(parse_location(url))
    plan = plan_deployment(project.saying(Settings(backends=tmp_path / "backends")))
    with published_files(plan, NoProgress()) as publication:
        assert publish(publication, objects).sent[-1] == "both/config.pbtxt"
        assert publish(publication, objects).sent == ()
    (tmp_path / "copy").mkdir()
    copy_publication(objects, tmp_path / "copy", NoProgress())
    assert (tmp_path / "copy/late/1/model.py").read_text() == "code"
    assert (
        server_address(objects.location) == f"as://{azurite.ACCOUNT}/{BUCKET}/{objects.location.prefix.split('/')[-1]}"
    )


def test_of_publishers_at_once_one_is_the_last(url, publish_at_once):
    texts = [b"1", b"2", b"3"]
    assert publish_at_once(url, *texts) in texts


def test_a_publication_reads_nothing_back(url, azure_proxy):
    publish(Publication((PublishedFile("m/1/model.py", content=b"code"),), ()), Objects(parse_location(url)))
    assert "PUT" in methods_for("model.py", azure_proxy)
    assert "GET" not in methods_for("model.py", azure_proxy)


def test_records_that_did_not_change_are_read_from_the_index(url, azure_proxy, monkeypatch):
    monkeypatch.setattr(records, "_WORTH", 1)
    open_store(url, push=True).add_bytes("lock", "a", b"content", facts={})
    assert len(list_store(open_store(url)).entries) == 1
    azure_proxy.requests.clear()
    assert len(list_store(open_store(url)).entries) == 1
    assert methods_for("records.json", azure_proxy) == {"GET"}
    assert methods_for("records/lock/a.json", azure_proxy) == set()


def methods_for(end, proxy):
    """What was done with the object whose path ends so."""
    return {method for method, path in proxy.requests if path.endswith(end)}
