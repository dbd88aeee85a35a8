"""Documents of the OCI image specification: read as they are, with Docker's own types, and refused if malformed."""

import json

import pytest

from envpack.deployment.images.documents import (
    INDEX,
    LAYER,
    MANIFEST,
    Descriptor,
    Image,
    digest_of,
    encoded,
    is_index,
    parse_image,
    parse_index,
)

DIGEST = "sha256:" + "0" * 64
DOCKER = "application/vnd.docker.distribution.manifest"
ENTRY = {"mediaType": LAYER, "digest": DIGEST, "size": 7, "annotations": {"b": "2", "a": "1"}, "artifactType": "t"}
IMAGE = {"schemaVersion": 2, "mediaType": MANIFEST, "config": ENTRY, "layers": [ENTRY, ENTRY]}
PLATFORM = {"os": "linux", "architecture": "amd64"}
LIST = {"schemaVersion": 2, "mediaType": INDEX, "manifests": [{**ENTRY, "platform": PLATFORM}, ENTRY]}
FOUND = Descriptor(LAYER, DIGEST, 7, "t", {"a": "1", "b": "2"})


def text(document, **changes):
    return json.dumps({**document, **changes}).encode()


def test_a_manifest_is_read():
    assert parse_image(text(IMAGE)) == Image(FOUND, (FOUND, FOUND))
    plain = {key: ENTRY[key] for key in ("mediaType", "digest", "size")}
    assert parse_image(text(IMAGE, config={**plain, "size": 0}, layers=[])).config == Descriptor(LAYER, DIGEST, 0)


def test_an_index_is_read():
    assert parse_index(text(LIST)) == ((FOUND, "linux/amd64"), (FOUND, ""))
    assert [is_index(text(document)) for document in (LIST, IMAGE)] == [True, False]
    for document, expected in ((LIST, True), (IMAGE, False)):  # the type may be missing
        untyped = {name: value for name, value in document.items() if name != "mediaType"}
        assert is_index(text(untyped)) == expected
    assert parse_index(text({name: value for name, value in LIST.items() if name != "mediaType"}))
    for content in (b"{", b"[]", b'"manifests"'):
        assert not is_index(content)


def test_dockers_types_stand_for_the_same():
    docker = {
        f"{DOCKER}.v2+json": MANIFEST,
        f"{DOCKER}.list.v2+json": INDEX,
        "application/vnd.docker.container.image.v1+json": "application/vnd.oci.image.config.v1+json",
        "application/vnd.docker.image.rootfs.diff.tar.gzip": LAYER,
        "application/other": "application/other",
    }
    for given, expected in docker.items():
        assert parse_image(text(IMAGE, config={**ENTRY, "mediaType": given})).config.media_type == expected
    assert parse_image(text(IMAGE, mediaType=f"{DOCKER}.v2+json"))
    assert parse_index(text(LIST, mediaType=f"{DOCKER}.list.v2+json"))
    assert is_index(text(LIST, mediaType=f"{DOCKER}.list.v2+json"))


def test_malformed_documents_are_refused():
    for content in (
        text(IMAGE, schemaVersion=1),
        text(IMAGE, mediaType=INDEX),
        text(IMAGE, layers=5),
        text(IMAGE, config={}),
        *(text(IMAGE, config={**ENTRY, **change}) for change in (
            {"size": -1}, {"size": "7"}, {"digest": "sha256:0"}, {"digest": 5}, {"digest": DIGEST + "0"},
        )),
        b"[]",
    ):  # fmt: skip
        with pytest.raises(ValueError, match=r"."):
            parse_image(content)
    for content in (text(LIST, manifests=5), text(LIST, mediaType=MANIFEST), text(LIST, manifests=[{}])):
        with pytest.raises(ValueError, match=r"."):
            parse_index(content)


def test_a_descriptor_is_written_in_one_form():
    assert json.dumps(FOUND.to_json()) == json.dumps(
        {"mediaType": LAYER, "digest": DIGEST, "size": 7, "artifactType": "t", "annotations": {"a": "1", "b": "2"}}
    )
    plain = Descriptor.of(LAYER, b"abc")
    assert plain.to_json() == {"mediaType": LAYER, "digest": digest_of(b"abc"), "size": 3}
    assert digest_of(b"abc") == "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    assert encoded({"b": 1, "a": [1, 2]}) == b'{"a":[1,2],"b":1}'
