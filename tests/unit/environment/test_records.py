"""Which wheels differ from their RECORD: uv installs files from its cache, where others may have changed them."""

import base64
import hashlib

import pytest

from envpack.environment.records import damaged_wheels
from tests.tables import every_row

SITE = "lib/python3.10/site-packages"


def digest(text):
    return "sha256=" + base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()


@pytest.fixture
def install(tmp_path):
    """Installs a wheel with texts by path, and further rows of its RECORD."""

    def wheel(name, files, *rows, installer="uv"):
        about = tmp_path / SITE / f"{name}-1.0.dist-info"
        about.mkdir(parents=True)
        for path, text in files.items():
            (tmp_path / SITE / path).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / SITE / path).write_text(text)
        listed = [f"{path},{digest(text)},{len(text)}" for path, text in files.items()]
        (about / "RECORD").write_text("\n".join([*listed, *rows]))
        (about / "INSTALLER").write_text(installer)

    return wheel


def test_a_changed_and_a_missing_file_name_their_wheels(install, tmp_path):
    install("good", {"good.py": "x", "../../../bin/good": "#!"}, "good-1.0.dist-info/RECORD,,")
    install("Has_Change", {"change.py": "x", "other.py": "y"})
    install("lacks", {"lacks/__init__.py": ""})
    assert damaged_wheels(tmp_path, "3.10") == frozenset()
    (tmp_path / SITE / "change.py").write_text("z")
    (tmp_path / SITE / "lacks/__init__.py").unlink()
    assert damaged_wheels(tmp_path, "3.10") == {"has-change", "lacks"}


def test_a_file_of_two_wheels_and_a_package_of_conda_are_not_compared(install, tmp_path):
    install("first", {"shared.py": "first"})
    install("second", {"shared.py": "second"})
    install("of-conda", {"conda.py": "x"}, installer="conda")
    (tmp_path / SITE / "conda.py").write_text("patched")
    assert damaged_wheels(tmp_path, "3.10") == frozenset()


@every_row("row", ["one-column", "two.py,", "md5.py,md5=x,1", "", '"a, b.py",,'])
def test_a_row_without_a_digest_says_nothing(tmp_path, row):
    record = tmp_path / SITE / "odd-1.0.dist-info/RECORD"
    record.parent.mkdir(parents=True, exist_ok=True)
    record.write_text(f"{row}\n")
    record.with_name("INSTALLER").write_text("uv")
    assert damaged_wheels(tmp_path, "3.10") == frozenset()


def test_a_row_that_names_no_file_is_damage(install, tmp_path):
    install("odd", {}, f"a\0b,{digest('')},0")
    assert damaged_wheels(tmp_path, "3.10") == {"odd"}
