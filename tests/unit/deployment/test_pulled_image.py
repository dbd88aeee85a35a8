"""Reading images: the models come back, and what is damaged or not signed is refused."""

import base64
import gzip
import io
import json
import os
import tarfile

import pytest

from envpack.deployment.folder import MANIFEST_NAME
from envpack.deployment.images import fetch as pulled_image, signature as image_signature
from envpack.deployment.images.documents import INDEX, MANIFEST, Descriptor, encoded
from envpack.deployment.images.fetch import pull_image
from envpack.deployment.images.send import CONTENT, publish_image
from envpack.deployment.signing import Trust, read_public_key, read_signing_key
from envpack.support.errors import InputError, StorageError
from envpack.support.progress import NoProgress
from tests.signing_keys import write_pair
from tests.steps import Steps

from .images import Image, base_of, digest_in


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
    assert steps.advanced[-1] == (total, total, "bytes", 0)
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


def test_the_content_of_layers_has_a_limit(registry, plan, address, tmp_path, monkeypatch):
    publish_image(plan, address)
    monkeypatch.setattr(pulled_image, "_MOST_CONTENT", 1 << 20)
    pulled(address, tmp_path / "pulled")
    monkeypatch.setattr(pulled_image, "_MOST_CONTENT", 100)
    with pytest.raises(InputError) as raised:
        pulled(address, tmp_path / "too large")
    assert raised.value.kind == "archive-bomb"


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
        pull_image(address, place, NoProgress(), trust=Trust((key,)))
    assert raised.value.kind == "signature-invalid"
    assert list(place.iterdir()) == []


@pytest.mark.parametrize("lists", [False, True])
def test_a_signature_is_attached_and_required(registry, plan, project, address, keys, tmp_path, lists):
    key, right, wrong = keys
    registry.lists_referrers = lists
    first = publish_image(plan, address)
    refused(address, right, tmp_path, "there is no valid signature: the image has none")
    assert publish_image(plan, address, keys=[key], dry_run=True).sent == ("signature",)
    refused(address, right, tmp_path, "the image has none")
    signed = publish_image(plan, address, keys=[key])
    assert (signed.sent, signed.image) == (("signature",), first.image)
    assert publish_image(plan, address, keys=[key]).sent == ()
    pulled(address, tmp_path / "pulled", trust=Trust((right,)))
    refused(address, wrong, tmp_path, "another key signed it")
    (artifact,) = (
        json.loads(content)
        for (_, reference), content in registry.manifests.items()
        if "subject" in json.loads(content) and reference.startswith("sha256:")
    )
    assert artifact["subject"] == {
        "mediaType": MANIFEST,
        "digest": digest_in(first.image),
        "size": len(Image(registry).content),
    }
    assert (artifact["artifactType"], artifact["schemaVersion"]) == ("application/vnd.in-toto+json", 2)
    assert registry.blobs["team/models", artifact["config"]["digest"]] == b"{}"
    (layer,) = artifact["layers"]
    assert layer["mediaType"] == "application/vnd.dsse.envelope.v1+json"
    statement = json.loads(base64.b64decode(json.loads(registry.blobs["team/models", layer["digest"]])["payload"]))
    assert statement["subject"] == [{"name": address.name, "digest": {"sha256": digest_in(first.image)[7:]}}]
    build = statement["predicate"]["buildDefinition"]
    where = {"address": f"oci://{address.name}"}
    assert build["externalParameters"] == {"models": ["both", "early", "late"], "triton": "24.10", **where}
    size = layer["size"] + len(encoded(artifact))
    assert signed.size == size


def test_a_statement_names_the_packages_of_all_environments_once(registry, plan, project, address, keys):
    wheel = {"name": "numpy", "version": "1.26.4", "url": "https://me:word@files.example/numpy.whl", "sha256": "a" * 64}
    tree = {"name": "tree", "version": "1"}
    for model, packages in {"early": [wheel, tree], "late": [wheel]}.items():
        metadata = project.repository / model / "python3.8/envpack-environment.json"
        metadata.write_text(json.dumps({"packages": packages}))
    publish_image(plan, address, keys=[keys[0]])
    envelope = next(content for content in registry.stored("team/models").values() if b"payloadType" in content)
    build = json.loads(base64.b64decode(json.loads(envelope)["payload"]))["predicate"]["buildDefinition"]
    assert build["resolvedDependencies"] == [
        {"name": "numpy 1.26.4", "uri": "https://files.example/numpy.whl", "digest": {"sha256": "a" * 64}},
        {"name": "tree 1"},
    ]


def test_the_statement_about_another_image_does_not_count(registry, plan, project, address, keys, tmp_path):
    first = publish_image(plan, address, keys=[keys[0]])
    (project.repository / "late/1/model.py").write_text("evil")
    second = publish_image(plan, address)
    tags = [digest_in(image).replace(":", "-") for image in (first.image, second.image)]
    registry.manifests["team/models", tags[1]] = registry.manifests["team/models", tags[0]]
    refused(address, keys[1], tmp_path, "it belongs to another image")


@pytest.mark.parametrize("lists", [False, True])
def test_the_newest_statements_count_however_many_there_are(
    registry, plan, address, keys, tmp_path, monkeypatch, lists
):
    registry.lists_referrers = lists
    monkeypatch.setattr(image_signature, "_MOST_ARTIFACTS", 2)
    now = 0.0
    monkeypatch.setattr(image_signature.time, "time", lambda: now)
    for day in range(5):
        now = day * 86400.0
        assert publish_image(plan, address, keys=[keys[0]]).sent[-1] == "signature"
        assert publish_image(plan, address, keys=[keys[0]]).sent == ()
    pulled(address, tmp_path / "pulled", trust=Trust((keys[1],), max_age=3600.0))


def listed(*entries):
    return encoded({"schemaVersion": 2, "mediaType": INDEX, "manifests": list(entries)})


def test_of_several_artifacts_one_with_a_valid_signature_is_enough(
    registry, plan, address, keys, tmp_path, monkeypatch
):
    published = publish_image(plan, address, keys=[keys[0]])
    tag = "team/models", digest_in(published.image).replace(":", "-")
    (good,) = json.loads(registry.manifests[tag])["manifests"]
    noise = {"mediaType": MANIFEST, "digest": digest_in(published.image), "size": 1}
    absent = {**noise, "digest": "sha256:" + "0" * 64}
    registry.manifests[tag] = listed(noise, absent, good)
    pulled(address, tmp_path / "pulled", trust=Trust((keys[1],)))
    registry.manifests[tag] = listed(noise)
    refused(address, keys[1], tmp_path, "what is attached to the image is no statement")
    registry.manifests[tag] = listed({**good, "artifactType": "application/other"})
    refused(address, keys[1], tmp_path, "the image has none")
    monkeypatch.setattr(image_signature, "_MOST_ARTIFACTS", 2)
    newer = {**noise, "annotations": {"org.opencontainers.image.created": "2999-01-01T00:00:00Z"}}
    registry.manifests[tag] = listed(good, newer, newer)  # only so many are looked at
    refused(address, keys[1], tmp_path, "what is attached to the image is no statement")
