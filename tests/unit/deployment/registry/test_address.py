"""Addresses of images: what is read, and what is refused before anything is connected."""

import pytest

from envpack.deployment.images.address import parse_image_address
from envpack.support.errors import UsageError
from tests.tables import every_row

DIGEST = "sha256:" + "0" * 64


@every_row(
    ("text", "registry", "repository", "reference"),
    [
        ("oci://registry.example/team/models:1", "registry.example", "team/models", "1"),
        ("oci://registry.example:5000/models:1.2-b_3", "registry.example:5000", "models", "1.2-b_3"),
        ("localhost/models:1", "localhost", "models", "1"),
        ("registry.example:5000/t/models:1", "registry.example:5000", "t/models", "1"),
        (f"oci://registry.example/models@{DIGEST}", "registry.example", "models", DIGEST),
        (f"oci://registry.example/models:1@{DIGEST}", "registry.example", "models", DIGEST),
        ("oci://[::1]:5000/models:1", "[::1]:5000", "models", "1"),
        ("oci://docker.io/busybox:1", "docker.io", "library/busybox", "1"),
    ],
)
def test_parts_of_an_address(text, registry, repository, reference):
    address = parse_image_address(text)
    assert (address.registry, address.repository, address.reference) == (registry, repository, reference)


def test_docker_hub_answers_under_another_name():
    assert parse_image_address("docker.io/team/models:1").host == "registry-1.docker.io"


@every_row(
    ("registry", "local"),
    [
        *(
            ("localhost", True),
            ("localhost:5000", True),
            ("127.0.0.1:5000", True),
            ("127.1.2.3", True),
            ("[::1]", True),
        ),
        *(("localhost.example", False), ("registry.example:5000", False), ("[2001:db8::1]:5000", False)),
    ],
)
def test_only_this_machine_may_be_without_tls(registry, local):
    assert parse_image_address(f"{registry}/models:1").is_local == local


@every_row(
    ("text", "options"),
    [
        *((text, {}) for text in ("oci://", "oci://models:1", "oci://team/models:1", "oci://registry.example/models")),
        *((f"oci://registry.example/{name}", {}) for name in (":1", "Models:1", "a//b:1", "../b:1", "a:", "a:b:c")),
        *((f"oci://registry.example/a@{text}", {}) for text in ("", "sha256:1", "md5:0", DIGEST + "0")),
        ("oci://registry.example/models:1", {"pinned": True}),
        (f"oci://registry.example/models:1@{DIGEST}", {"tagged": True}),
        ("oci://registry.example:port/models:1", {}),
    ],
)
def test_other_forms_are_refused(text, options):
    with pytest.raises(UsageError) as raised:
        parse_image_address(text, **options)
    assert raised.value.kind == "bad-image-address"


def test_an_account_in_an_address_is_refused_and_not_shown():
    with pytest.raises(UsageError) as raised:
        parse_image_address("oci://me:word@registry.example/models:1")
    assert raised.value.kind == "bad-image-address"
    assert "word" not in str(raised.value)
