"""Images in a registry in this process: what is in them, and images of others to put models on."""

import gzip
import io
import json
import os
import tarfile

from envpack.deployment.images.address import parse_image_address
from envpack.deployment.images.documents import MANIFEST, Descriptor, digest_of, encoded
from envpack.deployment.images.send import CONTENT

ARCHITECTURE = {"x86_64": "amd64", "aarch64": "arm64"}[os.uname().machine]


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


def digest_in(image):
    return image.partition("@")[2]


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
        blobs[digest_of(content)] = content
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
    registry.manifests[name, digest_of(content)] = content
    registry.blobs |= {(name, digest): blob for digest, blob in blobs.items()}
    return parse_image_address(f"{registry.host}/{name}@{digest_of(content)}")
