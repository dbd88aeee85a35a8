"""The facts about releases are complete and typed."""

import pytest

from envpack.errors import UsageError
from envpack.releases import DEFAULT_RELEASE, all_releases, find_release


def test_the_default_release_is_known():
    release = find_release(DEFAULT_RELEASE)
    assert release.server == "2.51.0"
    assert release.python == "3.10"


@pytest.mark.parametrize("release", all_releases().values(), ids=lambda release: release.name)
def test_every_fact_has_its_type(release):
    for field, kind in type(release).__annotations__.items():
        assert type(getattr(release, field)).__name__ == kind, field
    assert release.image.endswith(f":{release.name}-py3")


def test_an_unknown_release_lists_the_known_ones():
    with pytest.raises(UsageError) as caught:
        find_release("19.99")
    assert DEFAULT_RELEASE in caught.value.hint
