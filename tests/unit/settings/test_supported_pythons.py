"""Every text that names the range of supported Pythons names that of the table."""

import re
from pathlib import Path

from envpack.settings.pythons import SUPPORTED

CHECKOUT = Path(__file__).parents[3]
RANGE = re.compile(r"\b(3\.\d+)\s+to\s+(3\.\d+)\b")
MENTIONS = ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "docs/index.md", "docs/reference/model-api.md")


def ranges():
    """The ranges in each text, by file."""
    files = [CHECKOUT / "README.md", CHECKOUT / "CHANGELOG.md", CHECKOUT / "CONTRIBUTING.md"]
    for folder in ("docs", "stub_src", "recipes", "ci", "envpack"):
        files += [file for file in sorted((CHECKOUT / folder).rglob("*")) if file.suffix in {".md", ".py"}]
    found = {str(file.relative_to(CHECKOUT)): set(RANGE.findall(file.read_text(encoding="utf-8"))) for file in files}
    return {file: ends for file, ends in found.items() if ends}


def test_the_oldest_and_the_newest_python_are_the_same_everywhere():
    found = ranges()
    assert set(MENTIONS) <= found.keys()
    assert {file: ends for file, ends in found.items() if ends != {(SUPPORTED[0], SUPPORTED[-1])}} == {}
