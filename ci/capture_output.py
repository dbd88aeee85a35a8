"""Refresh the command output in README.md and docs/ from real runs.

    python ci/capture_output.py                                    every page, and the picture of a verdict
    python ci/capture_output.py README.md docs/getting-started.md  these pages
    python ci/capture_output.py --list                             what would run

A page marks the blocks that this program owns with a comment on the line above the fence:

    <!-- capture SCENARIO -->             ```console: run each line that begins with "$ ", replace the rest
    <!-- capture SCENARIO exit=1 -->      the same; the last command must end with that status (default: 0)
    <!-- capture SCENARIO json COMMAND --> ```json: what COMMAND prints, each list cut to its first items
    <!-- file SCENARIO PATH -->           any fence: write its text to PATH, run nothing

The blocks of one scenario run in the order of the page, in one folder, which starts as `SCENARIOS` prepares it. The
commands of a page are those that run: nothing is in this file but the folders in which they start. Needs the checkout's
virtual environment with a Triton server in it (`make demo` makes one) and Python 3.8, 3.10 and 3.12.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[1]
BIN = Path(sys.executable).parent
HOME = "/home/you"
COLUMNS = 100
_MARK = re.compile(r"<!-- (capture|file) (\S+)(?: (.+?))? -->")
_TRAIN = (
    "source core/python3.10/bin/activate && python core/training/train.py && "
    "source preprocessing/python3.8/bin/activate && python core/training/write_samples.py"
)


class CaptureError(Exception):
    """A block that is not well-formed, or a command that did not end as its page says."""


@dataclass(frozen=True)
class Block:
    """A marked block of a page.

    Attributes:
        kind: ``"console"``, ``"json"`` or ``"file"``.
        scenario: name in `SCENARIOS`.
        argument: the command of a JSON block, the path of a file.
        status: how the last command must end.
        first: index of the first line between the fences.
        lines: the lines between the fences.
    """

    kind: str
    scenario: str
    argument: str
    status: int
    first: int
    lines: tuple[str, ...]

    @property
    def commands(self) -> list[str]:
        """The commands of the block, each as one string."""
        if self.kind == "json":
            return [self.argument]
        return [command for command, _ in _commands(self.lines)] if self.kind == "console" else []


def blocks(text: str, page: str) -> Iterator[Block]:
    """The marked blocks of a page, in order.

    Raises:
        CaptureError: a mark is not followed by a fence of its kind, or is not spelled as above.
    """
    lines = text.splitlines()
    for number, line in enumerate(lines):
        if not line.lstrip().startswith(("<!-- capture", "<!-- file")):
            continue
        where = f"{page}:{number + 1}"
        mark = _MARK.fullmatch(line)
        fence = re.fullmatch(r"```(\w+)(?: .*)?", lines[number + 1]) if number + 1 < len(lines) else None
        if not mark or not fence or "```" not in lines[number + 2 :]:
            raise CaptureError(f"{where}: a mark of capture_output.py stands alone on the line above a fenced block")
        end = lines.index("```", number + 2)
        block = _block(mark, fence[1], where)
        yield replace(block, first=number + 2, lines=tuple(lines[number + 2 : end]))


def _block(mark: re.Match[str], language: str, where: str) -> Block:
    what, scenario, rest = mark[1], mark[2], mark[3] or ""
    if scenario not in SCENARIOS:
        raise CaptureError(f"{where}: unknown scenario {scenario}; there are {', '.join(SCENARIOS)}")
    if what == "file":
        if not rest or Path(rest).is_absolute() or ".." in Path(rest).parts:
            raise CaptureError(f"{where}: a file is named by a path inside its scenario, not {rest!r}")
        return Block("file", scenario, rest, 0, 0, ())
    if rest.startswith("json ") and language == "json":
        return Block("json", scenario, rest.removeprefix("json "), 0, 0, ())
    status = re.fullmatch(r"exit=(\d+)", rest)
    if language != "console" or (rest and not status):
        raise CaptureError(f"{where}: a console block takes exit=N at most, a json block the command")
    return Block("console", scenario, "", int(status[1]) if status else 0, 0, ())


def _commands(lines: tuple[str, ...]) -> list[tuple[str, list[str]]]:
    """Each command of a console block, with the lines in which the page writes it."""
    found: list[tuple[str, list[str]]] = []
    continued = False
    for line in lines:
        if continued:
            found[-1][1].append(line)
        elif line.startswith("$ "):
            found.append((line, [line]))
        continued = (continued or line.startswith("$ ")) and line.endswith("\\")
    return [("\n".join(written).removeprefix("$ "), written) for _, written in found]


class Folder:
    """Where the commands of one scenario run."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.current = root
        self.variables = {
            **os.environ,
            "PATH": f"{BIN}:{os.environ['PATH']}",
            "COLUMNS": str(COLUMNS),
            "ENVPACK_CACHE_DIR": str(root / ".cache/envpack"),
        }
        for name in ("VIRTUAL_ENV", "PYTHONPATH"):
            self.variables.pop(name, None)

    def run(self, command: str) -> tuple[int, str, str]:
        """Run a command in a shell that starts where the last one ended: its status, its output, its errors."""
        with tempfile.NamedTemporaryFile("r") as ended_in:
            script = f"trap 'pwd > {ended_in.name}' EXIT\n{command}\n"
            done = subprocess.run(
                ["bash", "-c", script],
                cwd=self.current,
                env=self.variables,
                capture_output=True,
                text=True,
                check=False,
            )
            self.current = Path(ended_in.read().strip() or self.current)
        return done.returncode, done.stdout, done.stderr

    def run_together(self, command: str) -> tuple[int, str]:
        """The same, with output and errors in the order in which a terminal shows them."""
        status, output, _ = self.run(f"exec 2>&1\n{command}")
        return status, output

    def neutral(self, text: str) -> str:
        """Text without what only this machine has: folders, trailing blanks, and lines that a terminal replaces."""
        index = os.environ.get("UV_INDEX_URL") or os.environ.get("PIP_INDEX_URL")
        for here, there in (
            (str(self.root), HOME),
            (str(BIN.parent), f"{HOME}/.venv"),
            (str(CHECKOUT), f"{HOME}/envpack"),
            (str(Path.home()), HOME),
            *([(index, "https://index.example/simple")] if index else []),
        ):
            text = text.replace(here, there)
        lines = (line.rstrip() for line in text.strip("\n").splitlines())
        return "\n".join(line for line in lines if not line.endswith(" s so far"))


@dataclass(frozen=True)
class Scenario:
    """A folder in which blocks run.

    Attributes:
        what: what it holds at the start.
        prepare: puts it there.
        shared: whether all pages of a run share one folder, since preparing it takes minutes; their commands must not
            depend on each other's.
    """

    what: str
    prepare: Callable[[Folder], None]
    shared: bool = False


def _must(folder: Folder, *commands: str) -> None:
    for command in commands:
        status, output = folder.run_together(command)
        if status:
            raise CaptureError(f"preparing: {command} ended with {status}:\n{output}")


def _digits(folder: Folder) -> None:
    _must(folder, "envpack init --recipe digits models", "cd models")


def _digits_built(folder: Folder) -> None:
    _digits(folder)
    _must(folder, "envpack build", _TRAIN)


SCENARIOS = {
    "empty": Scenario("nothing", lambda _: None),
    "digits": Scenario("the recipe digits, an empty cache", _digits),
    "built": Scenario("the recipe digits, built and trained", _digits_built, shared=True),
    "tutorial": Scenario("nothing, for docs/getting-started.md", lambda _: None),
}


def refresh(text: str, page: str, folders: Path, shared: dict[str, Folder]) -> str:
    """A page with the output of today in its blocks."""
    lines = text.splitlines()
    opened = dict(shared)
    shift = 0
    for block in blocks(text, page):
        if block.scenario not in opened:
            print(f"{page}: scenario {block.scenario}: {SCENARIOS[block.scenario].what}", flush=True)
            opened[block.scenario] = _open(block.scenario, folders)
            if SCENARIOS[block.scenario].shared:
                shared[block.scenario] = opened[block.scenario]
        new = _new_lines(block, opened[block.scenario], page)
        start = block.first + shift
        lines[start : start + len(block.lines)] = new
        shift += len(new) - len(block.lines)
    return "\n".join(lines) + "\n"


def _open(scenario: str, folders: Path) -> Folder:
    folder = Folder(Path(tempfile.mkdtemp(prefix=f"{scenario}-", dir=folders)))
    SCENARIOS[scenario].prepare(folder)
    return folder


def _new_lines(block: Block, folder: Folder, page: str) -> list[str]:
    if block.kind == "file":
        file = folder.root / block.argument
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("\n".join(block.lines) + "\n", encoding="utf-8")
        return list(block.lines)
    if block.kind == "json":
        print(f"  $ {block.argument}", flush=True)
        status, output, errors = folder.run(block.argument)
        try:
            document = json.loads(output)
        except ValueError as error:
            raise CaptureError(f"{page}: {block.argument} ended with {status}, without JSON:\n{errors}") from error
        return folder.neutral(json.dumps(shortened(document), indent=2, ensure_ascii=False)).splitlines()
    written = []
    commands = _commands(block.lines)
    for position, (command, as_written) in enumerate(commands):
        print(f"  $ {command}", flush=True)
        status, output = folder.run_together(command)
        wanted = block.status if position == len(commands) - 1 else 0
        if status != wanted:
            raise CaptureError(f"{page}: {command} ended with {status}, not {wanted}:\n{output}")
        written += [*as_written, *folder.neutral(output).splitlines()]
    return written


def shortened(value: object, items: int = 1) -> object:
    """A JSON document with each list of objects cut to its first items, and each other list to four."""
    match value:
        case dict():
            return {key: shortened(item, items) for key, item in value.items()}
        case list():
            kept = value[: items if value and isinstance(value[0], dict) else 4]
            return [shortened(item, items) for item in kept]
    return value


def pages() -> list[Path]:
    """Every page that may have blocks."""
    return [CHECKOUT / "README.md", *sorted((CHECKOUT / "docs").rglob("*.md"))]


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("pages", nargs="*", type=Path, help="default: README.md and every page of docs/")
    options.add_argument("--list", action="store_true", help="print the commands, run nothing")
    given = options.parse_args()
    files = [page.resolve() for page in given.pages] or pages()
    try:
        if given.list:
            _list(files)
        else:
            with tempfile.TemporaryDirectory(prefix="envpack-capture-") as folders:
                _refresh_all(files, Path(folders), picture=not given.pages)
    except CaptureError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


def _list(files: list[Path]) -> None:
    for file in files:
        page = str(file.relative_to(CHECKOUT))
        for block in blocks(file.read_text(encoding="utf-8"), page):
            for command in block.commands:
                print(f"{page}: {block.scenario}: {command}")


def _refresh_all(files: list[Path], folders: Path, *, picture: bool) -> None:
    shared: dict[str, Folder] = {}
    for file in files:
        page, text = str(file.relative_to(CHECKOUT)), file.read_text(encoding="utf-8")
        new = refresh(text, page, folders, shared)
        if new != text:
            file.write_text(new, encoding="utf-8")
            print(f"{page}: refreshed", flush=True)
    if picture:
        folder = shared.get("built") or _open("built", folders)
        _must(folder, f"{sys.executable} {CHECKOUT}/ci/draw_verdict.py . {CHECKOUT}/docs/images/verdict.svg")


if __name__ == "__main__":
    sys.exit(main())
