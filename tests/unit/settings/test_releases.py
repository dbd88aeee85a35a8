"""The facts about releases are complete and typed, and unknown names get a helpful hint."""

import re
import tomllib
from pathlib import Path

import pytest

import envpack
from envpack.settings.releases import all_abis, all_releases, find_release, newest, release_for_stub, release_of_server
from envpack.settings.table import DEFAULT_RELEASE
from envpack.support.errors import UsageError
from tests.tables import every_row

DATA = tomllib.loads((Path(envpack.__file__).parent / "releases.toml").read_text(encoding="utf-8"))


def _months(first, last):
    """Every month between two releases; Triton has one release in each."""
    year, month = map(int, first.split("."))
    while f"{year}.{month:02}" <= last:
        yield f"{year}.{month:02}"
        year, month = (year, month + 1) if month < 12 else (year + 1, 1)


def _refusal(name, **options):
    with pytest.raises(UsageError) as caught:
        find_release(name, **options)
    return caught.value


def test_the_default_release_is_known():
    release = find_release(DEFAULT_RELEASE)
    assert release.server == "2.51.0"
    assert release.python == "3.10"


def test_no_month_is_missing():
    assert list(all_releases()) == list(_months("23.04", newest().name))


def test_servers_have_rising_versions():
    versions = [tuple(map(int, release.server.split("."))) for release in all_releases().values()]
    assert versions == sorted(set(versions))


@every_row("release", all_releases().values())
def test_every_fact_has_its_type(release):
    for field, kind in type(release).__annotations__.items():
        assert type(getattr(release, field)).__name__ == kind, field
    assert release.image.endswith(f":{release.name}-py3")
    assert release.ninth_argument in {"none", "platform", "runtime-folder"}
    assert (release.known, release.warning) == (True, "")


def test_facts_change_only_with_existing_releases():
    assert set(DATA["since"]) <= set(DATA["releases"])


def test_an_abi_is_named_after_the_first_release_that_uses_it():
    assert all(facts["stub_abi"] == name for name, facts in DATA["since"].items() if "stub_abi" in facts)
    assert len(all_abis()) == 17


@every_row(
    ("name", "facts"),
    [
        ("23.04", {"python": "3.8", "glibc": "2.31", "takes_folders": False, "ninth_argument": "none"}),
        ("23.06", {"python": "3.10", "glibc": "2.35", "takes_folders": False, "ninth_argument": "none"}),
        ("23.09", {"stub_abi": "23.09", "takes_folders": True, "ninth_argument": "platform", "wheel": ""}),
        ("24.02", {"stub_abi": "23.12", "ninth_argument": "runtime-folder", "numpy2": False}),
        ("25.07", {"stub_abi": "25.04", "runs_activate": True, "python": "3.12", "glibc": "2.39", "numpy2": True}),
        ("26.05", {"stub_abi": "26.03", "runs_activate": False, "strict_archives": False}),
        ("26.07", {"stub_abi": "26.03", "runs_activate": False, "strict_archives": True}),
    ],
)
def test_a_fact_applies_until_a_later_release_changes_it(name, facts):
    release = find_release(name)
    assert {field: getattr(release, field) for field in facts} == facts


def test_a_newer_release_gets_the_facts_of_the_newest():
    release = find_release("27.01")
    assert (release.name, release.known, release.server, release.wheel) == ("27.01", False, "", "")
    assert (release.stub_abi, release.python) == (newest().stub_abi, newest().python)
    assert release.image.endswith(":27.01-py3")
    assert all(text in release.warning for text in ("27.01", newest().name, release.stub_abi))


def test_the_abi_can_be_overridden():
    assert find_release("27.01", abi="25.04").stub_abi == "25.04"
    assert find_release("24.10", abi="24.08").stub_abi == "24.08"


@every_row(("abi", "expected"), [("25.05", "Triton 25.05 uses that of 25.04"), ("new", "25.02, 25.04, 26.03")])
def test_an_unknown_abi_is_refused(abi, expected):
    error = _refusal("24.10", abi=abi)
    assert (error.kind, error.exit_code) == ("unknown-abi", 2)
    assert abi in error.message
    assert expected in error.hint


@every_row(
    ("name", "expected"),
    [
        ("22.12", "the oldest release that envpack supports is 23.04"),
        ("24.1", "write 24.10 or 24.01; "),
        ("25.4", "write 25.04; "),
        ("24.10-py3", "write 24.10; "),
        ("2.51.0", "write 24.10; "),
        ("24.13", f"23.04 to {newest().name} or later"),
        ("27.00", f"23.04 to {newest().name} or later"),
        ("newest", "`envpack releases`"),
        ("", "`envpack releases`"),
    ],
)
def test_an_unknown_release_is_refused_with_similar_names(name, expected):
    error = _refusal(name, where="envpack.toml")
    assert (error.kind, error.exit_code, error.where) == ("unknown-release", 2, "envpack.toml")
    assert repr(name) in error.message
    assert expected in error.hint


@every_row("release", all_releases().values())
def test_a_release_is_found_by_its_server(release):
    assert release_of_server(release.server) == release


def test_no_release_is_found_for_another_server():
    assert release_of_server("2.32.0") is None
    assert release_of_server("") is None


def test_a_wheel_is_a_version_of_the_wheel():
    wheels = [release.wheel for release in all_releases().values() if release.wheel]
    assert all(re.fullmatch(r"\d+\.\d+\.\d+", wheel) for wheel in wheels)
    assert len(set(wheels)) == len(wheels)


def test_a_stub_gets_a_release_name_that_it_knows():
    assert find_release("24.07").name_for_stub == "24.07"
    assert find_release("24.07", abi="24.06").name_for_stub == "24.07"
    assert find_release("24.07", abi="24.08").name_for_stub == "24.08"
    assert find_release("99.01").name_for_stub == all_abis()[-1]
    assert find_release("99.01", abi="25.04").name_for_stub == "25.04"


def test_a_release_newer_than_all_known_ones_needs_the_word_of_the_user():
    last = list(all_releases().values())[-1]
    with pytest.raises(UsageError) as raised:
        release_for_stub("99.01", abi="", where="envpack.toml")
    assert raised.value.kind == "unknown-release"
    assert f"newer than {last.name}, the last release whose stub layout was checked" in str(raised.value)
    assert f"--set abi={last.stub_abi}" in (raised.value.hint or "")
    assert release_for_stub("99.01", abi=last.stub_abi).stub_abi == last.stub_abi
    assert release_for_stub(last.name, abi="") == last
