"""Text from outside, as envpack shows it."""

import pytest

from envpack.support.text import printable


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain äöü 漢字 🙂\ttab\nline", "plain äöü 漢字 🙂\ttab\nline"),
        ("windows\r\nline", "windows\r\nline"),
        ("hidden\rVERDICT: yes", "hidden\\rVERDICT: yes"),
        ("\x00\x07\x08\x0b\x0c\x1b\x7f\x85\x9b", "\\x00\\x07\\x08\\x0b\\x0c\\x1b\\x7f\\x85\\x9b"),
        ("a\u2028b\u2029c\u202ed\u2066e\u061cf", "a\\u2028b\\u2029c\\u202ed\\u2066e\\u061cf"),
        ("name\udcff", "name\\udcff"),
    ],
)
def test_what_could_control_a_terminal_or_disguise_text_is_visible(text, shown):
    assert printable(text) == shown
    assert printable(shown) == shown
