"""What a stub is compiled against is checked before the compiler sees it."""

import pytest

from envpack.errors import StubError
from envpack.stub import target_from_prefix


def test_a_prefix_without_libpython(tmp_path):
    with pytest.raises(StubError) as caught:
        target_from_prefix(tmp_path)
    assert caught.value.kind == "libpython-missing"


def test_a_prefix_without_headers(tmp_path):
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib/libpython3.9.so.1.0").touch()
    with pytest.raises(StubError) as caught:
        target_from_prefix(tmp_path)
    assert caught.value.kind == "headers-missing"
    assert "Python 3.9" in caught.value.message
