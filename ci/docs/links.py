"""Links between documents of the repository, and addresses from which a page of the site loads something."""

from __future__ import annotations

import posixpath
import re
from html.parser import HTMLParser

# Files of the repository that are on the site beside docs/, each with its place there.
ELSEWHERE = {
    "CHANGELOG.md": "changes.md",
    "CONTRIBUTING.md": "contributing.md",
    "stub_src/README.md": "stub-source.md",
    "envpack/verification/verdict.schema.json": "reference/verdict.schema.json",
}
# Files that the build of the site makes, by their places there.
GENERATED = {"reference/envpack-toml.schema.json"}
_LINK = re.compile(r"(\]\()([^)\s#]+)(#[^)\s]*)?(\))")
_LOADS = {"script": "src", "img": "src", "iframe": "src", "source": "src", "link": "href"}
_NAVIGATION = {"canonical", "next", "prev"}


def relinked(text: str, source: str, place: str) -> str:
    """A document of the repository with its links as they must be on the site.

    Args:
        text: the document.
        source: its path in the repository.
        place: its path on the site.
    """

    def on_site(link: re.Match[str]) -> str:
        if re.match(r"[a-z]+:", link[2]):
            return link[0]
        target = posixpath.normpath(posixpath.join(posixpath.dirname(source), link[2]))
        there = "index.md" if target == "README.md" else ELSEWHERE.get(target) or target.removeprefix("docs/")
        return f"{link[1]}{posixpath.relpath(there, posixpath.dirname(place) or '.')}{link[3] or ''}{link[4]}"

    return _LINK.sub(on_site, text)


def loaded_from_elsewhere(html: str) -> list[str]:
    """Addresses of other hosts from which a page loads something; links that a reader may follow are none."""
    parser = _Loads()
    parser.feed(html)
    return parser.found


class _Loads(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        address = given.get(_LOADS.get(tag, "")) or ""
        if re.match(r"(https?:)?//", address) and given.get("rel") not in _NAVIGATION:
            self.found.append(address)
