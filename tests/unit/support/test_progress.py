"""Progress as text."""

import pytest

from envpack.support.progress import format_advance


@pytest.mark.parametrize(
    ("advance", "text"),
    [
        ((120, 480, "files", 35_200_000), "120 of 480 files, 35.2 MB"),
        ((120, 480, "files", 0), "120 of 480 files"),
        ((7, 0, "wheels", 0), "7 wheels"),
        ((1_500_000, 3_000_000, "bytes", 0), "1.5 of 3.0 MB"),
        ((1_500_000, 0, "bytes", 0), "1.5 MB"),
    ],
)
def test_amounts_name_count_and_size_where_they_are_known(advance, text):
    *count, size = advance
    assert format_advance(*count, size=size) == text
