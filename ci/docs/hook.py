"""What mkdocs runs while it builds the site; mkdocs.yml names this file.

Pages outside of docs/ join the site, links to them follow, marked parts are generated from the code, and a build whose
pages load anything from elsewhere fails.
"""

from __future__ import annotations

import posixpath
import re
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files

CHECKOUT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(CHECKOUT))

from ci.docs import pages  # noqa: E402

# Files of the repository that are on the site too, each with its place there.
ELSEWHERE = {
    "CHANGELOG.md": "changes.md",
    "CONTRIBUTING.md": "contributing.md",
    "stub_src/README.md": "stub-source.md",
    "envpack/verification/verdict.schema.json": "reference/verdict.schema.json",
}
_LINK = re.compile(r"(\]\()([^)\s#]+)(#[^)\s]*)?(\))")
_LOADS = {"script": "src", "img": "src", "iframe": "src", "source": "src", "link": "href"}


def on_files(files: Files, config: Any) -> Files:
    for source, place in ELSEWHERE.items():
        text = (CHECKOUT / source).read_text(encoding="utf-8")
        files.append(File.generated(config, place, content=_relinked(text, source, place)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    place = page.file.src_uri
    if place in ELSEWHERE.values():
        return markdown
    return pages.expand(_relinked(markdown, f"docs/{place}", place))


def _relinked(text: str, source: str, place: str) -> str:
    """Links between files of the repository as links between pages of the site."""

    def on_site(link: re.Match[str]) -> str:
        if re.match(r"[a-z]+:", link[2]):
            return link[0]
        target = posixpath.normpath(posixpath.join(posixpath.dirname(source), link[2]))
        there = ELSEWHERE.get(target) or target.removeprefix("docs/")
        if target == "README.md":
            there = "index.md"
        path = posixpath.relpath(there, posixpath.dirname(place) or ".")
        return f"{link[1]}{path}{link[3] or ''}{link[4]}"

    return _LINK.sub(on_site, text)


class _Loads(HTMLParser):
    """Collects the addresses of other hosts from which a page loads something."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        address = given.get(_LOADS.get(tag, ""), "") or ""
        if re.match(r"(https?:)?//", address) and given.get("rel") not in {"canonical", "next", "prev"}:
            self.found.append(address)


def loads(html: str) -> list[str]:
    """Addresses of other hosts from which a page loads something."""
    parser = _Loads()
    parser.feed(html)
    return parser.found


def on_post_build(config: Any) -> None:
    site = Path(config["site_dir"])
    found = {address: page.name for page in site.rglob("*.html") for address in loads(page.read_text(encoding="utf-8"))}
    if found:
        message = f"pages load from elsewhere, and must work without a network: {found}"
        raise PluginError(message)
