"""Published models: a checked copy in the real server, changed, and removed; and served from an image."""

import shutil
import urllib.request

import pytest

from envpack.deployment.objects.record import RECORD
from envpack.server.launch import find_server
from envpack.server.process import ProcessRuntime
from envpack.store.location import parse_location
from envpack.store.objects import Objects
from tests import registries
from tests.gcs import gcs
from tests.needed_pythons import need
from tests.object_stores import BUCKET, OTHERS, VARIABLES, moto
from tests.signing_keys import write_pair

PYTHON = "3.13"
ENSEMBLE = """
platform: "ensemble"
input [ { name: "X", data_type: TYPE_FP32, dims: [ 2 ] } ]
output [ { name: "Y", data_type: TYPE_FP32, dims: [ 2 ] } ]
ensemble_scheduling { step [ {
  model_name: "doubler" model_version: -1
  input_map { key: "X" value: "X" } output_map { key: "Y" value: "Y" }
} ] }
"""


@pytest.fixture
def url(tmp_path, monkeypatch):
    need(PYTHON)
    for name in OTHERS:
        monkeypatch.delenv(name, raising=False)
    for name, value in VARIABLES.items():
        monkeypatch.setenv(name, value)
    with moto(tmp_path) as address:
        yield f"s3://{address}/{BUCKET}/models"


def published(envpack_json, url, repository, *words):
    code, document = envpack_json("publish", url, "--repository", repository, *words)
    assert code == 0, document
    return document


@pytest.mark.thorough
def test_a_server_serves_the_checked_copy_of_what_was_published(doubler, envpack_json, url):
    """The model has a backend for its Python and a folder as environment here: there a stub and an archive."""
    repository = doubler.parent
    (repository / "both/1").mkdir(parents=True)
    (repository / "both/config.pbtxt").write_text(ENSEMBLE)
    words = ("--repository", repository, "--python", PYTHON, "--set", "layout=backend")
    code, document = envpack_json("build", "doubler", *words)
    assert code == 0, document

    planned = published(envpack_json, url, repository, "--dry-run")
    first = published(envpack_json, url, repository)
    assert first["sent"] == planned["sent"]
    assert first["sent"][-3:] == ["doubler/config.pbtxt", "doubler/1/model.py", "both/config.pbtxt"]
    assert first["command"] == ["tritonserver", f"--model-repository={url}"]
    assert published(envpack_json, url, repository)["sent"] == []

    code, document = envpack_json("verify", url)
    assert code == 0, document
    verdict = document["verdict"]
    assert verdict["repository"] == url
    assert {model["name"]: model["ok"] for model in verdict["models"]} == {"doubler": True, "both": True}
    (stub,) = [model["stub"] for model in verdict["models"] if model["name"] == "doubler"]
    assert stub["python"].startswith(PYTHON)
    assert stub["executable"].endswith("/triton_python_backend_stub")
    assert str(repository) not in stub["executable"]

    code, document = envpack_json("verify", url, "--on", "local:2")
    assert code == 0, document
    assert [model["name"] for model in document["verdict"]["models"]] == ["doubler", "both"]
    assert {task["worker"] for task in document["cluster"]["tasks"]} == {"0", "1"}

    objects = Objects(parse_location(url))
    record = objects.read(RECORD, 1 << 20)[0]
    objects.delete([RECORD])
    code, document = envpack_json("verify", url, "doubler")
    assert (code, document["verdict"]["answer"]) == (8, "yes as far as checked")
    assert "nothing records" in next(c["evidence"] for c in document["verdict"]["checks"] if c["id"] == "published")
    objects.write(RECORD, record)

    private, public = write_pair(repository.parent)
    signed = published(envpack_json, url, repository, "--sign", private)
    assert sorted(signed["sent"]) == ["both/.envpack-statement.json", "doubler/.envpack-statement.json"]
    code, document = envpack_json("verify", url, "--require-signature", public)
    assert code == 0, document
    _, other = write_pair(repository.parent, "other")
    code, document = envpack_json("verify", url, "--require-signature", other)
    assert (code, document["error"]["kind"]) == (3, "signature-invalid")
    words = ("--on", "local:1", "--require-signature")
    code, document = envpack_json("verify", url, "doubler", *words, public, "--require-signature", other)
    assert code == 0, document
    code, document = envpack_json("verify", url, "doubler", *words, other)
    assert (code, document["error"]["kind"]) == (3, "signature-invalid")

    (doubler / "1/model.py").write_text((doubler / "1/model.py").read_text().replace("* 2", "* 3"))
    changed = published(envpack_json, url, repository, "--sign", private)["sent"]
    assert sorted(changed) == ["doubler/.envpack-statement.json", "doubler/1/model.py"]
    code, document = envpack_json("verify", url, "doubler")
    assert code == 0, document

    content = objects.read("doubler/1/model.py", 10_000)[0]
    objects.write("doubler/1/model.py", content.replace(b"* 3", b"* 4"))
    for words in ((), ("--require-signature", public)):
        code, document = envpack_json("verify", url, *words)
        assert (code, document["error"]["kind"]) == (3, "published-changed")
    code, document = envpack_json("publish", url, "--repository", repository)
    assert (code, document["error"]["kind"]) == (3, "published-not-ours")
    assert "doubler/1/model.py" in published(envpack_json, url, repository, "--force", "--sign", private)["sent"]

    (repository / "both/config.pbtxt").unlink()
    (repository / "both/1").rmdir()
    (repository / "both").rmdir()
    gone = ["both/.envpack-statement.json", "both/1/.envpack-keep", "both/config.pbtxt"]
    words = ("--sign", private)
    assert sorted(published(envpack_json, url, repository, *words)["outdated"]) == gone
    assert sorted(published(envpack_json, url, repository, *words, "--delete")["removed"]) == gone
    assert not [found for found in objects.list() if found.path.startswith("both")]


@pytest.mark.thorough
def test_a_server_fetches_an_archive_that_models_share(doubler, envpack_json, url, tmp_path):
    shutil.copytree(doubler, doubler.with_name("other"))
    code, document = envpack_json("build", "--repository", doubler.parent, "--python", PYTHON)
    assert code == 0, document
    private, public = write_pair(tmp_path)
    document = published(envpack_json, f"{url}/{{digest}}", doubler.parent, "--sign", private)
    assert [path.partition("/")[0] for path in document["sent"] if path.endswith(".tar.gz")] == ["doubler"]

    for words in ((), ("--require-signature", public), ("other", "--on", "local:1", "--require-signature", public)):
        code, verified = envpack_json("verify", document["url"], *words)
        assert code == 0, verified
    code, fetched = envpack_json("fetch", document["url"], tmp_path / "fetched", "--require-signature", public)
    assert code == 0, fetched
    for words in (("verify", "other", "--repository", tmp_path / "fetched"), ("inspect", tmp_path / "fetched/other")):
        code, found = envpack_json(*words, *(("--require-signature", public) if words[0] == "inspect" else ()))
        assert code == 0, found
    (tmp_path / "run").mkdir()
    arguments = (document["command"][1], "--model-control-mode=none")
    runtime = ProcessRuntime(find_server(None), environment=VARIABLES, arguments=arguments, start_seconds=120)
    with runtime.start(tmp_path / "run") as server:
        for model in ("doubler", "other"):
            with urllib.request.urlopen(f"{server.url}/v2/models/{model}/ready", timeout=60) as answer:
                assert answer.status == 200


@pytest.mark.thorough
def test_models_in_google_cloud_storage_are_verified(doubler, envpack_json, tmp_path, monkeypatch):
    code, document = envpack_json("build", "doubler", "--repository", doubler.parent, "--python", PYTHON)
    assert code == 0, document
    with gcs(tmp_path, BUCKET) as variables:
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        address = f"gs://{BUCKET}/models"
        assert published(envpack_json, address, doubler.parent)["sent"][-1] == "doubler/1/model.py"
        assert published(envpack_json, address, doubler.parent)["sent"] == []
        code, document = envpack_json("verify", address)
        assert code == 0, document
        assert document["verdict"]["repository"] == address
        assert [model["ok"] for model in document["verdict"]["models"]] == [True]


def test_a_server_in_a_container_is_refused(envpack_json, url):
    code, document = envpack_json("verify", url, "--runtime", "docker")
    assert (code, document["error"]["kind"]) == (2, "usage")


def test_the_server_serves_a_published_image(doubler, envpack_json, tmp_path):
    """The model has a backend for its Python; environment and stub are reached by links."""
    if not registries.is_installed():
        pytest.skip(registries.MISSING)
    need(PYTHON)
    repository = doubler.parent
    code, document = envpack_json("build", "doubler", "--repository", repository, "--python", PYTHON)
    assert code == 0, document
    shutil.copytree(doubler, repository / "again", symlinks=True)
    assert (
        envpack_json("build", "again", "--repository", repository, "--python", PYTHON, "--set", "layout=backend")[0]
        == 0
    )
    private, public = write_pair(tmp_path)
    (tmp_path / "registry").mkdir()
    with registries.registry(tmp_path / "registry") as host:
        url = f"oci://{host}/models:1"
        document = published(envpack_json, url, repository, "--sign", private)
        titles = [layer["title"].split()[0] for layer in document["layers"]]
        assert titles == ["environment", "stub", "backend", "model", "model", "manifest"]
        code, document = envpack_json("verify", url, "--require-signature", public)
    verdict = document["verdict"]
    checks = [*verdict["checks"], *(check for model in verdict["models"] for check in model["checks"])]
    assert code == 0, [*(check for check in checks if not check["ok"]), *verdict["leftovers"]]
    assert verdict["repository"].startswith(f"oci://{host}/models@sha256:")
    assert {model["name"]: model["ok"] for model in verdict["models"]} == {"doubler": True, "again": True}
    stubs = {model["name"]: model["stub"]["executable"] for model in verdict["models"]}
    assert all(str(repository) not in stub for stub in stubs.values())
