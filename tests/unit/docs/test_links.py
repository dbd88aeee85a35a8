"""Every link in the documentation leads to a file of the repository, and to a heading that is there."""

import os
import re
from pathlib import Path

import pytest

from tests.unit.docs.documents import CHECKOUT, NAMES, anchors, links, read


@pytest.mark.parametrize("name", NAMES)
def test_links_lead_somewhere(name):
    broken = []
    for link in links(name):
        path, _, anchor = link.partition("#")
        target = os.path.normpath(Path(name).parent / path) if path else name
        if not (CHECKOUT / target).exists() or (anchor and anchor not in anchors(target)):
            broken.append(link)
    assert broken == []


@pytest.mark.parametrize("name", NAMES)
def test_no_heading_is_there_twice(name):
    found = anchors(name)
    assert sorted(found) == sorted(set(found))


def test_every_page_is_in_the_navigation():
    listed = set(re.findall(r"([\w/-]+\.md)$", read("mkdocs.yml"), re.MULTILINE))
    pages = {name.removeprefix("docs/") for name in NAMES if name.startswith("docs/")}
    assert pages <= listed


def test_messages_name_pages_that_are_there():
    named = {
        (file.relative_to(CHECKOUT), page)
        for file in [*(CHECKOUT / "envpack").rglob("*.py"), *(CHECKOUT / "ci").rglob("*.py")]
        for page in re.findall(r"\bdocs/[\w/-]+\.(?:md|svg)", file.read_text(encoding="utf-8"))
    }
    assert named
    assert [page for file, page in named if not (CHECKOUT / page).exists()] == []
