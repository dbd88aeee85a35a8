"""What mkdocs runs while it builds the site; mkdocs.yml names this file.

Pages outside of docs/ join the site, links to them follow, marked parts are generated from the code, and a build whose
pages load anything from elsewhere fails.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files

CHECKOUT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(CHECKOUT))

from ci.docs import links, pages, settings  # noqa: E402


def on_files(files: Files, config: Any) -> Files:
    for source, place in links.ELSEWHERE.items():
        text = (CHECKOUT / source).read_text(encoding="utf-8")
        files.append(File.generated(config, place, content=links.relinked(text, source, place)))
    schema = json.dumps(settings.schema(), indent=2)
    files.append(File.generated(config, "reference/envpack-toml.schema.json", content=schema))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    place = page.file.src_uri
    if place in links.ELSEWHERE.values():
        return markdown
    return pages.expand(links.relinked(markdown, f"docs/{place}", place))


def on_post_build(config: Any) -> None:
    site = Path(config["site_dir"])
    found = {
        address: page.name
        for page in site.rglob("*.html")
        for address in links.loaded_from_elsewhere(page.read_text(encoding="utf-8"))
    }
    if found:
        message = f"pages load from elsewhere, and must work without a network: {found}"
        raise PluginError(message)
