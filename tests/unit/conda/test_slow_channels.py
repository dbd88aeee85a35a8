"""Channels that answer slowly, or no more: the engine has a limit for each download."""

import pytest

from envpack.conda import engine, resolve
from envpack.conda.engine import install_conda
from envpack.conda.resolve import resolve_conda
from envpack.conda.settings import CondaSettings
from envpack.requirements.model import CondaPackage
from envpack.requirements.target import Target
from envpack.support.errors import EnvironmentBuildError
from tests.conda_packages import index, make_conda_package
from tests.web import serve

INDEX = "linux-64/repodata_shards.msgpack.zst"
TARGET = Target("linux-64", "3.10")


@pytest.fixture
def site(tmp_path, monkeypatch):
    """Serves a channel with the package ``python``, for which the engine is impatient."""
    monkeypatch.setattr(resolve, "_PATIENCE", (1, 2))
    monkeypatch.setattr(engine, "_PATIENCE", 1)
    make_conda_package(tmp_path / "channel", "python", "3.10.2", {"share/x": b"x"})
    index(tmp_path / "channel")
    with serve(tmp_path / "channel") as found:
        yield found


@pytest.fixture
def names(site, tmp_path):
    """Resolves python; returns the names of the packages."""

    def run():
        settings = CondaSettings()
        channels = settings.resolve([site.url()])
        found = resolve_conda(
            ["python 3.10.*"], channels, TARGET, settings=settings, cache=tmp_path / "cache", places={}
        )
        return [package.name for package in found]

    return run


def test_a_channel_that_has_begun_to_send_its_index_is_given_more_time(site, names):
    site.stalled[INDEX] = 1
    assert names() == ["python"]
    assert site.stalled[INDEX] == 0


@pytest.mark.parametrize("silence", ["before the response", "in the middle"])
def test_a_channel_that_answers_no_more_is_unreachable(site, names, silence):
    if silence == "in the middle":
        site.stalled[INDEX] = 9
    else:
        site.gate.clear()
    with pytest.raises(EnvironmentBuildError) as caught:
        names()
    error = caught.value
    assert error.kind == "channel-unreachable"
    assert f"a channel does not answer ({site.url()}" in error.message
    assert "operation timed out" in error.message
    assert error.hint.startswith("check the address and the network; ")


def test_a_package_that_does_not_come_is_named(site, tmp_path):
    site.gate.clear()
    url = site.url("/linux-64/python-3.10.2-0.conda")
    package = CondaPackage(name="python", version="3.10.2", build="0", subdir="linux-64", url=url)
    with pytest.raises(EnvironmentBuildError) as caught:
        install_conda(
            [package], tmp_path / "prefix", TARGET, settings=CondaSettings(), credentials={}, cache=tmp_path / "cache"
        )
    error = caught.value
    assert (error.kind, error.where) == ("channel-unreachable", url)
    assert "conda package python 3.10.2 cannot be downloaded: " in error.message
    assert error.hint.startswith("check the address and the network; or the channel no longer has the package")


def test_an_engine_that_waits_for_something_else_is_ended(site, names, monkeypatch):
    monkeypatch.setattr(engine, "_LIMIT", 0.2)
    site.gate.clear()
    with pytest.raises(EnvironmentBuildError) as caught:
        names()
    assert (caught.value.kind, caught.value.message) == ("engine-failed", "the conda engine did not end within 0.2 s")
    assert caught.value.hint.startswith("look at what it reads: its settings and credentials, a key ring, channels in")
