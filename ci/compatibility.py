"""Test which Triton releases and Pythons envpack's stub serves, and write docs/reference/compatibility.md.

    python ci/compatibility.py                                      every pair, into docs/reference/compatibility.md
    python ci/compatibility.py --release 24.04 --python 3.9 --output table.md
    python ci/compatibility.py --add --python 3.16                  a new Python; what the page has for others stays
    python ci/compatibility.py --add --release 26.08                the same for a new release

A release whose server is in a wheel is run with each Python by the tests in tests/server/releases. For the others,
tests/native compare the stub's records with the table stub_src/abi/layouts.txt. A cell for which nothing was run
claims nothing. The exit status is 1 if anything failed.

The page records a digest of what it describes: the facts about releases, the layouts, the Pythons. A unit test fails
when they have changed since the page was written.

Servers, environments and stubs are kept in the folder that ENVPACK_TEST_CACHE names, if it does.
"""

import argparse
import datetime
import hashlib
import json
import os
import re
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ET
from dataclasses import dataclass, field
from pathlib import Path

import pytest

import envpack
from envpack.settings.pythons import SUPPORTED
from envpack.settings.releases import Release, all_releases
from envpack.settings.table import DEFAULT_RELEASE
from envpack.support.replacement import write_text

CHECKOUT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(CHECKOUT))

from tests.server.releases.spread import SPREAD  # noqa: E402

# Observed with the release's own stub as well as with ours.
SERVER_FAULTS = {
    "23.04": "the server ends with a segmentation fault once in some thousands of requests to other models (BLS)",
}
# Facts about a release that may change what the table says; that of its CUDA, for example, may not.
_BETWEEN_SERVER_AND_STUB = ("name", "server", "stub_abi", "wheel", "ninth_argument", "runs_activate", "takes_folders")
VERIFIED, FAILED, LAYOUT, NOTHING = "verified", "failed", "layout-checked", "–"


@dataclass(frozen=True)
class Cell:
    """The result for one release and one Python.

    Attributes:
        word: entry of the table.
        reasons: failed tests, or missing requirements of tests.
        versions: the tested versions of ``python`` and ``numpy``.
    """

    word: str
    reasons: tuple[str, ...] = ()
    versions: dict[str, str] = field(default_factory=dict)


def ring(release: Release, python: str) -> Cell:
    """Run the ring of one pair under the real server."""
    return _tested(VERIFIED, "tests/server/releases", "--release", release.name, "--python", python)


def layout_check(release: Release) -> Cell:
    """Compare the stub's records with the table of layouts; that does not depend on the Python."""
    return _tested(LAYOUT, "tests/native", "-k", release.name)


def _tested(word: str, *arguments: str) -> Cell:
    """The word if tests ran, and every one of them passed."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        # xunit2 has no place for what a test records of itself.
        options = ["--quiet", "--maxfail=3", f"--junit-xml={report}", "--override-ini=junit_family=xunit1"]
        command = [sys.executable, "-m", "pytest", *options, *arguments]
        code = subprocess.run(command, cwd=CHECKOUT, stdout=subprocess.DEVNULL, check=False).returncode
        cases = list(ET.parse(report).iter("testcase")) if report.is_file() else []
    bad = [case.get("name", "") for case in cases if case.find("failure") is not None or case.find("error") is not None]
    skips = [skip.get("message", "") for case in cases for skip in case.iter("skipped")]
    versions = {item.get("name", ""): item.get("value", "") for case in cases for item in case.iter("property")}
    if bad or code not in {pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED}:
        return Cell(FAILED, tuple(bad) or (f"pytest ended with {code}",), versions)
    if skips or not cases:
        return Cell(NOTHING, tuple(dict.fromkeys(skips)), versions)
    return Cell(word, (), versions)


def read_page(text: str) -> dict[tuple[str, str], Cell]:
    """The cells of a page."""
    rows = [[word.strip() for word in line.strip("|").split("|")] for line in text.splitlines() if line.startswith("|")]
    pythons = rows[0][3:] if rows else []
    ran = re.search(r"^- Pythons: (.+)$", text, re.MULTILINE)
    tested = re.findall(r"(\S+) with NumPy ([\d.]+\d)", ran[1]) if ran else []
    versions = {version.rpartition(".")[0]: {"python": version, "numpy": numpy} for version, numpy in tested}
    reasons: dict[tuple[str, str], list[str]] = {}
    for release, python, reason in re.findall(r"^- Triton (\S+), Python (\S+): (.+)$", text, re.MULTILINE):
        reasons.setdefault((release, python), []).append(reason)
    cells = {}
    for row in rows[2:]:
        for python, word in zip(pythons, row[3:], strict=True):
            why = tuple(reasons.get((row[0], python), ()))
            cells[row[0], python] = Cell(word, why, versions[python] if word == VERIFIED else {})
    return cells


def examine(
    releases: list[Release], pythons: list[str], kept: dict[tuple[str, str], Cell]
) -> dict[tuple[str, str], Cell]:
    """Every pair's cell, by release and Python; the layout check of a release that is kept is not repeated."""
    cells = {}
    layouts = {release: cell for (release, _), cell in kept.items() if cell.word == LAYOUT}
    for release in releases:
        checked = None if release.wheel else layouts.get(release.name) or layout_check(release)
        for python in pythons:
            cell = cells[release.name, python] = checked or ring(release, python)
            print(f"Triton {release.name}, Python {python}: {cell.word}", *cell.reasons, sep="\n    ", flush=True)
    return cells


def described() -> str:
    """A digest of what the page describes; comments and layout of files do not change it."""
    text = (CHECKOUT / "stub_src/abi/layouts.txt").read_text(encoding="utf-8")
    layouts = re.sub(r"^#.*", "", text, flags=re.MULTILINE).split()
    facts = [[getattr(release, name) for name in _BETWEEN_SERVER_AND_STUB] for release in all_releases().values()]
    content = json.dumps([facts, layouts, SUPPORTED, envpack.__version__], sort_keys=True)
    return hashlib.sha256(content.encode()).hexdigest()


def made_on(text: str) -> str:
    """The dates of a page, as it has them."""
    found = re.search(r"^Made by `python ci/compatibility.py` on (.+) with envpack", text, re.MULTILINE)
    return found[1] if found else ""


def page(releases: list[Release], pythons: list[str], cells: dict[tuple[str, str], Cell], dates: str) -> str:
    """The page as Markdown."""
    heads = ["Triton", "server", "stub ABI", *pythons]
    rows = [
        [release.name, release.server, release.stub_abi, *(cells[release.name, python].word for python in pythons)]
        for release in releases
    ]
    table = "\n".join(f"| {' | '.join(row)} |" for row in [heads, ["---"] * len(heads), *rows])
    counts = ", ".join(f"{_count(cells, word)} {word}" for word in (VERIFIED, LAYOUT, FAILED) if _count(cells, word))
    return f"""# Compatibility

<!-- describes: {described()} -->

Which Triton releases envpack's stub serves, on which Pythons: {counts or "nothing was run"}.

Made by `python ci/compatibility.py` on {dates} with envpack {envpack.__version__}.

{table}

- *{VERIFIED}*: the stub ran under that release's real server, from the `nvidia-pytriton` wheel that contains it: load
  with auto-complete, execute, batches, BYTES, streams of responses, requests to other models, log, metrics, cancel
  queries, errors, growth and leaks of the shared memory, unload, exit. Features that the release lacks were refused
  with an error that names the first release that has them.
- *{LAYOUT}*: no wheel contains that server, and it was not run. The compiler compared every record of the stub with
  `stub_src/abi/layouts.txt`, a table of offsets, sizes and command numbers that was derived from the debug
  information of programs compiled against the headers of that release. Then the stub served a model while a program of
  the tests, made from the same table, played the server. An error in the table would be in both. This check does not
  depend on the Python, so it is one result per release, shown in each column. An earlier state of the stub also
  ran, apart from these tests, with servers of 25.08 and 26.06 that were built from public source, without a GPU, on
  Python 3.8, 3.10 and 3.12.
- *{NOTHING}*: nothing was run.

Each Python was tested with one version of NumPy, listed below. `make test-all` runs {len(SPREAD)} of the
{_in_wheels() * len(SUPPORTED)} pairs that can be verified: {_spread()}.
They run all tests of the stub on every Python with {DEFAULT_RELEASE}, and the layout check for every release.

{_what_ran(releases, pythons, cells)}{_server_faults(releases)}To run one pair:
`pytest tests/server/releases --release 24.04 --python 3.9`.
{_reasons(cells)}"""


def _in_wheels() -> int:
    return sum(bool(release.wheel) for release in all_releases().values())


def _spread() -> str:
    return ", ".join(f"{release} with {python}" for release, python in SPREAD)


def _count(cells: dict[tuple[str, str], Cell], word: str) -> int:
    return sum(cell.word == word for cell in cells.values())


def _what_ran(releases: list[Release], pythons: list[str], cells: dict[tuple[str, str], Cell]) -> str:
    served = {release for (release, _), cell in cells.items() if "numpy" in cell.versions}
    wheels = ", ".join(f"{release.name} from {release.wheel}" for release in releases if release.name in served)
    ran = [
        f"{found[0]['python']} with NumPy {found[0]['numpy']}"
        for python in pythons
        if (found := [cell.versions for (_, it), cell in cells.items() if it == python and "numpy" in cell.versions])
    ]
    if not ran:
        return ""
    return f"What ran:\n\n- servers, with the version of the wheel: {wheels}\n- Pythons: {', '.join(ran)}\n\n"


def _server_faults(releases: list[Release]) -> str:
    names = [release.name for release in releases if release.name in SERVER_FAULTS]
    lines = "\n".join(f"- Triton {name}: {SERVER_FAULTS[name]}" for name in names)
    introduction = (
        "Faults of the servers themselves, which occur with the stub that came with the release as well as with ours:"
    )
    return f"{introduction}\n\n{lines}\n\n" if names else ""


def _reasons(cells: dict[tuple[str, str], Cell]) -> str:
    lines = [
        f"- Triton {release}, Python {python}: {reason}"
        for (release, python), cell in cells.items()
        for reason in cell.reasons
    ]
    return "\nWhat failed or was not run:\n\n" + "\n".join(lines) + "\n" if lines else ""


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--release", action="append", choices=list(all_releases()), help="may be repeated")
    options.add_argument("--python", action="append", choices=SUPPORTED, help="may be repeated")
    options.add_argument("--add", action="store_true", help="keep what the page has for other pairs")
    options.add_argument("--output", type=Path, default=CHECKOUT / "docs/reference/compatibility.md")
    arguments = options.parse_args()
    releases = [all_releases()[name] for name in arguments.release or all_releases()]
    pythons = arguments.python or list(SUPPORTED)
    dates = str(datetime.datetime.now(datetime.UTC).date())
    kept: dict[tuple[str, str], Cell] = {}
    if arguments.add:
        before = arguments.output.read_text(encoding="utf-8")
        python, names = arguments.python, [release.name for release in releases]
        added = f"Python {' and '.join(python)}" if python else f"Triton {' and '.join(names)}"
        kept, dates = read_page(before), f"{made_on(before)} and, for {added}, on {dates}"
    with tempfile.TemporaryDirectory() as cache:
        os.environ.setdefault("ENVPACK_TEST_CACHE", cache)
        cells = kept | examine(releases, pythons, kept)
    if arguments.add:
        names = {name for pair in cells for name in pair}
        releases = [release for release in all_releases().values() if release.name in names]
        pythons = [python for python in SUPPORTED if python in names]
    write_text(arguments.output, page(releases, pythons, cells, dates))
    return 1 if _count(cells, FAILED) else 0


if __name__ == "__main__":
    sys.exit(main())
