"""Publishes models as an image in a registry, without a daemon: only layers that the registry lacks are sent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from envpack.archive.layer import PackedLayer, pack_layer
from envpack.archive.manifest import read_metadata
from envpack.deployment.content import texts_with_credentials
from envpack.deployment.images.address import ImageAddress
from envpack.deployment.images.documents import CONFIG, LAYER, MANIFEST, Descriptor, digest_of, encoded
from envpack.deployment.images.fetch import BaseImage, read_base
from envpack.deployment.images.layers import CONTENT, ImageLayer, LayerMemory, image_layers
from envpack.deployment.images.registry import Registry, connected
from envpack.deployment.images.signature import sign_image
from envpack.deployment.objects.content import packages_of
from envpack.deployment.plan import Deployment, server_arguments
from envpack.deployment.signing import SigningKey
from envpack.support.errors import InputError, storage_errors
from envpack.support.platforms import MACHINES, this_machine
from envpack.support.progress import SILENT, Progress, count_bytes
from envpack.support.temp_dirs import temp_dir

_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
_MOST_LAYERS = 127  # of overlayfs, as container runtimes use it
_TITLE = "org.opencontainers.image"


@dataclass(frozen=True)
class PublishedImage:
    """What `publish_image` did, or would do.

    Attributes:
        image: address of the image, with its digest.
        sent: what was sent, in order: the layers by their titles, and the manifest.
        unchanged: number of layers that the registry had.
        size: bytes that were sent.
        layers: title, digest and size of each layer, from the lowest to the highest, without those of the base image.
        cautions: warnings, one sentence each.
    """

    image: str
    sent: tuple[str, ...]
    unchanged: int
    size: int
    layers: tuple[Mapping[str, Any], ...]
    cautions: tuple[str, ...]


def publish_image(
    deployment: Deployment,
    address: ImageAddress,
    *,
    base: ImageAddress | None = None,
    dry_run: bool = False,
    keys: Sequence[SigningKey] = (),
    progress: Progress = SILENT,
) -> PublishedImage:
    """Make a registry have an image with models, under a tag.

    Args:
        deployment: what the image contains.
        address: where it is written; it has a tag.
        base: the image below, by its digest; none by default, for images that are mounted as a volume.
        dry_run: only determine what would be sent.
        keys: sign a statement about the image, which is attached to it.
        progress: receives the steps and bytes.

    Raises:
        InputError: a model contains something that cannot be published; kind ``bad-base-image``; kind
            ``too-many-layers``.
        StorageError: the registry cannot be used, or the disk is full.
    """
    memory = LayerMemory()
    layers = image_layers(deployment, memory, based=base is not None)
    with ExitStack() as open_until_end:
        registry = open_until_end.enter_context(connected(address))
        found = None
        if base is not None:
            source = open_until_end.enter_context(connected(base))
            found = read_base(source, _architecture(deployment))
        if len(layers) + (len(found.layers) if found else 0) > _MOST_LAYERS:
            raise _too_many(len(layers), address)
        folder = open_until_end.enter_context(temp_dir("image"))
        sending = _Sending(registry, folder, memory, dry_run=dry_run, progress=progress)
        packed = [sending.layer(layer) for layer in layers]
        memory.save()
        if base is not None and found is not None:
            for layer in found.layers:
                sending.base_layer(layer, source)
        own = [
            Descriptor(LAYER, f"sha256:{one.sha256}", one.size, annotations={CONTENT: layer.title})
            for one, layer in zip(packed, layers, strict=True)
        ]
        digest = sending.image(_config(deployment, layers, packed, found), _manifest_parts(own, found))
        if keys:
            sending.signature(digest, deployment, keys)
    left_out = texts_with_credentials(deployment)
    titles = [{"title": one.annotations[CONTENT], "digest": one.digest, "size": one.size} for one in own]
    return PublishedImage(
        f"{address.name}@{digest}",
        tuple(sending.sent),
        sending.unchanged,
        sending.size,
        tuple(titles),
        (*deployment.cautions, *left_out),
    )


class _Sending:
    def __init__(
        self, registry: Registry, folder: Path, memory: LayerMemory, *, dry_run: bool, progress: Progress
    ) -> None:
        self._registry = registry
        self._folder = folder
        self._memory = memory
        self._dry_run = dry_run
        self._progress = progress
        self.sent: list[str] = []
        self.unchanged = 0
        self.size = 0

    def layer(self, layer: ImageLayer) -> PackedLayer:
        """Send a layer unless the registry has it. It is packed only if its digest is not known, or if it is sent."""
        packed, file = self._memory.packed(layer), None
        if packed is None:
            packed, file = self._packed(layer)
        descriptor = Descriptor(LAYER, f"sha256:{packed.sha256}", packed.size)
        if self._registry.has_blob(descriptor):
            self.unchanged += 1
        else:
            if not self._dry_run:
                if file is None:
                    packed, file = self._packed(layer)
                    descriptor = Descriptor(LAYER, f"sha256:{packed.sha256}", packed.size)
                self._send(descriptor, file, layer.title)
            self._note(layer.title, packed.size)
        if file is not None:
            file.unlink()
        return packed

    def base_layer(self, layer: Descriptor, source: Registry) -> None:
        if self._registry.has_blob(layer):
            self.unchanged += 1
            return
        title = f"base image {layer.digest[7:19]}"
        if self._dry_run:
            self._note(title, layer.size)
            return
        if self._registry.mount_blob(layer, source.address):
            self.unchanged += 1
            return
        file = self._folder / "base"
        self._progress.begin(f"fetch {title}")
        source.save_blob(layer, file)
        self._progress.end(_megabytes(layer.size))
        self._send(layer, file, title)
        self._note(title, layer.size)
        file.unlink()

    def image(self, config: bytes, parts: Mapping[str, Any]) -> str:
        """Send configuration and manifest, the manifest last; returns its digest."""
        described = Descriptor.of(CONFIG, config)
        manifest = encoded({**parts, "config": described.to_json()})
        address = self._registry.address
        if self._registry.manifest(address.tag) == manifest:
            return digest_of(manifest)
        if not self._dry_run:
            self.small(described, config)
            self._registry.put_manifest(manifest, MANIFEST, address.tag)
        self._note("manifest of the image", len(manifest))
        return digest_of(manifest)

    def signature(self, digest: str, deployment: Deployment, keys: Sequence[SigningKey]) -> None:
        content = self._registry.manifest(digest) if not self._dry_run else None
        if content is None:
            self._note("signature", 0)
            return
        models = [model.name for model in deployment.models]
        packages = {(p["name"], p["uri"]): p for found in packages_of(deployment).values() for p in found}
        dependencies = [packages[name] for name in sorted(packages)]
        parameters = {"models": models, "triton": deployment.release.name}
        size = sign_image(self._registry, Descriptor.of(MANIFEST, content), parameters, dependencies, keys, self.small)
        if size:
            self._note("signature", size)

    def small(self, blob: Descriptor, content: bytes) -> None:
        if self._registry.has_blob(blob):
            return
        file = self._folder / "small"
        with storage_errors(file):
            file.write_bytes(content)
        self._registry.send_blob(blob, file)

    def _packed(self, layer: ImageLayer) -> tuple[PackedLayer, Path]:
        self._progress.begin(f"pack {layer.title}")
        file = self._folder / "layer"
        with storage_errors(file):
            packed = pack_layer(layer.members, file, count_bytes(self._progress, layer.size))
        self._memory.remember(layer, packed)
        self._progress.end(_megabytes(packed.size))
        return packed, file

    def _send(self, blob: Descriptor, file: Path, title: str) -> None:
        self._progress.begin(f"send {title}")
        self._registry.send_blob(blob, file, count_bytes(self._progress, blob.size))
        self._progress.end(_megabytes(blob.size))

    def _note(self, title: str, size: int) -> None:
        self.sent.append(title)
        self.size += size


def _config(
    deployment: Deployment, layers: Sequence[ImageLayer], packed: Sequence[PackedLayer], base: BaseImage | None
) -> bytes:
    """The configuration of the image: that of the base image, with the layers and the command that serves."""
    below: dict[str, Any] = dict(base.config) if base else {}
    settings = dict(below.get("config") or {})
    if base:
        settings["Env"] = [*(settings.get("Env") or []), "PYTHONNOUSERSITE=1"]
        settings["Cmd"] = list(server_arguments(deployment))
    history = [{"created_by": f"envpack publish: {layer.title}"} for layer in layers]
    document = {
        **{name: value for name, value in below.items() if name != "created"},
        "architecture": _architecture(deployment),
        "os": "linux",
        "config": settings,
        "rootfs": {
            "type": "layers",
            "diff_ids": [*(base.diff_ids if base else ()), *(f"sha256:{one.content_sha256}" for one in packed)],
        },
        "history": [*(below.get("history") or []), *history],
    }
    if base and not below.get("history"):
        del document["history"]  # which has an entry for each layer, or does not exist
    return encoded(document)


def _manifest_parts(own: Sequence[Descriptor], base: BaseImage | None) -> Mapping[str, Any]:
    """The manifest of the image without its configuration."""
    parts: dict[str, Any] = {
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "layers": [layer.to_json() for layer in (*(base.layers if base else ()), *own)],
    }
    if base:
        name, digest = base.address.name, base.address.digest
        parts["annotations"] = {f"{_TITLE}.base.name": name, f"{_TITLE}.base.digest": digest}
    return parts


def _architecture(deployment: Deployment) -> str:
    """The processor of the models' environments, as OCI names it; this machine's if there is none."""
    platforms = [
        read_metadata(model.environment).get("platform", "") for model in deployment.models if model.environment
    ]
    machine = next((MACHINES[platform] for platform in platforms if platform in MACHINES), this_machine())
    return _ARCHITECTURES[machine]


def _too_many(count: int, address: ImageAddress) -> InputError:
    what = (
        f"the image would have {count} layers of models besides those of its base image, and containers can have at "
        f"most {_MOST_LAYERS} in all"
    )
    return InputError("too-many-layers", what, "publish fewer models in one image", f"oci://{address}")


def _megabytes(size: int) -> str:
    return f"{size / 1e6:.1f} MB"
