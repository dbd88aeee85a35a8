"""Every link in the documentation leads to a file of the repository, and to a heading that is there."""

import os
import re
from pathlib import Path

from ci.docs import links as site_links
from tests.tables import every_row
from tests.unit.docs.documents import CHECKOUT, NAMES, anchors, links, read


@every_row("name", NAMES)
def test_links_lead_somewhere(name):
    broken = []
    for link in links(name):
        path, _, anchor = link.partition("#")
        target = os.path.normpath(Path(name).parent / path) if path else name
        if target.removeprefix("docs/") in site_links.GENERATED:
            continue
        if not (CHECKOUT / target).exists() or (anchor and anchor not in anchors(target)):
            broken.append(link)
    assert broken == []


@every_row("name", NAMES)
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


@every_row(
    ("link", "source", "place", "on_site"),
    [
        ("../explanation/stub.md#more", "docs/guides/ci.md", "guides/ci.md", "../explanation/stub.md#more"),
        ("../../CONTRIBUTING.md#rules", "docs/guides/ci.md", "guides/ci.md", "../contributing.md#rules"),
        ("../../stub_src/README.md", "docs/guides/ci.md", "guides/ci.md", "../stub-source.md"),
        ("docs/guides/gpu.md", "CHANGELOG.md", "changes.md", "guides/gpu.md"),
        ("../docs/guides/gpu.md", "stub_src/README.md", "stub-source.md", "guides/gpu.md"),
        ("https://example.org/x.md", "CHANGELOG.md", "changes.md", "https://example.org/x.md"),
    ],
)
def test_links_lead_to_the_same_document_on_the_site(link, source, place, on_site):
    assert site_links.relinked(f"[a]({link})", source, place) == f"[a]({on_site})"


@every_row(
    ("html", "found"),
    [
        ('<script src="https://cdn.example/x.js"></script>', ["https://cdn.example/x.js"]),
        ('<link rel="stylesheet" href="//fonts.example/a.css">', ["//fonts.example/a.css"]),
        ('<img src="images/a.svg"><script src="assets/x.js"></script>', []),
        ('<a href="https://example.org">a link</a><link rel="canonical" href="https://docs.example">', []),
    ],
)
def test_what_a_page_loads_from_elsewhere_is_found(html, found):
    assert site_links.loaded_from_elsewhere(html) == found
