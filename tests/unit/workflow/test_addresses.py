"""Addresses of published models that other machines can read."""

import pytest

from envpack.support.errors import UsageError
from envpack.workflow.verify import check_published


@pytest.mark.parametrize(
    "address", ["s3://bucket/models", "gs://bucket/models", "oci://registry.example/team/models:1"]
)
def test_an_address_that_others_can_read(address):
    check_published(address)


@pytest.mark.parametrize(
    ("address", "kind"),
    [
        ("file:///models", "usage"),
        ("s3://", "bad-store-address"),
        ("oci://registry.example", "bad-image-address"),
        ("oci://registry.example/Team/models:1", "bad-image-address"),
    ],
)
def test_an_address_that_is_none_or_for_this_machine_only_is_refused(address, kind):
    with pytest.raises(UsageError) as refused:
        check_published(address)
    assert refused.value.kind == kind
