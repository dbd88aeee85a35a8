"""What strangers may have written into a registry, and addresses of any content."""

import contextlib
import json

from hypothesis import given, strategies as st

from envpack.deployment.images.address import parse_image_address
from envpack.deployment.images.documents import INDEX, MANIFEST, is_index, parse_image, parse_index
from tests.hostile import damaged, hostile, read_or_refused, with_one_value_replaced

DESCRIPTOR = {
    "mediaType": "application/vnd.oci.image.layer.v1.tar+gzip",
    "digest": "sha256:" + "0" * 64,
    "size": 7,
    "annotations": {"a": "b"},
}
IMAGE = {
    "schemaVersion": 2,
    "mediaType": MANIFEST,
    "artifactType": "a",
    "config": DESCRIPTOR,
    "layers": [DESCRIPTOR],
    "subject": DESCRIPTOR,
    "annotations": {"a": "b"},
}
LIST = {
    "schemaVersion": 2,
    "mediaType": INDEX,
    "manifests": [{**DESCRIPTOR, "platform": {"os": "linux", "architecture": "amd64"}}],
}


def documents(good):
    text = json.dumps(good).encode()
    return with_one_value_replaced(good).map(json.dumps).map(lambda text: text.encode(errors="replace")) | damaged(text)


@hostile
@given(documents(IMAGE))
def test_manifests(content):
    is_index(content)
    with contextlib.suppress(ValueError):
        image = parse_image(content)
        assert all(layer.size >= 0 and len(layer.digest) == 71 for layer in image.layers)


@hostile
@given(documents(LIST))
def test_indexes(content):
    is_index(content)
    with contextlib.suppress(ValueError):
        parse_index(content)


@hostile
@given(st.text(max_size=60) | st.from_regex(r"oci://[a-z.:\[\]@]{1,20}/[a-zA-Z:@/._-]{1,30}", fullmatch=True))
def test_addresses(text):
    with read_or_refused():
        parse_image_address(text)
    with read_or_refused():
        parse_image_address(f"oci://registry.example/{text}", pinned=True)
