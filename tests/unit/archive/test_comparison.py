"""How an environment is compared with its own manifest and inventory, entry by entry."""

import dataclasses
import hashlib
import json
from pathlib import Path

import pytest

from envpack.archive.comparison import (
    MOST_FINDINGS,
    Comparison,
    Difference,
    Inspection,
    is_record,
    read_record,
)
from envpack.archive.tar_members import END, header, padding
from envpack.environment.inventory import INVENTORY, Entry, Package
from envpack.environment.store import MANIFEST

FILE = Entry("lib/a.so", "file", "x", 3, "a" * 64)
LINK = Entry("lib/link", "link", "x", target="a.so")
FOLDER = Entry("lib/empty", "folder", "x")
ACTIVATE = Entry("bin/activate", "file", "envpack", 1, "b" * 64)
LISTED = (FILE, LINK, FOLDER, ACTIVATE)


def inventory(*entries):
    return json.dumps({"schema": 1, "files": entries}).encode()


def seen(entry):
    return entry._replace(package="", placeholder="")


def comparison(*entries, listed=LISTED, form="dir", **manifest):
    """A comparison of the entries with an inventory; changes of the manifest are given by key."""
    found = Comparison(Path("/env"))
    found.result.form = form
    content = inventory(*listed)
    found.add_description(INVENTORY, content)
    described = {"content": hashlib.sha256(content).hexdigest(), **manifest}
    found.add_description(MANIFEST, json.dumps(described).encode())
    for entry in entries:
        found.add(seen(entry))
    return found


def findings(*entries, **options):
    return [dataclasses.astuple(finding) for finding in comparison(*entries, **options).finished().findings]


def test_an_environment_like_its_inventory_has_no_findings():
    result = comparison(*LISTED).finished()
    assert (result.findings, result.count, result.is_good(strict=True)) == ([], {}, True)
    assert (result.files, result.size, result.verified) == (3, 4, 4)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"size": 4}, "a file of x is 4 bytes now, not 3"),
        ({"sha256": "c" * 64}, "a file of x is of the same size, with other content"),
        ({"kind": "program"}, "a file of x is a program now, not a file"),
    ],
)
def test_a_changed_file_is_described(change, reason):
    changed = FILE._replace(**change)
    assert findings(changed, LINK, FOLDER, ACTIVATE) == [("changed", "lib/a.so", reason)]


def test_a_changed_link_is_described():
    changed = LINK._replace(target="b.so")
    assert findings(FILE, changed, FOLDER, ACTIVATE) == [
        ("changed", "lib/link", "a file of x is a link to b.so now, not to a.so")
    ]


def test_a_missing_file_is_found_and_an_empty_folder_in_folders_only():
    assert findings(LINK, FOLDER, ACTIVATE) == [("missing", "lib/a.so", "a file of x is missing")]
    assert findings(FILE, LINK, ACTIVATE) == [("missing", "lib/empty", "a file of x is missing")]
    assert findings(FILE, LINK, ACTIVATE, form="tar") == []


PYC = Entry("lib/__pycache__/x.pyc", "file", "x", 1, "c" * 64)


@pytest.mark.parametrize(
    ("path", "form", "kind"),
    [
        ("lib/__pycache__/x.pyc", "dir", "unproven"),
        ("lib/__pycache__/x.pyc", "tar", "added"),
        ("lib/__pycache__/x.so", "dir", "added"),
        ("lib/x.pyc", "dir", "added"),
    ],
)
def test_byte_code_written_later_is_unproven_and_other_files_are_added(path, form, kind):
    added = PYC._replace(path=path)
    assert findings(*LISTED, added, form=form) == [(kind, path, "it is not in the inventory")]


@pytest.mark.parametrize("path", [MANIFEST, INVENTORY])
def test_descriptions_are_not_in_the_inventory(path):
    assert findings(*LISTED, PYC._replace(path=path)) == []


def test_an_empty_folder_that_is_not_listed_is_no_finding():
    assert findings(*LISTED, FOLDER._replace(path="lib/more")) == []


def test_findings_are_sorted_with_the_unproven_last():
    other = PYC._replace(path="z")
    assert [finding[:2] for finding in findings(LINK, FOLDER, ACTIVATE, PYC, other)] == [
        ("missing", "lib/a.so"),
        ("added", "z"),
        ("unproven", "lib/__pycache__/x.pyc"),
    ]


def test_a_file_and_a_link_that_leave_or_lack_something_are_refused():
    outside = LINK._replace(target="../../x")
    assert findings(FILE, outside, FOLDER, ACTIVATE, listed=(FILE, outside, FOLDER, ACTIVATE)) == [
        ("refused", "lib/link", "the link leaves the environment: ../../x")
    ]
    assert findings(FILE, listed=(FILE,)) == [("refused", "", "it has no bin/activate at its root")]


def test_without_an_inventory_nothing_can_be_verified():
    found = Comparison(Path("/env"))
    found.add(seen(ACTIVATE))
    result = found.finished()
    assert result.findings == [Difference("unproven", "", f"it has no {INVENTORY}, so its files cannot be verified")]
    assert (result.is_good(), result.is_good(strict=True), result.verified) == (True, False, 0)
    assert found.largest_tar() is None


def test_an_inventory_of_another_manifest_is_changed():
    reason = f"its SHA-256 differs from the one in {MANIFEST}"
    assert findings(*LISTED, content="0" * 64) == [("changed", INVENTORY, reason)]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        (INVENTORY, b"{"),
        (INVENTORY, inventory(("lib/a.so", "file", "x", "3", "a" * 64, "", ""))),
        (MANIFEST, b"{"),
        (MANIFEST, b"[" * 100_000),
    ],
)
def test_damaged_descriptions_are_changed(name, content):
    found = Comparison(Path("/env"))
    found.add_description(name, content)
    (finding,) = found.result.findings
    assert (finding.kind, finding.path) == ("changed", name)
    assert finding.reason.startswith("it is damaged: ")


def test_a_manifest_that_is_no_table_counts_as_empty():
    found = Comparison(Path("/env"))
    found.add_description(MANIFEST, b"[]")
    assert (found.result.manifest, found.result.findings) == ({}, [])


def test_findings_are_limited_and_all_are_counted():
    result = Inspection(path=Path("/env"), form="dir")
    for number in range(MOST_FINDINGS + 5):
        result.find("added", f"{number}/" + "x" * 2000, "y" * 2000)
    assert (len(result.findings), result.count) == (1000, {"added": 1005})
    assert {len(finding.path) for finding in result.findings} == {1000}
    assert {len(finding.reason) for finding in result.findings} == {1000}
    assert not result.is_good()


def entry_of(name, **changes):
    return {
        "name": name,
        "version": "1",
        "source": "conda",
        "license": "MIT",
        "url": "",
        "sha256": "",
        "size": 1,
    } | changes


def packages(*, manifest=None, records=()):
    found = comparison(*LISTED, **({} if manifest is None else {"packages": manifest}))
    for path, content in records:
        found.add_record(path, content)
    return [(package.name, package.version, package.source, package.license) for package in found.finished().packages]


CONDA_X = (
    "conda-meta/x-1-0.json",
    json.dumps({"name": "X_x", "version": "1", "license": "MIT", "sha256": "a"}).encode(),
)
PIP_X = ("lib/python3.8/site-packages/x_x-2.dist-info/METADATA", b"Name: X.x\nVersion: 2\nLicense: BSD\n")
PIP_A = ("lib/python3.8/site-packages/a-3.dist-info/METADATA", b"Name: a\nVersion: 3\nLicense-Expression: ISC\n")


def test_packages_are_those_of_the_manifest():
    assert packages(manifest=[entry_of("z"), entry_of("a")], records=[PIP_A]) == [
        ("z", "1", "conda", "MIT"),
        ("a", "1", "conda", "MIT"),
    ]


@pytest.mark.parametrize("manifest", [None, [entry_of("z", size="1")], [entry_of("z", more=1)], [{"name": "z"}], 3])
def test_without_them_packages_are_those_of_the_records(manifest):
    """A conda package installs a record of pip too."""
    expected = [("x-x", "1", "conda", "MIT"), ("a", "3", "pip", "ISC")]
    assert packages(manifest=manifest, records=[PIP_X, CONDA_X, PIP_A]) == expected
    assert packages(manifest=manifest, records=[CONDA_X, PIP_X, PIP_A]) == expected


def test_records_of_packages():
    assert is_record(CONDA_X[0])
    assert is_record(PIP_A[0])
    assert not is_record("x/conda-meta/x.json")
    assert not is_record("conda-meta/x/y.json")
    assert not is_record("lib/python3.8/site-packages/a/b.dist-info/METADATA")
    assert read_record(*CONDA_X) == Package(name="x-x", version="1", source="conda", license="MIT", sha256="a")
    assert read_record(*PIP_X) == Package(name="x-x", version="2", source="pip", license="BSD")
    several = b"Name: a\nVersion: 3\nLicense:  First line\n  second line\n"
    assert read_record(PIP_A[0], several).license == "First line"


@pytest.mark.parametrize(
    ("path", "content"),
    [(CONDA_X[0], b"{"), (CONDA_X[0], b"{}"), (CONDA_X[0], b"[]"), (CONDA_X[0], b'"x"'), (PIP_A[0], b"Version: 1\n")],
)
def test_damaged_records_have_no_package(path, content):
    assert read_record(path, content) is None
    assert packages(records=[(path, content)]) == []


def test_an_archive_may_end_with_a_mebibyte_of_zeros():
    assert 1 << 20 <= comparison(listed=()).largest_tar() < (1 << 20) + 10_000


@pytest.mark.parametrize("length", [10, 101, 4000])
def test_the_largest_tar_is_an_upper_bound_and_not_much_more(length):
    name = "n" * (length - 5)
    listed = [Entry(f"{number:05}{name}", "link", "x", target="t" * length) for number in range(400)]
    listed += [Entry(f"{number:05}{name}", "file", "x", 10_000) for number in range(400, 800)]
    found = comparison(listed=listed)
    found.descriptions[MANIFEST] = bytes(3 << 20)
    real = sum(len(header(entry)) + entry.size + len(padding(entry.size)) for entry in listed) + len(END)
    real += sum(len(content) + 2 * 512 for content in found.descriptions.values())
    assert real <= found.largest_tar() <= 3 * real
