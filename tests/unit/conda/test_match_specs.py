"""Match specs as users write them, resolved by the embedded engine from small channels."""

import pytest

from envpack.conda.resolve import resolve_conda, spec_channels
from envpack.conda.settings import CondaSettings
from envpack.requirements.target import Target
from envpack.support.errors import EnvironmentBuildError
from tests.conda_packages import index, make_conda_package
from tests.tables import every_row

TARGET = Target("linux-64", "3.10")
PLACES = {"left": "environment.yml:4", "right": "environment.yml:5"}


@pytest.fixture(scope="module")
def channels(tmp_path_factory):
    """Addresses of two channels, each with its own packages and both with ``both``."""
    first, second = tmp_path_factory.mktemp("first"), tmp_path_factory.mktemp("second")
    for version in ("3.9.1", "3.10.2"):
        make_conda_package(first, "python", version, {})
    for version in ("1.19.2", "1.26.0", "1.26.4", "2.0.0"):
        make_conda_package(first, "numpy", version, {}, build="py310_0")
    make_conda_package(first, "x264", "1!161.3030", {})
    make_conda_package(first, "left", "1.0", {}, depends=["numpy <2"])
    make_conda_package(first, "right", "1.0", {}, depends=["numpy >=2"])
    make_conda_package(first, "broken", "1.0", {}, depends=["absent"])
    make_conda_package(first, "both", "1.0", {})
    make_conda_package(second, "both", "2.0", {})
    make_conda_package(second, "second-only", "1.0", {})
    return index(first), index(second)


@pytest.fixture
def resolve(channels, tmp_path):
    first, second = channels
    settings = CondaSettings(
        custom={"one": first.rpartition("/")[0], "two": second.rpartition("/")[0]},
        multiple={"defaults": (first, second), "one": (first,), "two": (second,)},
    )

    def run(*specs):
        named = settings.resolve(["one", *spec_channels(specs)])
        found = resolve_conda(
            ["python 3.10.*", *specs], named, TARGET, settings=settings, cache=tmp_path / "cache", places=PLACES
        )
        return {package.name: package.version for package in found}

    return run


@every_row(
    ("spec", "version"),
    [
        ("numpy=1.19.2=py310_0", "1.19.2"),
        ("numpy=1.26.*", "1.26.4"),
        ("numpy =1.26.*", "1.26.4"),
        ("numpy 1.19.2", "1.19.2"),
        ("numpy >= 1.20, < 2", "1.26.4"),
        ("numpy>=1.20,<2=py310*", "1.26.4"),
        ("numpy 1.26.* py310*", "1.26.4"),
        ("numpy[version='>=1.20,<2', build='py310*']", "1.26.4"),
        ("one::numpy=1.26.0", "1.26.0"),
        ("defaults::numpy=1.26", "1.26.4"),
        ("x264=1!161.3030=0", "1!161.3030"),
        ("both", "1.0"),
        ("two::both", "2.0"),
        ("defaults::both", "1.0"),
        ("two::second-only", "1.0"),
        ("defaults::second-only", "1.0"),
    ],
)
def test_conda_forms_are_understood(resolve, spec, version):
    name = spec.rpartition("::")[2].split("=")[0].split()[0].split("[")[0].split(">")[0]
    assert resolve(spec)[name] == version


@every_row(
    ("specs", "message", "hint", "where"),
    [
        (
            ("numpy", "left", "right"),
            "'left' (line 4) and 'right' (line 5) cannot be met together",
            "'left' or 'r",
            ":5",
        ),
        (("left", "broken", "numpy=1.26"), "conda requirement 'broken' cannot be resolved", "name a channel", ""),
        (("left", "numpy=1.26.4=py38_0", "both"), "'numpy=1.26.4=py38_0' cannot be res", "write numpy==1.26.4,", ""),
        (("left", "numpy=>1.2", "both"), "conda requirement 'numpy=>1.2' cannot be resolved", "check name", ""),
        (("left", "both", "not-there"), "conda requirement 'not-there' cannot be resolved", "belong under pip", ""),
        (("left", "sklearn"), "conda requirement 'sklearn' cannot be resolved", "its package is scikit-learn", ""),
        (("left", "numpy[extra]"), "conda requirement 'numpy[extra]' cannot be resolved", "has no extras", ""),
        (("left", "pywin32"), "conda requirement 'pywin32' cannot be resolved", "only Windows has pywin32", ""),
    ],
)
def test_an_error_names_the_requirements_at_fault_and_no_other(resolve, specs, message, hint, where):
    with pytest.raises(EnvironmentBuildError) as caught:
        resolve(*specs)
    assert caught.value.kind == "unresolvable"
    assert message in caught.value.message
    assert hint in caught.value.hint
    assert caught.value.where.endswith(where)
