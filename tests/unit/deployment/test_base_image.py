"""Images on top of others: which base images can be used, and what is taken over from them."""

import pytest

from envpack.deployment.folder import MANIFEST_NAME
from envpack.deployment.images import send as image_publication
from envpack.deployment.images.address import parse_image_address
from envpack.deployment.images.documents import INDEX, MANIFEST, digest_of, encoded
from envpack.deployment.images.send import publish_image
from envpack.support.errors import InputError
from tests.memory_registry import memory_registry
from tests.steps import Steps

from .images import ARCHITECTURE, Image, base_of


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
    title = f"base image {digest_of(b'a layer of the base')[7:19]}"
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
    foreign = [{"mediaType": "application/x", "digest": digest_of(b"a layer of the base"), "size": 19}]
    with pytest.raises(InputError, match="it has layers that cannot be copied"):
        publish_image(plan, address, base=base_of(registry, layers=foreign))
    absent = parse_image_address(f"{registry.host}/base@sha256:{'0' * 64}")
    with pytest.raises(InputError, match="the registry does not have it"):
        publish_image(plan, address, base=absent)
    registry.manifests["base", digest_of(b"[]")] = b"[]"
    with pytest.raises(InputError, match="it is no image"):
        publish_image(plan, address, base=parse_image_address(f"{registry.host}/base@{digest_of(b'[]')}"))
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
        registry.manifests["base", digest_of(content)] = content
        return parse_image_address(f"{registry.host}/base@{digest_of(content)}")

    whole = index((other, "other"), (good, ARCHITECTURE))
    publish_image(plan, address, base=whole)
    assert Image(registry).manifest["annotations"]["org.opencontainers.image.base.digest"] == whole.digest
    for base in (
        index((other, "other")),
        index((parse_image_address(f"{registry.host}/base@sha256:{'0' * 64}"), ARCHITECTURE)),
    ):
        with pytest.raises(InputError, match=f"it has no image for linux/{ARCHITECTURE}"):
            publish_image(plan, address, base=base)
