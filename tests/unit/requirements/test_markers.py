"""Markers without the terms that extras and the target decide."""

import pytest

from envpack.requirements.pip_requirement import reduced_marker
from envpack.requirements.target import Target
from tests.tables import every_row


@every_row(
    ("marker", "python", "extras", "left"),
    [
        ("", "", (), ""),
        ('extra == "a"', "", (), None),
        ('extra == "a"', "", ("A",), ""),
        ('"a" == extra', "", ("a",), ""),
        ('extra != "a"', "", (), ""),
        ('extra == "b" and extra != "a"', "", ("a", "b"), None),
        ('os_name == "extra"', "", ("extra",), None),
        ('sys_platform == "win32" and extra == "a" or platform_system == "Windows"', "", ("a",), None),
        ('sys_platform == "linux" and platform_machine != "aarch64"', "", (), ""),
        ('python_version < "3.11" and extra == "a"', "", ("a",), 'python_version < "3.11"'),
        ('python_version < "3.11" and extra == "a"', "3.10", ("a",), ""),
        ('python_version < "3.11" and extra == "a"', "3.11", ("a",), None),
        ('python_full_version < "3.11.3"', "3.11", (), 'python_full_version < "3.11.3"'),
        ('python_full_version < "3.11.3"', "3.11.2", (), ""),
        ('python_full_version < "3.11.3"', "3.11.3", (), None),
        ('platform_release >= "6"', "3.11", (), 'platform_release >= "6"'),
        (
            '(python_version < "3.9" or python_version > "3.12") and extra == "a" and platform_release >= "6"',
            "",
            ("a",),
            '(python_version < "3.9" or python_version > "3.12") and platform_release >= "6"',
        ),
    ],
)
def test_what_is_left_of_a_marker(marker, python, extras, left):
    assert reduced_marker(marker, Target(python=python), extras) == left


@every_row("marker", ["extra", "(" * 2000, 'python == "3"'])
def test_a_text_that_is_not_a_marker_is_an_error(marker):
    with pytest.raises(ValueError, match=r"\S"):
        reduced_marker(marker, Target())
