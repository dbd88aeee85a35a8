"""Find out which Triton releases and Pythons our stub serves, and write it down.

    python ci/compatibility.py                                      every pair, into docs/reference/compatibility.md
    python ci/compatibility.py --release 24.04 --python 3.9 --output table.md

A release whose server is in a wheel is run for real, one Python after another, with the ring of tests in
tests/server/releases. For the others the records of the wire are compared with the release's own, by tests/native. A
cell that nothing was run for claims nothing. The exit status is 1 if anything failed.

Servers, environments and stubs are kept in the folder that ENVPACK_TEST_CACHE names, if it does.
"""

import argparse
import datetime
import os
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ET
from dataclasses import dataclass, field
from pathlib import Path

import pytest

import envpack
from envpack.pythons.interpreters import SUPPORTED
from envpack.releases import Release, all_releases
from envpack.support.replacement import write_text

# Seen while this was written, with the stub that came with the release as with ours.
SERVER_FAULTS = {
    "23.04": "the server ends with a segmentation fault once in some thousands of requests to other models (BLS)",
}
CHECKOUT = Path(__file__).resolve().parent.parent
VERIFIED, FAILED, LAYOUT, NOTHING = "verified", "failed", "layout-checked", "–"


@dataclass(frozen=True)
class Cell:
    """What is known of one release with one Python.

    Attributes:
        word: what the table says.
        reasons: which tests failed, or what was missing to run them.
        versions: what ran: ``python`` and ``numpy``.
    """

    word: str
    reasons: tuple[str, ...] = ()
    versions: dict[str, str] = field(default_factory=dict)


def ring(release: Release, python: str) -> Cell:
    """Run the ring of one pair under the real server."""
    return _tested(VERIFIED, "tests/server/releases", "--release", release.name, "--python", python)


def layout_check(release: Release) -> Cell:
    """Compare our records with the release's own; that does not depend on the Python."""
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


def examine(releases: list[Release], pythons: list[str]) -> dict[tuple[str, str], Cell]:
    """Every pair's cell, by release and Python."""
    cells = {}
    for release in releases:
        checked = None if release.wheel else layout_check(release)
        for python in pythons:
            cell = cells[release.name, python] = checked or ring(release, python)
            print(f"Triton {release.name}, Python {python}: {cell.word}", *cell.reasons, sep="\n    ", flush=True)
    return cells


def page(releases: list[Release], pythons: list[str], cells: dict[tuple[str, str], Cell]) -> str:
    """The page as Markdown."""
    heads = ["Triton", "server", "stub ABI", *pythons]
    rows = [
        [release.name, release.server, release.stub_abi, *(cells[release.name, python].word for python in pythons)]
        for release in releases
    ]
    table = "\n".join(f"| {' | '.join(row)} |" for row in [heads, ["---"] * len(heads), *rows])
    counts = ", ".join(f"{_count(cells, word)} {word}" for word in (VERIFIED, LAYOUT, FAILED) if _count(cells, word))
    return f"""# Compatibility

Which Triton releases envpack's stub serves, on which Pythons: {counts or "nothing was run"}.

Made by `python ci/compatibility.py` on {datetime.datetime.now(datetime.UTC).date()} with envpack {envpack.__version__}.

{table}

- {VERIFIED}: the stub ran under that release's real server, from the `nvidia-pytriton` wheel that carries it: load with
  completion of the configuration, execute, batches, BYTES, streams of responses, requests to other models, log,
  metrics, cancel queries, errors, growth and leaks of the shared memory, unload, a clean end. What the release lacks
  was answered with a sentence that names the release that has it.
- {LAYOUT}: no wheel carries that server. Every record that is exchanged with it was compared with the release's
  own, and both ends of the conversation were played by the tests.
- {NOTHING}: nothing was run.

{_what_ran(releases, pythons, cells)}{_server_faults(releases)}One pair by itself:
`pytest tests/server/releases --release 24.04 --python 3.9`.
{_reasons(cells)}"""


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
    return f"What ran:\n\n- servers, by version of the wheel: {wheels}\n- Pythons: {', '.join(ran)}\n\n"


def _server_faults(releases: list[Release]) -> str:
    names = [release.name for release in releases if release.name in SERVER_FAULTS]
    lines = "\n".join(f"- Triton {name}: {SERVER_FAULTS[name]}" for name in names)
    said = "Faults of the servers themselves, which happen with the stub that came with the release as with ours:"
    return f"{said}\n\n{lines}\n\n" if names else ""


def _reasons(cells: dict[tuple[str, str], Cell]) -> str:
    lines = [
        f"- Triton {release}, Python {python}: {reason}"
        for (release, python), cell in cells.items()
        for reason in cell.reasons
    ]
    return "\nWhat is not as it should be:\n\n" + "\n".join(lines) + "\n" if lines else ""


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--release", action="append", choices=list(all_releases()), help="may be repeated")
    options.add_argument("--python", action="append", choices=SUPPORTED, help="may be repeated")
    options.add_argument("--output", type=Path, default=CHECKOUT / "docs/reference/compatibility.md")
    given = options.parse_args()
    releases = [all_releases()[name] for name in given.release or all_releases()]
    pythons = given.python or list(SUPPORTED)
    with tempfile.TemporaryDirectory() as cache:
        os.environ.setdefault("ENVPACK_TEST_CACHE", cache)
        cells = examine(releases, pythons)
    write_text(given.output, page(releases, pythons, cells))
    return 1 if _count(cells, FAILED) else 0


if __name__ == "__main__":
    sys.exit(main())
