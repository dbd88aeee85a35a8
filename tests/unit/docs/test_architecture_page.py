"""The table of packages in the architecture lists every package, in the order of imports, with what it offers."""

import re

from tests.unit.docs.documents import CHECKOUT, read
from tests.unit.test_architecture import ORDER

PAGE = read("docs/explanation/architecture.md")
TABLE = PAGE.partition("| package | subject |")[2].partition("\n\n")[0]
ROWS = [[cell.strip() for cell in row.strip("|").split("|")] for row in TABLE.splitlines()[2:]]


def test_every_package_is_there_in_the_order_of_imports():
    assert [name for row in ROWS for name in re.findall(r"`(\w+)`", row[0])] == ORDER


def test_every_entry_point_is_offered_by_its_package():
    missing = []
    for packages, _, entry_points in ROWS:
        defined = {name for package in re.findall(r"`(\w+)`", packages) for name in _functions_of(package)}
        missing += [name for name in re.findall(r"`(\w+)\(\)`", entry_points) if name not in defined]
    assert missing == []


def _functions_of(package):
    for file in (CHECKOUT / "envpack" / package).rglob("*.py"):
        yield from re.findall(r"^def (\w+)", file.read_text(), re.MULTILINE)


def test_every_folder_and_module_that_is_named_is_there():
    named = re.findall(r"`((?:[a-z_]+/)+(?:[\w-]+\.\w+)?)`", PAGE)
    assert named
    roots = (CHECKOUT, CHECKOUT / "envpack", CHECKOUT / "tests", CHECKOUT / "envpack/verification")
    assert [path for path in named if not any((root / path).exists() for root in roots)] == []
