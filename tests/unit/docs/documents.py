"""The documents of the repository, taken apart: links, anchors, code blocks, commands."""

import re
import shlex
import unicodedata
from dataclasses import dataclass
from pathlib import Path

from ci.docs import pages

CHECKOUT = Path(__file__).parents[3]
DOCUMENTS = sorted(
    [
        *(CHECKOUT / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "stub_src/README.md")),
        *(CHECKOUT / "docs").rglob("*.md"),
        *(CHECKOUT / "recipes").glob("*/README.md"),
    ]
)
NAMES = [str(document.relative_to(CHECKOUT)) for document in DOCUMENTS]
_FENCE = re.compile(r"^( *)```(\w*)[^\n]*\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
_PROGRAMS = ("envpack", "make", "python", "python3", "pytest", "ci/", "tests/", "bash")


@dataclass(frozen=True)
class Fence:
    """A fenced block: its language and its text."""

    language: str
    text: str


def read(name):
    return (CHECKOUT / name).read_text(encoding="utf-8")


def prose(name):
    """A document without its fenced blocks."""
    return _FENCE.sub("", read(name))


def fences(name):
    return [Fence(language, text) for _, language, text in _FENCE.findall(read(name))]


def links(name):
    """Targets of links and pictures within the repository: paths and anchors as written."""
    without_code = re.sub(r"`[^`\n]*`", "``", prose(name))
    targets = re.findall(r"\]\(([^)\s]+)\)", without_code)
    return [target for target in targets if not re.match(r"[a-z]+:", target)]


def anchors(name):
    """Anchors of the headings, as sites of code and mkdocs make them."""
    found = []
    for heading in re.findall(r"^#{1,6} (.+)$", pages.expand(prose(name)), re.MULTILINE):
        plain = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).replace("`", "")
        words = unicodedata.normalize("NFKD", plain).encode("ascii", "ignore").decode().lower()
        found.append(re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", words).strip()))
    return found


def commands(name):
    """Command lines that a reader may type, from blocks of code and from code within sentences."""
    found = []
    for fence in fences(name):
        found += _typed(fence)
    for block in re.findall(r"(?:^(?: {4,}|\t)\S.*\n?)+", prose(name), re.MULTILINE):
        found += [line.strip() for line in block.replace("\\\n", " ").splitlines()]
    found += [" ".join(code.split()) for code in re.findall(r"(?<!`)`([^`]+)`(?!`)", prose(name))]
    return [line for whole in found for line in _parts(whole) if line.startswith(_PROGRAMS)]


def _typed(fence):
    text = fence.text.replace("\\\n", " ")
    if fence.language == "console":
        return [line.removeprefix("$ ") for line in text.splitlines() if line.startswith("$ ")]
    if fence.language in {"sh", "bash"}:
        return text.splitlines()
    if fence.language == "yaml":
        return re.findall(r"run: (.+)", text)
    return []


def _parts(line):
    """The programs that one line of a shell runs."""
    line = re.sub(r"\s{2,}.*$", "", line)  # a remark beside it, in a column of its own
    inner = re.findall(r"\$\(([^)]*)\)", line)
    return [part.strip().removeprefix("(") for whole in [*inner, line] for part in re.split(r" && |\| | \|\| ", whole)]


def words(command):
    """The words of a command line, without redirections and variables."""
    command = re.sub(r"\$\{\{.*?\}\}", "VALUE", command)
    command = re.sub(r"\s(?:2?>|>>)\s*\S+", "", command).replace("…", "")
    return shlex.split(command, comments=True)
