"""Models as an image in a registry: what is sent, and what the image holds."""

import gzip
import json
import tarfile

import pytest

from envpack.deployment.folder import MANIFEST_NAME
from envpack.deployment.images import send as image_publication
from envpack.deployment.images.address import parse_image_address
from envpack.deployment.images.documents import MANIFEST, digest_of
from envpack.deployment.images.layers import LayerMemory, image_layers
from envpack.deployment.images.send import publish_image
from envpack.deployment.objects import content as module
from envpack.deployment.plan import plan_deployment
from envpack.support.errors import InputError
from tests.steps import Steps

from .images import ARCHITECTURE, Image


@pytest.fixture
def settled(monkeypatch):
    """Files count as unchanged from the moment when they are written."""
    monkeypatch.setattr(module, "_SETTLED", 0)


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
    assert all(0 <= done <= total and unit == "bytes" for done, total, unit, _ in steps.advanced)
    assert (sizes[0], sizes[0], "bytes", 0) in steps.advanced


def test_the_configuration_of_the_image(registry, plan, address):
    published = publish_image(plan, address)
    image = Image(registry)
    assert published.image == f"{address.name}@sha256:{digest_of(image.content)[7:]}"
    assert (image.manifest["schemaVersion"], image.manifest["mediaType"]) == (2, MANIFEST)
    assert "annotations" not in image.manifest
    assert {layer["mediaType"] for layer in image.manifest["layers"]} == {"application/vnd.oci.image.layer.v1.tar+gzip"}
    config = image.config
    assert (config["os"], config["architecture"], config["config"]) == ("linux", ARCHITECTURE, {})
    assert config["rootfs"]["type"] == "layers"
    contents = [gzip.decompress(image._blobs[layer["digest"]]) for layer in image.manifest["layers"]]
    assert config["rootfs"]["diff_ids"] == [digest_of(content) for content in contents]
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


@pytest.mark.usefixtures("settled")
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
    published = publish_image(plan, address)
    (caution,) = published.cautions
    assert caution.startswith("late/requirements.txt is left out: line 1 ")
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


def test_a_folder_of_a_server_may_have_another_path(project, release, registry, address):
    plan = plan_deployment(project, served_from="/srv/m/")
    layers = image_layers(plan, LayerMemory(), based=True)
    (model,) = (layer for layer in layers if layer.title == "model early")
    assert [member.path for member in model.members][:3] == ["srv", "srv/m", "srv/m/early"]
    links = {member.path: member.target for member in model.members if member.kind == "link"}
    assert links["srv/m/early/python3.8"].startswith("../../../opt/envpack/environments/")
    assert layers[0].size == len("activate")
