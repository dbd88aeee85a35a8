"""Models as an image in a real registry: pushed, read back without envpack, pushed again, based on others, signed."""

import base64
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

import pytest

from envpack.deployment.folder import MANIFEST_NAME, assemble
from envpack.deployment.images.address import parse_image_address
from envpack.deployment.images.documents import INDEX, encoded
from envpack.deployment.images.fetch import pull_image
from envpack.deployment.images.registry import connected
from envpack.deployment.images.send import CONTENT, publish_image
from envpack.deployment.plan import plan_deployment
from envpack.deployment.signing import Trust, read_public_key, read_signing_key
from envpack.settings.table import Settings
from envpack.support.errors import InputError, StorageError
from envpack.support.progress import NoProgress
from tests import registries
from tests.faults.command_line import assert_refused, envpack
from tests.registries import Reader
from tests.registry_tokens import token_service
from tests.signing_keys import write_pair

SHARED = "opt/envpack"


@pytest.fixture
def plan(project, release):
    return plan_deployment(project)


@pytest.fixture
def address(registry, folder):
    return parse_image_address(f"oci://{registry}/team/{folder}:1")


@pytest.fixture
def reader(address):
    return Reader(address.registry, address.repository)


def pulled(address, folder, **options):
    folder.mkdir()
    return pull_image(address, folder, NoProgress(), **options)


def resolved(files, name):
    """What is at a path in an image, after links to folders and files."""
    for _ in range(10):
        parts = name.split("/")
        above = ("/".join(parts[:count]) for count in range(1, len(parts) + 1))
        link = next((path for path in above if files.get(path, (b"",))[0] == tarfile.SYMTYPE), None)
        if link is None:
            return files[name]
        target = os.path.normpath(os.path.join(os.path.dirname(link), files[link][3]))
        name = target + name[len(link) :]
    raise AssertionError(f"too many links at {name}")


def test_the_image_holds_the_tree_of_layout(plan, address, reader, tmp_path):
    published = publish_image(plan, address)
    manifest, digest = reader.manifest("1")
    assert published.image == f"{address.name}@{digest}"
    files = reader.files(manifest)
    assemble(plan, tmp_path / "tree")
    (tmp_path / "tree/Dockerfile").unlink()  # it makes another image
    for path in (tmp_path / "tree").rglob("*"):
        name = str(path.relative_to(tmp_path / "tree"))
        if path.is_symlink() and "/python3.8/" in name:
            assert resolved(files, f"{name}/.hidden")[4] == b"activate"
            continue
        if path.is_symlink():
            assert files[name][3] == os.readlink(path)
            continue
        kind, mode, owner, _, content = resolved(files, name)
        assert owner == (0, 0)
        assert kind == (tarfile.DIRTYPE if path.is_dir() else tarfile.REGTYPE), name
        if name == MANIFEST_NAME:  # files that models share are counted once
            assert json.loads(content)["models"] == json.loads(path.read_bytes())["models"]
        elif path.is_file():
            assert content == path.read_bytes(), name
            assert mode == ("0o755" if os.access(path, os.X_OK) and path.stat().st_mode & 0o100 else "0o644"), name
    assert not [name for name in files if ".cache" in name]


def test_models_share_the_layer_of_their_environment(plan, address, reader):
    publish_image(plan, address)
    manifest, _ = reader.manifest("1")
    titles = [layer["annotations"][CONTENT].split()[0] for layer in manifest["layers"]]
    assert titles == ["environment", "stub", "backend", "model", "model", "model", "manifest"]
    files = reader.files(manifest)
    targets = {files[f"models/{name}/python3.8"][3] for name in ("early", "late")}
    assert len(targets) == 1
    assert targets.pop().startswith(f"../../{SHARED}/environments/")
    assert files["models/late/triton_python_backend_stub"][3].startswith(f"../../{SHARED}/stubs/")


def test_configuration_and_manifest_are_those_of_an_image(plan, address, reader):
    publish_image(plan, address)
    manifest, _ = reader.manifest("1")
    assert manifest["schemaVersion"] == 2
    assert manifest["mediaType"] == "application/vnd.oci.image.manifest.v1+json"
    assert manifest["config"]["mediaType"] == "application/vnd.oci.image.config.v1+json"
    assert {layer["mediaType"] for layer in manifest["layers"]} == {"application/vnd.oci.image.layer.v1.tar+gzip"}
    config = reader.config(manifest)
    assert (config["os"], config["architecture"]) in {("linux", "amd64"), ("linux", "arm64")}
    assert config["rootfs"]["type"] == "layers"
    assert len(config["history"]) == len(manifest["layers"])
    assert "created" not in config


def writes(proxy):
    return [method for method, _ in proxy.requests if method not in ("GET", "HEAD")]


def test_a_second_push_sends_nothing(plan, registry_proxy, folder):
    address = parse_image_address(f"{registry_proxy.url.removeprefix('http://')}/{folder}:1")
    planned = publish_image(plan, address, dry_run=True)
    assert writes(registry_proxy) == []
    first = publish_image(plan, address)
    assert first == planned
    assert writes(registry_proxy)
    registry_proxy.requests.clear()
    second = publish_image(plan, address)
    assert writes(registry_proxy) == []
    assert (second.sent, second.size, second.unchanged) == ((), 0, 7)
    assert second.image == first.image


def test_a_change_sends_the_layer_of_its_model(plan, project, address):
    publish_image(plan, address)
    (project.repository / "late/1/model.py").write_text("edoc")
    assert publish_image(plan, address).sent == ("model late", "manifest of the image")


def test_the_same_input_gives_the_same_digest(plan, project, release, address, tmp_path, monkeypatch):
    first = publish_image(plan, address).image
    shutil.copytree(
        tmp_path / "repository", tmp_path / "elsewhere/repository", symlinks=True, copy_function=shutil.copy
    )
    shutil.copytree(tmp_path / "backends", tmp_path / "elsewhere/backends", symlinks=True)
    monkeypatch.setenv("ENVPACK_CACHE_DIR", str(tmp_path / "other cache"))
    again = type(project)(repository=tmp_path / "elsewhere/repository")
    other = plan_deployment(again.saying(Settings(backends=tmp_path / "elsewhere/backends")))
    assert publish_image(other, address).image == first


def test_texts_with_passwords_stay_here(plan, project, address, reader):
    (project.repository / "late/requirements.txt").write_text("--index-url https://me:word@index.example/simple\n")
    published = publish_image(plan, address)
    assert published.cautions[-1].startswith("late/requirements.txt is left out: line 1 ")
    assert "models/late/requirements.txt" not in reader.files(reader.manifest("1")[0])


def test_a_pulled_image_is_the_repository_again(plan, project, address, tmp_path):
    publish_image(plan, address)
    found = pulled(address, tmp_path / "pulled")
    assert (found.models / "late/1/model.py").read_text() == "code"
    assert (found.models / "early/python3.8/lib/.hidden").read_text() == "activate"
    assert os.access(found.models / "late/triton_python_backend_stub", os.X_OK)
    assert (found.backends / "python_3_8").is_dir()
    assert os.listdir(found.models / "both/1") == []


def based(plan, address, base):
    return publish_image(plan, address, base=parse_image_address(base, pinned=True))


def test_layers_go_on_top_of_a_base_image(plan, registry_proxy, folder, tmp_path, registry):
    host = registry_proxy.url.removeprefix("http://")
    base = publish_image(plan, parse_image_address(f"{host}/{folder}/base:1")).image
    address = parse_image_address(f"{host}/{folder}/server:1")
    registry_proxy.requests.clear()
    published = based(plan, address, base)
    reader = Reader(registry, address.repository)
    manifest, _ = reader.manifest("1")
    below, _ = Reader(registry, f"{folder}/base").manifest("1")
    assert [layer["digest"] for layer in manifest["layers"][:7]] == [layer["digest"] for layer in below["layers"]]
    assert not [title for title in published.sent if title.startswith("base")]  # they are mounted
    assert manifest["annotations"]["org.opencontainers.image.base.digest"] == base.partition("@")[2]
    files = reader.files(manifest)
    assert "opt/tritonserver/backends/python_3_8/model.py" in files
    assert f"{SHARED}/envpack-layout.json" in files
    config = reader.config(manifest)["config"]
    assert config["Cmd"][:2] == ["tritonserver", "--model-repository=/models"]
    assert "PYTHONNOUSERSITE=1" in config["Env"]
    assert (pulled(address, tmp_path / "pulled").models / "late/config.pbtxt").is_file()


def test_a_base_image_may_be_in_another_registry(plan, registry, folder, tmp_path):
    (tmp_path / "other").mkdir()
    with registries.registry(tmp_path / "other") as host:
        base = publish_image(plan, parse_image_address(f"{host}/base:1")).image
        address = parse_image_address(f"{registry}/{folder}:1")
        published = based(plan, address, base)
        assert sum(title.startswith("base") for title in published.sent) > 0
        assert based(plan, address, base).sent == ()
    Reader(registry, folder).files(Reader(registry, folder).manifest("1")[0])


def test_the_image_of_an_index_is_that_for_the_models(plan, address, tmp_path):
    image = publish_image(plan, address).image
    with connected(address) as registry:
        content = registry.manifest(image.partition("@")[2])
        config = json.loads(registry.read_blob(descriptor(json.loads(content)["config"]), 1 << 20))
        entry = {"mediaType": json.loads(content)["mediaType"], "digest": image.partition("@")[2], "size": len(content)}
        for machine, name in ((config["architecture"], "good"), ("riscv64", "bad")):
            platform = {"os": "linux", "architecture": machine}
            index = {"schemaVersion": 2, "mediaType": INDEX, "manifests": [{**entry, "platform": platform}]}
            registry.put_manifest(encoded(index), INDEX, name)
    reader = Reader(address.registry, address.repository)
    digests = {name: reader.manifest(name)[1] for name in ("good", "bad")}
    based(plan, address, f"{address.name}@{digests['good']}")
    with pytest.raises(InputError, match="no image for linux") as raised:
        based(plan, address, f"{address.name}@{digests['bad']}")
    assert raised.value.kind == "bad-base-image"
    with pytest.raises(InputError, match="does not have it"):
        based(plan, address, f"{address.name}@sha256:{'0' * 64}")


def descriptor(document):
    from envpack.deployment.images.documents import Descriptor

    return Descriptor(document["mediaType"], document["digest"], document["size"])


def test_a_signature_is_attached_and_required(plan, project, address, reader, tmp_path):
    private, public = write_pair(tmp_path)
    _, other = write_pair(tmp_path, "other")
    key, right, wrong = read_signing_key(private), read_public_key(public), read_public_key(other)
    first = publish_image(plan, address)
    refused(address, right, tmp_path, "has none")
    signed = publish_image(plan, address, keys=[key])
    assert signed.sent == ("signature",)
    assert signed.image == first.image
    assert publish_image(plan, address, keys=[key]).sent == ()
    index, _ = reader.manifest(first.image.partition("@")[2].replace(":", "-"))
    (artifact,) = index["manifests"]
    manifest, _ = reader.manifest(artifact["digest"])
    assert manifest["subject"]["digest"] == first.image.partition("@")[2]
    assert artifact["artifactType"] == manifest["artifactType"] == "application/vnd.in-toto+json"
    envelope = json.loads(reader.blob(manifest["layers"][0]))
    statement = json.loads(base64.b64decode(envelope["payload"]))
    assert statement["subject"] == [{"name": address.name, "digest": {"sha256": first.image.partition("sha256:")[2]}}]
    pulled(address, tmp_path / "pulled", trust=Trust((right,)))
    refused(address, wrong, tmp_path, "another key signed it")

    (project.repository / "late/1/model.py").write_text("evil")
    changed = publish_image(plan, address)
    refused(address, right, tmp_path, "has none")
    with connected(address) as registry:  # the statement about the first image, listed for the second
        tag = changed.image.partition("@")[2].replace(":", "-")
        registry.put_manifest(encoded(index), INDEX, tag)
    refused(address, right, tmp_path, "it belongs to another image")


def refused(address, key, tmp_path, reason):
    place = tmp_path / "refused"
    place.mkdir(exist_ok=True)
    with pytest.raises(InputError, match=reason) as raised:
        pull_image(address, place, NoProgress(), trust=Trust((key,)))
    assert raised.value.kind == "signature-invalid"
    assert list(place.iterdir()) == []


def test_an_image_of_somebody_else_is_refused(address, tmp_path):
    with pytest.raises(InputError, match="does not have it") as raised:
        pulled(address, tmp_path / "pulled")
    assert raised.value.kind == "image-without-models"


def test_podman_reads_the_image(plan, address, tmp_path):
    """Another client of registries, with its own storage; a volume of Kubernetes is such a mount."""
    if shutil.which("podman") is None or os.getuid() != 0:
        pytest.skip("needs podman and root")
    published = publish_image(plan, address)
    with tempfile.TemporaryDirectory(prefix="podman-") as short:  # podman refuses long paths
        podman = ["podman", "--root", tmp_path / "root", "--runroot", short, "--storage-driver", "vfs"]

        def run(*words):
            done = subprocess.run([*podman, *words], capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stderr
            return done.stdout.strip()

        run("pull", "--quiet", "--tls-verify=false", str(address))
        assert run("image", "inspect", "--format", "{{.Digest}}", str(address)) == published.image.partition("@")[2]
        mounted = Path(run("image", "mount", str(address)))
        try:
            assert (mounted / "models/early/python3.8/lib/.hidden").read_text() == "activate"
            assert os.access(mounted / "models/late/triton_python_backend_stub", os.X_OK)
            assert (mounted / "models/late/1/model.py").read_text() == "code"
        finally:
            run("image", "unmount", "--all")


def log_in(host, folder, user, word):
    """Write config.json as `docker login` does."""
    folder.mkdir()
    auth = base64.b64encode(f"{user}:{word}".encode()).decode()
    (folder / "config.json").write_text(json.dumps({"auths": {host: {"auth": auth}}}))


def test_accounts_come_from_docker_and_travel_encrypted(plan, protected, folder, tmp_path, monkeypatch):
    host, certificate = protected
    address = parse_image_address(f"{host}/{folder}:1")
    unusable(plan, address, "registry-unreachable", "certificate")
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(certificate))
    unusable(plan, address, "registry-forbidden", "no account")
    for number, (user, word, good) in enumerate([("name", "wrong", False), (*registries.ACCOUNT, True)]):
        log_in(host, tmp_path / f"docker{number}", user, word)
        monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path / f"docker{number}"))
        if good:
            assert publish_image(plan, address).sent
            assert pulled(address, tmp_path / "pulled").models.is_dir()
        else:
            unusable(plan, address, "registry-forbidden", "refuses access")


def test_accounts_may_come_from_a_credential_helper(plan, protected, folder, tmp_path, monkeypatch):
    host, certificate = protected
    (tmp_path / "bin").mkdir()
    helper = tmp_path / "bin/docker-credential-mine"
    user, word = registries.ACCOUNT
    helper.write_text(f"""#!/bin/sh\necho '{{"ServerURL": "{host}", "Username": "{user}", "Secret": "{word}"}}'\n""")
    helper.chmod(0o755)
    (tmp_path / "docker").mkdir()
    (tmp_path / "docker/config.json").write_text(json.dumps({"credHelpers": {host: "mine"}}))
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path / "docker"))
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(certificate))
    assert publish_image(plan, parse_image_address(f"{host}/{folder}:1")).sent
    helper.write_text("#!/bin/sh\nexit 1\n")
    with pytest.raises(InputError) as raised:
        publish_image(plan, parse_image_address(f"{host}/{folder}:1"))
    assert raised.value.kind == "bad-docker-config"


def test_registries_with_a_token_service_take_accounts_and_identity_tokens(plan, folder, tmp_path, monkeypatch):
    """``az acr login`` leaves an identity token in docker's entry, and a user without a password."""
    if not registries.is_installed():
        pytest.skip(registries.MISSING)
    key, public = registries.certificate(tmp_path)
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(public))
    nobody = base64.b64encode(b"00000000-0000-0000-0000-000000000000:").decode()
    account = base64.b64encode(b"name:word").decode()
    entries = {
        "refused": {"auth": nobody, "identitytoken": "expired"},
        "identity": {"auth": nobody, "identitytoken": "refresh-me"},
        "account": {"auth": account},
    }
    with token_service(key, public) as service, registries.registry(tmp_path, tokens=service) as host:
        for name, entry in entries.items():
            address = parse_image_address(f"{host}/{folder}/{name}:1")
            (tmp_path / name).mkdir()
            (tmp_path / name / "config.json").write_text(json.dumps({"auths": {host: entry}}))
            monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path / name))
            service.asked.clear()
            if name == "refused":
                unusable(plan, address, "registry-forbidden", "refuses access")
                continue
            assert publish_image(plan, address).sent
            assert pulled(address, tmp_path / f"pulled-{name}").models.is_dir()
            assert set(service.asked) == {("POST", "refresh_token") if name == "identity" else ("GET", "")}


def unusable(plan, address, kind, reason):
    with pytest.raises(StorageError, match=reason) as raised:
        publish_image(plan, address)
    assert (raised.value.kind, raised.value.exit_code) == (kind, 7)
    assert "\n" not in str(raised.value)
    assert len(str(raised.value)) < 500
    assert "word" not in str(raised.value)


def test_the_command_publishes_and_inspects(project, registry, folder, tmp_path):
    url = f"oci://{registry}/{folder}:1"
    private, public = write_pair(tmp_path)
    words = ("--repository", project.repository, "--sign", private, "--json")
    planned = envpack("publish", url, *words, "--dry-run")
    done = envpack("publish", url, *words)
    assert (planned.code, done.code) == (0, 0), done.err
    assert planned.document["sent"] == done.document["sent"]
    assert planned.document["image"] == done.document["image"]
    assert done.document["image"].startswith(f"{registry}/{folder}@sha256:")
    assert envpack("publish", url, *words).document["sent"] == []
    found = envpack("inspect", url, "--require-signature", public, "--json")
    assert found.document["models"], found.err
    assert_refused(envpack("publish", url, *words, "--delete"), 2, "usage")
    assert_refused(envpack("publish", "oci://models:1", *words), 2, "bad-image-address")
    assert_refused(envpack("publish", url, *words, "--base", f"{registry}/base:1"), 2, "bad-image-address")
    assert_refused(envpack("inspect", f"oci://{registry}/{folder}:2", "--json"), 3, "image-without-models")


MEMORY = """
import re, sys
from pathlib import Path
from envpack.deployment.images.send import publish_image
from envpack.deployment.plan import plan_deployment
from envpack.settings.project import Project
from envpack.settings.table import Settings
from envpack.deployment.images.address import parse_image_address
from envpack.settings.releases import find_release
from envpack.repository.placement import backends_folder
project = Project(repository=Path(sys.argv[1]))
plan = plan_deployment(project)
publish_image(plan, parse_image_address(sys.argv[2]))
print(re.search(r"VmHWM:\\s+([0-9]+) kB", Path("/proc/self/status").read_text())[1])
"""


@pytest.mark.thorough
def test_memory_is_bounded_whatever_is_published(project, address):
    with (project.repository / "late/1/weights").open("wb") as weights:
        for _ in range(40):
            weights.write(os.urandom(1 << 20) * 10)
    program = [sys.executable, "-c", MEMORY, project.repository, str(address)]
    done = subprocess.run(program, capture_output=True, check=True, cwd=Path(__file__).parents[2])
    assert int(done.stdout) >> 10 < 200
