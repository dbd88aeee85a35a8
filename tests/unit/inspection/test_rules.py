"""Which combinations of stub, execution environment, release and host are incompatible, and the messages."""

from pathlib import Path

import pytest

from envpack.inspection.facts import EnvironmentFacts, Host, StubRequirements, image_host
from envpack.inspection.preflight import find_mismatches
from envpack.settings.releases import all_abis, find_release

STUB = Path("/models/one/triton_python_backend_stub")
HOST = Host("the image", glibc="2.35", glibcxx="3.4.30", machine="x86_64")


def stub(**changes):
    facts = {"machine": "x86_64", "python": "3.10", "glibc": "2.28", "glibcxx": "", "epochs": all_abis()}
    return StubRequirements(path=STUB, **{**facts, "release_file": "", **changes})


def environment(path="/envs/one.tar.gz", **changes):
    facts = {"python": "3.10", "machine": "x86_64", "glibc": "2.34", "glibcxx": "", "needed_glibcxx": "3.4.29"}
    return EnvironmentFacts(Path(path), **{**facts, **changes})


def kinds(*facts):
    return [mismatch.kind for mismatch in find_mismatches(*facts)]


@pytest.mark.parametrize("release", ["23.07", "24.10", "26.07", "27.01"])
def test_compatible_facts_have_no_mismatch(release):
    assert kinds(stub(), environment(), find_release(release), image_host(find_release(release))) == []
    assert kinds(stub(release_file=release), environment(), find_release(release), HOST) == []


def test_missing_facts_are_compatible():
    assert kinds(stub(python="3.8")) == []
    assert kinds(None, environment(), find_release("24.10"), None) == []


@pytest.mark.parametrize(
    ("kind", "facts"),
    [
        ("python-mismatch", (stub(python="3.8"), environment())),
        ("libpython-missing", (stub(), environment(python="", machine=""))),
        ("machine-mismatch", (stub(machine="aarch64"), environment())),
        ("machine-mismatch", (stub(machine="aarch64"), None, None, HOST)),
        ("machine-mismatch", (None, environment(machine="aarch64"), None, HOST)),
        ("release-mismatch", (stub(epochs=("24.04",)), None, find_release("24.10"))),
        ("release-mismatch", (stub(release_file="24.04"), None, find_release("24.10"))),
        ("glibc-too-old", (stub(glibc="2.36"), None, None, HOST)),
        ("glibc-too-old", (None, environment(glibc="2.36"), None, HOST)),
        ("libstdcxx-too-old", (stub(glibcxx="3.4.30"), environment(glibcxx="3.4.29"))),
        ("libstdcxx-too-old", (stub(glibcxx="3.4.32"), None, None, HOST)),
        ("libstdcxx-too-old", (None, environment(needed_glibcxx="3.4.31"), None, HOST)),
        ("libstdcxx-too-old", (None, environment(needed_glibcxx="3.4.30", glibcxx="3.4.28"), None, HOST)),
    ],
)
def test_each_mismatch_has_its_kind_and_a_fix(kind, facts):
    assert kinds(*facts) == [kind]
    (mismatch,) = find_mismatches(*facts)
    assert mismatch.fix
    assert not mismatch.what.endswith(".")


def test_a_managed_python_is_advised_where_uv_has_one():
    fixes = {}
    for python in ("3.7", "3.8"):
        (mismatch,) = find_mismatches(None, environment(python=python, glibc="2.36"), None, HOST)
        fixes[python] = mismatch.fix
    assert fixes == {
        "3.7": "build it with older packages, or serve it with a newer release",
        "3.8": "build it with --set python_preference=managed or with older packages, or serve it with a newer release",
    }


@pytest.mark.parametrize(
    ("has", "needs"), [("2.9", "2.17"), ("2.35", "2.100"), ("2.34", "2.34.1")], ids=lambda version: version
)
def test_versions_compare_by_number(has, needs):
    """As text, 2.9 is newer than 2.17."""
    older, newer = (Host("the image", version, version, "x86_64") for version in (has, needs))
    assert kinds(stub(glibc=needs), None, None, older) == ["glibc-too-old"]
    assert kinds(stub(glibc=has), None, None, newer) == []
    assert kinds(None, environment(glibc=needs, needed_glibcxx=""), None, older) == ["glibc-too-old"]
    assert kinds(None, environment(glibc=has, needed_glibcxx=""), None, newer) == []
    assert kinds(stub(glibc="", glibcxx=needs), None, None, older) == ["libstdcxx-too-old"]
    assert kinds(stub(glibc="", glibcxx=has), None, None, newer) == []
    assert kinds(stub(glibc=has, glibcxx=has), None, None, older) == []


def test_the_environments_libstdcxx_precedes_the_systems():
    assert kinds(stub(glibcxx="3.4.32"), environment(glibcxx="3.4.33"), None, HOST) == []


def test_a_release_file_may_name_any_release_of_the_same_epoch():
    assert kinds(stub(release_file="24.07"), None, find_release("24.06")) == []


def test_the_fix_for_a_folder_compiles_against_it():
    (mismatch,) = find_mismatches(stub(python="3.8"), environment("/"))
    assert mismatch.fix.endswith("`envpack stub --prefix / --output /models/one`")
    (mismatch,) = find_mismatches(stub(python="3.8"), environment("/envs/one.tar.gz"))
    assert mismatch.fix.endswith("`envpack stub --python 3.10 --output /models/one`")
