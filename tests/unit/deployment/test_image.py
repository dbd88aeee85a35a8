"""Models as an image in a registry: what is sent, what the image holds, what it is based on, and who signed it."""

import base64
import gzip
import io
import json
import os
import tarfile

import pytest

from envpack.deployment import MANIFEST_NAME, image_publication, plan_deployment, publish_image, pull_image
from envpack.deployment.image_layers import LayerMemory, files_with_credentials, image_layers
from envpack.deployment.image_publication import CONTENT
from envpack.registry import INDEX, MANIFEST, Descriptor, client, encoded, parse_image_address
from envpack.repository import backends_folder
from envpack.signing import read_public_key, read_signing_key
from envpack.support.errors import InputError, StorageError
from envpack.support.progress import NoProgress
from tests.memory_registry import memory_registry
from tests.signing_keys import write_pair

ARCHITECTURE = {"x86_64": "amd64", "aarch64": "arm64"}[os.uname().machine]


@pytest.fixture(autouse=True)
def own_places(monkeypatch, tmp_path):
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path / "docker"))
    monkeypatch.setenv("ENVPACK_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(client, "_PAUSE", 0)


@pytest.fixture
def registry():
    with memory_registry() as found:
        yield found


@pytest.fixture
def plan(project, release):
    return plan_deployment(project, backends_folder(project), release)


@pytest.fixture
def address(registry):
    return parse_image_address(f"oci://{registry.host}/team/models:1")


class Steps(NoProgress):
    def __init__(self):
        self.seen, self.bytes = [], []

    def begin(self, task):
        self.seen.append(task)

    def end(self, outcome):
        self.seen[-1] += f": {outcome}"

    def advance(self, done, total, unit, *, size=0):
        assert unit == "bytes"
        self.bytes.append((done, total))


class Image:
    """An image in a registry."""

    def __init__(self, registry, name="team/models", reference="1"):
        self.content = registry.manifests[name, reference]
        self.manifest = json.loads(self.content)
        self._blobs = registry.stored(name)
        self.config = json.loads(self._blobs[self.manifest["config"]["digest"]])

    @property
    def titles(self):
        return [layer.get("annotations", {}).get(CONTENT, "") for layer in self.manifest["layers"]]

    def layer(self, number):
        """The members of a layer: name, type, mode, target and content."""
        content = gzip.decompress(self._blobs[self.manifest["layers"][number]["digest"]])
        with tarfile.open(fileobj=io.BytesIO(content)) as archive:
            return {
                member.name: (
                    member.type,
                    member.mode,
                    member.linkname,
                    member.isfile() and archive.extractfile(member).read(),
                )
                for member in archive
            }

    def files(self):
        return {name: found for number in range(len(self.titles)) for name, found in self.layer(number).items()}


def digest(image):
    return image.partition("@")[2]


def test_models_share_the_layers_of_what_they_share(registry, plan, address):
    steps = Steps()
    published = publish_image(plan, address, progress=steps)
    image = Image(registry)
    kinds = [title.split()[0] for title in image.titles]
    assert kinds == ["environment", "stub", "backend", "model", "model", "model", "manifest"]
    assert published.sent == (*image.titles, "manifest of the image")
    environment = image.titles[0].rsplit(" ", 1)[1]
    assert image.titles[0] == f"environment python3.8 {environment}"
    shared = f"opt/envpack/environments/{environment}/python3.8"
    assert list(image.layer(0))[:4] == ["opt", "opt/envpack", "opt/envpack/environments", shared.rpartition("/")[0]]
    files = image.files()
    assert files[f"{shared}/bin/.hidden"][3] == b"activate"
    assert files[f"{shared}/lib"][:1] + files[f"{shared}/lib"][2:3] == (tarfile.SYMTYPE, "bin")
    for model in ("early", "late"):
        assert files[f"models/{model}/python3.8"][2] == f"../../{shared}"
        assert files[f"models/{model}/1/model.py"][3] == b"code"
    stub = image.titles[1].rsplit(" ", 1)[1]
    assert files["models/late/triton_python_backend_stub"][2] == (
        f"../../opt/envpack/stubs/{stub}/triton_python_backend_stub"
    )
    assert files[f"opt/envpack/stubs/{stub}/triton_python_backend_stub"][1] == 0o755
    assert files["backends/python_3_8/triton_python_backend_stub"][3] == b"\x7fELF"
    assert not [name for name in files if ".cache" in name or "/.git" in name or name.startswith("notes")]
    manifest = json.loads(files[MANIFEST_NAME][3])
    assert ([model["name"] for model in manifest["models"]], manifest["served_from"]) == (
        ["both", "early", "late"],
        "/models",
    )
    own = [name for name, (kind, *_) in files.items() if kind != tarfile.DIRTYPE and name != MANIFEST_NAME]
    assert manifest["files"] == len(own)
    assert manifest["size"] == sum(len(files[name][3] or b"") for name in own)
    sizes = [layer["size"] for layer in image.manifest["layers"]]
    assert published.layers == tuple(
        {"title": title, "digest": layer["digest"], "size": layer["size"]}
        for title, layer in zip(image.titles, image.manifest["layers"], strict=True)
    )
    assert published.size == sum(sizes) + len(image.content)
    assert published.unchanged == 0
    assert steps.seen[:2] == [f"pack {image.titles[0]}: 0.0 MB", f"send {image.titles[0]}: 0.0 MB"]
    assert all(0 <= done <= total for done, total in steps.bytes)
    assert (sizes[0], sizes[0]) in steps.bytes


def test_the_configuration_of_the_image(registry, plan, address):
    published = publish_image(plan, address)
    image = Image(registry)
    assert published.image == f"{address.name}@sha256:{client.digest_of(image.content)[7:]}"
    assert (image.manifest["schemaVersion"], image.manifest["mediaType"]) == (2, MANIFEST)
    assert "annotations" not in image.manifest
    assert {layer["mediaType"] for layer in image.manifest["layers"]} == {"application/vnd.oci.image.layer.v1.tar+gzip"}
    config = image.config
    assert (config["os"], config["architecture"], config["config"]) == ("linux", ARCHITECTURE, {})
    assert config["rootfs"]["type"] == "layers"
    contents = [gzip.decompress(image._blobs[layer["digest"]]) for layer in image.manifest["layers"]]
    assert config["rootfs"]["diff_ids"] == [client.digest_of(content) for content in contents]
    assert config["history"] == [{"created_by": f"envpack publish: {title}"} for title in image.titles]
    assert "created" not in config


def test_what_the_registry_has_is_not_sent_again(registry, plan, project, address):
    planned = publish_image(plan, address, dry_run=True)
    assert registry.writes() == []
    first = publish_image(plan, address)
    assert (planned.image, planned.sent, planned.size) == (first.image, first.sent, first.size)
    written = len(registry.writes())
    second = publish_image(plan, address)
    assert len(registry.writes()) == written
    assert (second.sent, second.unchanged, second.size, second.image) == ((), 7, 0, first.image)
    (project.repository / "late/1/model.py").write_text("changed")
    third = publish_image(plan, address)
    assert [title for title in third.sent if title != "manifest"] == ["model late", "manifest of the image"]
    assert third.unchanged == 5
    assert third.image != first.image


def test_a_layer_that_was_packed_before_is_packed_again_only_to_be_sent(plan, registry, address):
    publish_image(plan, address)
    steps = Steps()
    publish_image(plan, address, progress=steps)
    assert steps.seen == []
    other = parse_image_address(f"{registry.host}/other:1")
    planned = publish_image(plan, other, dry_run=True, progress=steps)
    assert (steps.seen, len(planned.sent)) == ([], 8)
    publish_image(plan, other, progress=steps)
    assert len([step for step in steps.seen if step.startswith("pack ")]) == 7
    assert Image(registry, "other").files() == Image(registry).files()


def test_texts_with_passwords_are_left_out_and_named(registry, plan, project, address):
    (project.repository / "late/requirements.txt").write_text("--index-url https://me:word@index.example/\n")
    (project.repository / "late/python3.8/pip.cfg").write_text("https://me:word@index.example/\n")
    assert files_with_credentials(plan) == ("late/requirements.txt",)
    published = publish_image(plan, address)
    assert published.cautions == ("late/requirements.txt contains credentials and is left out",)
    assert not [name for name in Image(registry).files() if name.endswith("requirements.txt")]


def test_an_image_with_too_many_layers_is_refused(plan, address, monkeypatch):
    monkeypatch.setattr(image_publication, "_MOST_LAYERS", 6)
    with pytest.raises(
        InputError, match="the image would have 7 layers of models besides those of its base image"
    ) as raised:
        publish_image(plan, address)
    assert raised.value.kind == "too-many-layers"
    monkeypatch.setattr(image_publication, "_MOST_LAYERS", 7)
    publish_image(plan, address)


# Base images


def base_of(registry, name="base", architecture=ARCHITECTURE, *, history=True, put=True, **changes):
    """Put an image with one layer there, as another program would; returns its address."""
    layer, blobs = b"a layer of the base", {}
    config = {
        "architecture": architecture,
        "os": "linux",
        "created": "2020-01-01T00:00:00Z",
        "config": {"Env": ["PATH=/bin"], "Cmd": ["sh"], "User": "triton"},
        "rootfs": {"type": "layers", "diff_ids": ["sha256:" + "d" * 64]},
        **({"history": [{"created_by": "somebody"}]} if history else {}),
        **changes.pop("config", {}),
    }
    for content in (layer, encoded(config)):
        blobs[client.digest_of(content)] = content
    entries = [Descriptor.of("application/vnd.oci.image.layer.v1.tar+gzip", layer).to_json()]
    entries[0]["annotations"] = {CONTENT: "of another image"}
    document = {
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "config": Descriptor.of("application/vnd.oci.image.config.v1+json", encoded(config)).to_json(),
        "layers": entries,
        **changes,
    }
    content = encoded(document)
    registry.manifests[name, client.digest_of(content)] = content
    registry.blobs |= {(name, digest): blob for digest, blob in blobs.items()}
    return parse_image_address(f"{registry.host}/{name}@{client.digest_of(content)}")


def test_layers_go_on_top_of_a_base_image(registry, plan, address):
    base = base_of(registry)
    published = publish_image(plan, address, base=base)
    image = Image(registry)
    assert image.titles[0] == "", "the layer of the base image is no model"
    assert "annotations" not in image.manifest["layers"][0]
    assert published.unchanged == 1, "the registry shares it"
    assert not [title for title in published.sent if title.startswith("base")]
    assert len(published.layers) == 7
    config = image.config
    assert config["config"] == {
        "Env": ["PATH=/bin", "PYTHONNOUSERSITE=1"],
        "Cmd": ["tritonserver", "--model-repository=/models"],
        "User": "triton",
    }
    assert config["rootfs"]["diff_ids"][0] == "sha256:" + "d" * 64
    assert len(config["rootfs"]["diff_ids"]) == len(config["history"]) == 8
    assert config["history"][0] == {"created_by": "somebody"}
    assert "created" not in config
    assert image.manifest["annotations"] == {
        "org.opencontainers.image.base.name": base.name,
        "org.opencontainers.image.base.digest": base.digest,
    }
    files = {name for number in range(1, 8) for name in image.layer(number)}
    assert {"models/early/1/model.py", "opt/tritonserver/backends/python_3_8", f"opt/envpack/{MANIFEST_NAME}"} <= files
    second = publish_image(plan, address, base=base)
    assert (second.sent, second.unchanged) == ((), 8)


def test_a_base_image_without_history_gives_an_image_without(registry, plan, address):
    publish_image(plan, address, base=base_of(registry, history=False))
    assert "history" not in Image(registry).config


def test_layers_of_a_base_image_that_cannot_be_shared_are_copied(registry, plan, address):
    with memory_registry() as other:
        base = base_of(other)
        planned = publish_image(plan, address, base=base, dry_run=True)
        assert registry.writes() == []
        steps = Steps()
        published = publish_image(plan, address, base=base, progress=steps)
    title = f"base image {client.digest_of(b'a layer of the base')[7:19]}"
    assert title in published.sent
    assert planned.sent == published.sent
    assert planned.size == published.size
    assert f"fetch {title}: 0.0 MB" in steps.seen
    assert f"send {title}: 0.0 MB" in steps.seen
    assert b"a layer of the base" in registry.stored("team/models").values()


def test_the_layers_of_the_base_image_count(registry, plan, address, monkeypatch):
    monkeypatch.setattr(image_publication, "_MOST_LAYERS", 7)
    with pytest.raises(InputError, match="7 layers of models besides those of its base image") as raised:
        publish_image(plan, address, base=base_of(registry))
    assert raised.value.kind == "too-many-layers"


BAD_BASES = {
    "it is for linux/other, and the models are for": {"architecture": "other"},
    "it is for windows/": {"config": {"os": "windows"}},
    "it has layers that cannot be copied": {"config": {"rootfs": {"diff_ids": []}}},
    "it is no image that a container can be made from": {"config": {"rootfs": {}}},
}


def test_base_images_that_do_not_fit_are_refused(registry, plan, address):
    for reason, changes in BAD_BASES.items():
        with pytest.raises(InputError, match=f"this base image cannot be used: {reason}") as raised:
            publish_image(plan, address, base=base_of(registry, **changes))
        assert raised.value.kind == "bad-base-image"
    foreign = [{"mediaType": "application/x", "digest": client.digest_of(b"a layer of the base"), "size": 19}]
    with pytest.raises(InputError, match="it has layers that cannot be copied"):
        publish_image(plan, address, base=base_of(registry, layers=foreign))
    absent = parse_image_address(f"{registry.host}/base@sha256:{'0' * 64}")
    with pytest.raises(InputError, match="the registry does not have it"):
        publish_image(plan, address, base=absent)
    registry.manifests["base", client.digest_of(b"[]")] = b"[]"
    with pytest.raises(InputError, match="it is no image"):
        publish_image(plan, address, base=parse_image_address(f"{registry.host}/base@{client.digest_of(b'[]')}"))
    assert registry.writes() == []


def test_of_an_index_the_image_for_the_models_is_taken(registry, plan, address):
    good, other = base_of(registry), base_of(registry, architecture="other")

    def index(*entries):
        manifests = [
            {
                "mediaType": MANIFEST,
                "digest": found.digest,
                "size": 1,
                "platform": {"os": "linux", "architecture": name},
            }
            for found, name in entries
        ]
        content = encoded({"schemaVersion": 2, "mediaType": INDEX, "manifests": manifests})
        registry.manifests["base", client.digest_of(content)] = content
        return parse_image_address(f"{registry.host}/base@{client.digest_of(content)}")

    whole = index((other, "other"), (good, ARCHITECTURE))
    publish_image(plan, address, base=whole)
    assert Image(registry).manifest["annotations"]["org.opencontainers.image.base.digest"] == whole.digest
    for base in (
        index((other, "other")),
        index((parse_image_address(f"{registry.host}/base@sha256:{'0' * 64}"), ARCHITECTURE)),
    ):
        with pytest.raises(InputError, match=f"it has no image for linux/{ARCHITECTURE}"):
            publish_image(plan, address, base=base)


# Reading images


def pulled(address, folder, **options):
    folder.mkdir()
    steps = Steps()
    return pull_image(address, folder, steps, **options), steps


def test_a_pulled_image_is_the_repository_again(registry, plan, address, tmp_path):
    published = publish_image(plan, address)
    found, steps = pulled(address, tmp_path / "pulled")
    assert (found.image, found.models, found.backends) == (
        published.image,
        tmp_path / "pulled/models",
        tmp_path / "pulled/backends",
    )
    assert (found.models / "late/python3.8/bin/.hidden").read_text() == "activate"
    assert os.access(found.models / "late/triton_python_backend_stub", os.X_OK)
    assert (found.backends / "python_3_8/triton_python_backend_stub").read_bytes() == b"\x7fELF"
    total = sum(layer["size"] for layer in published.layers)
    assert steps.bytes[-1] == (total, total)
    assert not list(tmp_path.glob("*.layer")), "nothing of a layer may stay"


def test_the_models_of_a_based_image_are_pulled_without_its_base(registry, plan, address, tmp_path):
    publish_image(plan, address, base=base_of(registry))
    found, _ = pulled(address, tmp_path / "pulled")
    assert (found.models, found.backends) == (
        tmp_path / "pulled/models",
        tmp_path / "pulled/opt/tritonserver/backends",
    )
    assert (found.models / "early/1/model.py").read_text() == "code"


def test_an_image_without_models_is_refused(registry, plan, address, tmp_path):
    cases = {
        "the registry does not have it": None,
        "envpack did not publish it": registry.manifests["base", base_of(registry, layers=[]).digest],
        "it is no document of the OCI image specification": b"[]",
    }
    for number, (reason, content) in enumerate(cases.items()):
        if content is not None:
            registry.manifests["team/models", "1"] = content
        with pytest.raises(InputError, match=f"no models can be read from this image: {reason}") as raised:
            pulled(address, tmp_path / str(number))
        assert raised.value.kind == "image-without-models"
        assert raised.value.where == f"oci://{address}"


def damaged(registry, plan, address, change):
    """Publish an image whose last layer, the manifest, is another one."""
    publish_image(plan, address, base=base_of(registry))
    image = Image(registry)
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, content in change.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    content = gzip.compress(buffer.getvalue())
    entry = {**Descriptor.of("application/vnd.oci.image.layer.v1.tar+gzip", content).to_json()}
    entry["annotations"] = {CONTENT: "manifest"}
    registry.blobs["team/models", entry["digest"]] = content
    document = {**image.manifest, "layers": [*image.manifest["layers"][:-1], entry]}
    registry.manifests["team/models", "1"] = encoded(document)


def test_an_image_whose_manifest_is_damaged_is_refused(registry, plan, address, tmp_path):
    place = f"opt/envpack/{MANIFEST_NAME}"
    cases = {
        f"it has no {MANIFEST_NAME}": {"other": b""},
        f"its {MANIFEST_NAME} is damaged": {place: b"{}"},
        f"its {MANIFEST_NAME} names a folder that it does not have": {place: b'{"served_from": "/absent"}'},
    }
    for number, (reason, files) in enumerate(cases.items()):
        damaged(registry, plan, address, files)
        with pytest.raises(InputError, match=f"no models can be read from this image: {reason}"):
            pulled(address, tmp_path / f"image{number}")
    damaged(registry, plan, address, {place: b'{"served_from": "/opt/../.."}'})
    with pytest.raises(InputError, match="names a folder that it does not have"):
        pulled(address, tmp_path / "above")


def test_a_layer_that_is_not_what_was_sent_is_not_unpacked(registry, plan, address, tmp_path):
    publish_image(plan, address)
    layer = Image(registry).manifest["layers"][0]["digest"]
    registry.blobs["team/models", layer] = registry.blobs["team/models", layer][:-1] + b"x"
    with pytest.raises(StorageError) as raised:
        pulled(address, tmp_path / "pulled")
    assert raised.value.kind == "registry-corrupt"
    assert not [path for path in (tmp_path / "pulled").rglob("*") if path.is_file()]


# Signatures


@pytest.fixture
def keys(tmp_path):
    private, public = write_pair(tmp_path)
    other = write_pair(tmp_path, "other")[1]
    return read_signing_key(private), read_public_key(public), read_public_key(other)


def refused(address, key, tmp_path, reason):
    place = tmp_path / "refused"
    place.mkdir(exist_ok=True)
    with pytest.raises(InputError, match=reason) as raised:
        pull_image(address, place, NoProgress(), key=key)
    assert raised.value.kind == "signature-invalid"
    assert list(place.iterdir()) == []


@pytest.mark.parametrize("lists", [False, True])
def test_a_signature_is_attached_and_required(registry, plan, project, address, keys, tmp_path, lists):
    key, right, wrong = keys
    registry.lists_referrers = lists
    first = publish_image(plan, address)
    refused(address, right, tmp_path, "there is no valid signature: the image has none")
    assert publish_image(plan, address, key=key, dry_run=True).sent == ("signature",)
    refused(address, right, tmp_path, "the image has none")
    signed = publish_image(plan, address, key=key)
    assert (signed.sent, signed.image) == (("signature",), first.image)
    assert publish_image(plan, address, key=key).sent == ()
    pulled(address, tmp_path / "pulled", key=right)
    refused(address, wrong, tmp_path, "another key signed it")
    (artifact,) = (
        json.loads(content)
        for (_, reference), content in registry.manifests.items()
        if "subject" in json.loads(content) and reference.startswith("sha256:")
    )
    assert artifact["subject"] == {
        "mediaType": MANIFEST,
        "digest": digest(first.image),
        "size": len(Image(registry).content),
    }
    assert (artifact["artifactType"], artifact["schemaVersion"]) == ("application/vnd.in-toto+json", 2)
    assert registry.blobs["team/models", artifact["config"]["digest"]] == b"{}"
    (layer,) = artifact["layers"]
    assert layer["mediaType"] == "application/vnd.dsse.envelope.v1+json"
    statement = json.loads(base64.b64decode(json.loads(registry.blobs["team/models", layer["digest"]])["payload"]))
    assert statement["subject"] == [{"name": address.name, "digest": {"sha256": digest(first.image)[7:]}}]
    build = statement["predicate"]["buildDefinition"]
    assert build["externalParameters"] == {"models": ["both", "early", "late"], "triton": "24.10"}
    size = layer["size"] + len(encoded(artifact))
    assert signed.size == size


def test_the_statement_about_another_image_does_not_count(registry, plan, project, address, keys, tmp_path):
    first = publish_image(plan, address, key=keys[0])
    (project.repository / "late/1/model.py").write_text("evil")
    second = publish_image(plan, address)
    tags = [digest(image).replace(":", "-") for image in (first.image, second.image)]
    registry.manifests["team/models", tags[1]] = registry.manifests["team/models", tags[0]]
    refused(address, keys[1], tmp_path, "the image has none")


def listed(*entries):
    return encoded({"schemaVersion": 2, "mediaType": INDEX, "manifests": list(entries)})


def test_of_several_artifacts_one_with_a_valid_signature_is_enough(registry, plan, address, keys, tmp_path):
    published = publish_image(plan, address, key=keys[0])
    tag = "team/models", digest(published.image).replace(":", "-")
    (good,) = json.loads(registry.manifests[tag])["manifests"]
    noise = {"mediaType": MANIFEST, "digest": digest(published.image), "size": 1}
    absent = {**noise, "digest": "sha256:" + "0" * 64}
    registry.manifests[tag] = listed(noise, absent, good)
    pulled(address, tmp_path / "pulled", key=keys[1])
    registry.manifests[tag] = listed(noise)
    refused(address, keys[1], tmp_path, "what is attached to the image is no statement")
    registry.manifests[tag] = listed({**good, "artifactType": "application/other"})
    refused(address, keys[1], tmp_path, "the image has none")
    registry.manifests[tag] = listed(*[noise] * 100, good)
    refused(address, keys[1], tmp_path, "is no statement")  # only so many are looked at


# Layers


def test_what_was_packed_is_remembered_until_a_file_changes(plan, project):
    memory = LayerMemory()
    layers = image_layers(plan, memory, based=False)
    packed = image_publication.PackedLayer("a" * 64, 5, "b" * 64)
    assert memory.packed(layers[0]) is None
    memory.remember(layers[0], packed)
    memory.save()
    again = LayerMemory()
    assert [again.packed(layer) for layer in layers[:2]] == [packed, None]
    (project.repository / "early/python3.8/bin/.hidden").write_text("other")
    os.utime(project.repository / "early/python3.8/bin/.hidden", ns=(0, 0))
    changed = image_layers(plan, again, based=False)
    assert again.packed(changed[0]) is None
    assert changed[0].title != layers[0].title


def test_a_memory_that_is_damaged_is_empty(plan, tmp_path):
    memory = LayerMemory()
    layer = image_layers(plan, memory, based=False)[0]
    memory.remember(layer, image_publication.PackedLayer("a" * 64, 5, "b" * 64))
    memory.save()
    (file,) = (tmp_path / "cache/publications").iterdir()
    known = json.loads(file.read_text())
    for content in ("{", "[]", json.dumps(dict.fromkeys(known, 5)), json.dumps(dict.fromkeys(known, [1, "x", 3]))):
        file.write_text(content)
        assert LayerMemory().packed(layer) is None


def test_a_folder_of_a_server_may_have_another_path(project, release, registry, address):
    plan = plan_deployment(project, backends_folder(project), release, served_from="/srv/m/")
    layers = image_layers(plan, LayerMemory(), based=True)
    (model,) = (layer for layer in layers if layer.title == "model early")
    assert [member.path for member in model.members][:3] == ["srv", "srv/m", "srv/m/early"]
    links = {member.path: member.target for member in model.members if member.kind == "link"}
    assert links["srv/m/early/python3.8"].startswith("../../../opt/envpack/environments/")
    assert layers[0].size == len("activate")
