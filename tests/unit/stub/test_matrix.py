"""Which stubs a matrix is made of, before anything is compiled."""

from pathlib import Path

import pytest

from envpack.settings.pythons import SUPPORTED
from envpack.settings.releases import find_release
from envpack.stub import matrix
from envpack.stub.matrix import find_pythons, plan_matrix
from envpack.stub.target import StubTarget
from envpack.support.errors import EnvironmentBuildError, StubError, UsageError


def _target(minor, machine="x86_64", prefix="/python"):
    folder = Path(prefix)
    return StubTarget(minor, machine, folder / "include", folder / f"lib/libpython{minor}.so.1.0")


TARGETS = [_target(minor) for minor in ("3.9", "3.10", "3.12")]
RELEASES = [find_release("24.04"), find_release("24.10")]


def _names(cells):
    return [cell.identifier for cell in cells]


def _refusal(*arguments, **options):
    with pytest.raises(UsageError) as caught:
        plan_matrix(*arguments, **options)
    return caught.value


def test_without_releases_each_python_has_one_stub():
    cells = plan_matrix(TARGETS)
    assert _names(cells) == ["cp39-x86_64", "cp310-x86_64", "cp312-x86_64"]
    assert {cell.releases for cell in cells} == {()}


def test_with_releases_each_python_has_one_for_each():
    cells = plan_matrix(TARGETS[:2], RELEASES)
    assert _names(cells) == ["cp39-24.04-x86_64", "cp39-24.10-x86_64", "cp310-24.04-x86_64", "cp310-24.10-x86_64"]
    assert [cell.releases for cell in cells[:2]] == [(RELEASES[0],), (RELEASES[1],)]


def test_what_is_given_twice_counts_once():
    assert _names(plan_matrix([*TARGETS[:1], *TARGETS[:1]], [*RELEASES[:1], *RELEASES[:1]])) == ["cp39-24.04-x86_64"]


def test_two_pythons_that_would_have_the_same_name_are_refused():
    error = _refusal([_target("3.9"), _target("3.9", prefix="/other")])
    assert error.kind == "same-identifier"
    assert error.message == (
        "two Pythons for cp39-x86_64: /python/lib/libpython3.9.so.1.0 and /other/lib/libpython3.9.so.1.0"
    )
    assert error.hint == "give one of them, or compile them one after the other with another --output"


def test_the_same_python_for_two_machines_has_two_names():
    targets = [_target("3.9"), _target("3.9", "aarch64")]
    platforms = ("linux-64", "linux-aarch64")
    assert _names(plan_matrix(targets, platforms=platforms)) == ["cp39-x86_64", "cp39-aarch64"]


@pytest.mark.parametrize(
    ("platforms", "message"),
    [
        (("linux-aarch64",), "this Python 3.9 is for linux-64, not for linux-aarch64"),
        (("linux-64", "linux-aarch64"), "no Python for linux-aarch64 to compile against"),
        (("linux-x86_64", "linux-aarch64"), "no Python for linux-aarch64 to compile against"),
    ],
)
def test_a_platform_without_its_python_is_refused(platforms, message):
    error = _refusal(TARGETS, platforms=platforms)
    assert (error.kind, error.message) == ("wrong-platform", message)
    assert error.hint.startswith("give --prefix, with headers and libpython of a Python for that platform")


@pytest.mark.parametrize(
    ("only", "skip", "left"),
    [
        (("cp310-*",), (), "cp310-24.04 cp310-24.10"),
        (("cp39-*", "*-24.10-*"), (), "cp39-24.04 cp39-24.10 cp310-24.10 cp312-24.10"),
        ((), ("*-24.04-*", "cp3?-*"), "cp310-24.10 cp312-24.10"),
        (("cp31[0-1]-*",), ("*-24.10-*",), "cp310-24.04"),
        (("cp312-24.10-x86_64",), (), "cp312-24.10"),
    ],
)
def test_patterns_select_and_skip(only, skip, left):
    chosen = plan_matrix(TARGETS, RELEASES, only=only, skip=skip)
    assert _names(chosen) == [f"{name}-x86_64" for name in left.split()]


@pytest.mark.parametrize(
    ("only", "skip", "says"),
    [
        (("cp311-*",), (), "no stub matches 'cp311-*'"),
        (("cp39-*", "cp310"), (), "no stub matches 'cp310'"),
        ((), ("cp38-*",), "no stub matches 'cp38-*'"),
        ((), ("*",), "every stub is skipped"),
        (("cp39-*",), ("cp3*",), "every selected stub is skipped"),
    ],
)
def test_a_pattern_that_fits_nothing_is_told_what_there_is(only, skip, says):
    error = _refusal(TARGETS, only=only, skip=skip)
    assert (error.kind, error.hint) == ("nothing-selected", "there are cp39-x86_64, cp310-x86_64, cp312-x86_64")
    assert error.message == says


@pytest.fixture
def machine(monkeypatch):
    """Lets this machine have certain Pythons, and say why it does not have others."""

    def have(found):
        def look(minor, *, preference, fetch):
            assert (preference, fetch) == ("system", False)
            what = found.get(minor, EnvironmentBuildError("unknown-python", f"no Python {minor}", "install"))
            if isinstance(what, Exception):
                raise what
            return what

        monkeypatch.setattr(matrix, "target_from_interpreter", look)

    return have


def test_all_pythons_are_those_that_a_stub_can_embed(machine):
    static = EnvironmentBuildError("static-interpreter", "no shared library", "build it")
    headless = StubError("headers-missing", "headers missing", "install them")
    machine({"3.8": static, "3.9": _target("3.9"), "3.11": headless, "3.12": _target("3.12")})
    found = find_pythons()
    assert found.targets == (_target("3.9"), _target("3.12"))
    absent = [minor for minor in SUPPORTED if minor not in {"3.9", "3.12"}]
    expected = dict.fromkeys(absent, "unknown-python") | {"3.8": "static-interpreter", "3.11": "headers-missing"}
    assert {minor: error.kind for minor, error in found.missing.items()} == expected


def test_a_machine_without_any_python_is_told_why(machine):
    machine({"3.8": EnvironmentBuildError("static-interpreter", "no shared library", "build it")})
    with pytest.raises(EnvironmentBuildError) as caught:
        find_pythons()
    assert caught.value.kind == "unknown-python"
    whys = {minor: f"no Python {minor}" for minor in SUPPORTED} | {"3.8": "no shared library"}
    told = caught.value.message.removeprefix("this machine has no Python that a stub can embed: ").split("; ")
    assert [line.partition(":")[0] for line in told] == list(SUPPORTED)
    assert all(line.startswith(f"{minor}: {why}") for line, (minor, why) in zip(told, whys.items(), strict=True))
