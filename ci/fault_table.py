"""Write the table of broken repositories into docs/reference/errors.md, from the catalogue that the tests run.

python ci/fault_table.py            write it
python ci/fault_table.py --check    write nothing; the exit status is 1 if the table is out of date
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from tests.faults.repositories import CATALOGUE, Broken, Step  # noqa: E402

GUIDE = ROOT / "docs/reference/errors.md"
BEGIN, END = "<!-- faults: begin, written by ci/fault_table.py -->", "<!-- faults: end -->"
_STEPS: dict[Step, str] = {
    "files": "from files",
    "start": "before a load",
    "load": "at load",
    "process": "in the process",
    "inference": "at inference",
    "together": "in a joint load",
    "unload": "after unload",
}
_SPECIAL = str.maketrans({char: f"\\{char}" for char in "\\|*_$<>[]"})


def main(*, check: bool) -> int:
    before = GUIDE.read_text(encoding="utf-8")
    after = with_table(before)
    if check:
        if before != after:
            print(f"error: the table in {GUIDE.relative_to(ROOT)} is out of date")
            print("  fix: run python ci/fault_table.py")
        return int(before != after)
    GUIDE.write_text(after, encoding="utf-8")
    return 0


def with_table(guide: str) -> str:
    """The page with the current table between its marks."""
    head, _, rest = guide.partition(BEGIN)
    _, _, tail = rest.partition(END)
    return f"{head}{BEGIN}\n\n{table()}\n{END}{tail}"


def table() -> str:
    """How many entries there are, and one row for each, in the catalogue's order."""
    diagnoses = {(entry.kind, entry.reason, entry.fix) for entry in CATALOGUE}
    rows = [
        f"{len(CATALOGUE)} broken repositories or machines, {len(diagnoses)} distinct diagnoses (kind, message, fix).",
        "",
        "| what is broken | envpack says | found by | found | kind | what to do |",
        "|---|---|---|---|---|---|",
        *(f"| {' | '.join(_row(entry))} |" for entry in CATALOGUE),
    ]
    return "\n".join(rows) + "\n"


def _row(entry: Broken) -> tuple[str, ...]:
    return (
        entry.what,
        _plain(entry.reason),
        _found_by(entry),
        _STEPS[entry.found_in],
        f"[{entry.kind}](#{entry.kind})",
        _plain(entry.fix),
    )


def _found_by(entry: Broken) -> str:
    where = " in a container" if entry.runtime == "docker" else ""
    strict = " --strict" if "--strict" in entry.options else ""
    return f"`{entry.found_by}{strict}`{where}"


def _plain(text: str) -> str:
    """A message escaped for a table; … stands for the parts that vary."""
    return text.replace("`", "").translate(_SPECIAL)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Write the table of broken repositories.")
    parser.add_argument("--check", action="store_true", help="write nothing; exit status 1 if it is out of date")
    sys.exit(main(check=parser.parse_args().check))
