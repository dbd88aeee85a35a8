"""Channels that answer, with something else than an index or a package: the network is not blamed."""

import json
import os
import shutil

import pytest

from envpack.conda.engine import EngineError, _install_error, install_conda
from envpack.conda.rattler_child import _fault_of, _fault_of_path
from envpack.conda.resolve import resolve_conda
from envpack.conda.settings import CondaSettings
from envpack.requirements.model import CondaPackage
from envpack.requirements.target import Target
from envpack.support import zstd
from envpack.support.errors import EnvironmentBuildError, InputError
from tests.conda_packages import index, make_conda_package
from tests.tables import every_row
from tests.web import serve

TARGET = Target("linux-64", "3.10")
PACKAGE = "linux-64/python-3.10.2-0.conda"
LOGIN = b"<html>Log in</html>"


@pytest.fixture
def site(tmp_path):
    """Serves a channel with the package ``python`` and the oldest kind of index."""
    make_conda_package(tmp_path / "channel", "python", "3.10.2", {"share/x": b"x"})
    index(tmp_path / "channel")
    for subdir in ("linux-64", "noarch"):
        (tmp_path / "channel" / subdir / "repodata.json.zst").unlink()
        (tmp_path / "channel" / subdir / "repodata_shards.msgpack.zst").unlink()
    with serve(tmp_path / "channel") as found:
        yield found


def resolved(site, cache):
    settings = CondaSettings()
    resolve_conda(["python 3.10.*"], settings.resolve([site.url()]), TARGET, settings=settings, cache=cache, places={})


def without_version(folder):
    (file, record), *_ = json.loads((folder / "linux-64/repodata.json").read_text())["packages.conda"].items()
    del record["version"]
    return json.dumps({"packages": {}, "packages.conda": {file: record}}).encode()


@every_row(
    ("file", "content"),
    [
        ("repodata_shards.msgpack.zst", LOGIN),
        ("repodata.json.zst", LOGIN),
        ("repodata.json.zst", zstd.compress(b"{" * 10_000)[:100]),
        ("repodata.json", LOGIN),
        ("repodata.json", b""),
        ("repodata.json", without_version),
    ],
)
def test_what_is_no_index_is_named(site, tmp_path, file, content):
    good = (site.folder / "linux-64/repodata.json").read_bytes()
    (site.folder / "linux-64" / file).write_bytes(content(site.folder) if callable(content) else content)
    shutil.rmtree(tmp_path / "cache", ignore_errors=True)
    with pytest.raises(EnvironmentBuildError) as caught:
        resolved(site, tmp_path / "cache")
    assert caught.value.kind == "channel-invalid"
    assert f"a channel answers with something else than an index ({site.url()}): " in caught.value.message
    assert caught.value.hint.startswith("check the address: a login or a proxy may answer")
    (site.folder / "linux-64" / file).unlink()
    (site.folder / "linux-64/repodata.json").write_bytes(good)


def test_a_channel_without_one_of_its_indexes_is_named(site, tmp_path):
    shutil.rmtree(site.folder / "noarch")
    with pytest.raises(EnvironmentBuildError) as caught:
        resolved(site, tmp_path / "cache")
    assert caught.value.kind == "channel-invalid"
    assert caught.value.message == f"a channel has no index in its folder noarch ({site.url()})"
    assert caught.value.hint.startswith("check the address: a channel has an index in noarch")


@every_row("content", [LOGIN, b"", lambda folder: (folder / PACKAGE).read_bytes()[:150]])
def test_what_is_no_package_is_named(site, tmp_path, content):
    good = (site.folder / PACKAGE).read_bytes()
    (site.folder / PACKAGE).write_bytes(content(site.folder) if callable(content) else content)
    url = site.url(f"/{PACKAGE}")
    package = CondaPackage(name="python", version="3.10.2", build="0", subdir="linux-64", url=url)
    where = {"settings": CondaSettings(), "credentials": {}, "cache": tmp_path / "cache"}
    with pytest.raises(EnvironmentBuildError) as caught:
        install_conda([package], tmp_path / "prefix", TARGET, **where)
    assert (caught.value.kind, caught.value.where) == ("channel-invalid", url), caught.value.message
    assert "conda package python 3.10.2: its file is no conda package, or a damaged one: " in caught.value.message
    assert caught.value.hint.startswith("look at what the address sends")
    (site.folder / PACKAGE).write_bytes(good)


OUT, RECORD = "leads out of the environment", "is where the engine records what is installed"


@every_row(
    ("path", "reason"),
    [
        ("/share/x", OUT),
        ("../python-3.10.2-0/share/x", OUT),  # which is a file of the engine's cache
        ("conda-meta/other-1-0.json", RECORD),
    ],
)
def test_a_package_with_a_path_that_no_package_has_is_refused_before_it_is_installed(tmp_path, path, reason):
    files = {"share/x": b"x", path: b"x"}
    error = _install_error_of(tmp_path, make_conda_package(tmp_path / "bad", "python", "3.10.2", files))
    damaged = "conda package python 3.10.2: its file is no conda package, or a damaged one: "
    assert error.message == f"{damaged}python-3.10.2-0: its path {path!r} {reason}"
    assert not (tmp_path / "prefix/share/x").exists()
    assert not (tmp_path / "python-3.10.2-0").exists()


@every_row(
    ("path", "reason"),
    [
        ("../x", OUT),
        ("share/../../x", OUT),
        (".", OUT),
        ("./conda-meta//other-1-0.json", RECORD),
        ("conda-meta/history/x", RECORD),
        ("conda-meta", RECORD),
        ("share/..x", ""),
        ("conda-meta/own-1-0.json", ""),
        ("conda-meta/pinned", ""),
        ("conda-meta/history", ""),
        ("share/conda-meta/other-1-0.json", ""),
    ],
)
def test_paths_of_packages(path, reason):
    found = _fault_of_path(path, "conda-meta/own-1-0.json")
    assert found == (f"its path {path!r} {reason}" if reason else "")


@pytest.mark.parametrize("missing", ["", "info", "info/index.json", "info/paths.json"])
def test_a_package_whose_paths_cannot_be_read_is_not_installed(tmp_path, missing):
    folder = tmp_path / "own-1-0"
    (folder / "info").mkdir(parents=True)
    (folder / "info/index.json").write_text('{"name": "own"}')
    (folder / "info/paths.json").write_text('{"paths": []}')
    assert _fault_of("own", folder) == ""
    (folder / missing).rename(tmp_path / "elsewhere")
    assert _fault_of("own", folder) == "own-1-0: its extracted files cannot be read: No such file or directory"


def test_a_package_that_says_to_be_another_one_is_named(tmp_path):
    other = make_conda_package(tmp_path / "bad", "other", "3.10.2", {"share/x": b"x"})
    error = _install_error_of(tmp_path, other.rename(other.with_name("python-3.10.2-0.conda")))
    assert error.message.endswith(": python-3.10.2-0: its info/index.json is that of 'other'")


def _packaged(file):
    return CondaPackage(name="python", version="3.10.2", build="0", subdir="linux-64", url=file.as_uri())


def _install(folder, package):
    shutil.rmtree(folder / "cache", ignore_errors=True)
    install_conda(
        [package], folder / "prefix", TARGET, settings=CondaSettings(), credentials={}, cache=folder / "cache"
    )


def _install_error_of(folder, file):
    """The error for a damaged package; its kind, place and hint are those of all damaged packages."""
    with pytest.raises(EnvironmentBuildError) as caught:
        _install(folder, _packaged(file))
    assert (caught.value.kind, caught.value.where) == ("channel-invalid", file.as_uri())
    assert caught.value.hint.startswith("look at what the address sends")
    return caught.value


@every_row(
    ("reason", "kind"),
    [
        ("an io error occurred: bzip2: bz2 header missing", "channel-invalid"),
        (
            "failed to read 'link.json' Caused by: entry point command must not contain path separators",
            "channel-invalid",
        ),
        ("failed to read 'paths.json' Caused by: EOF while parsing", "channel-invalid"),
        ("failed to link 'share/x' Caused by: failed to copy file: No such file or directory", "channel-invalid"),
        (
            "failed to link 'lib/x' Caused by: could not update file modification and access time: No such file",
            "engine-failed",
        ),
        ("failed to unpack `share/x`: Not a directory (os error 20)", "channel-invalid"),
        ("failed to unpack `share/x` Caused by: error decoding response body", "channel-unreachable"),
        ("HTTP status client error (404 Not Found) for url (http://h/python-3.10.2-0.tar.bz2)", "channel-unreachable"),
        ("client error (Connect) Caused by: invalid peer certificate: UnknownIssuer", "channel-untrusted"),
    ],
)
def test_only_what_was_received_is_blamed_on_the_package(tmp_path, reason, kind):
    error = EngineError("LinkError", f"failed to fetch python-3.10.2-0.tar.bz2\nCaused by: {reason}")
    assert _install_error(error, (), tmp_path, {}).kind == kind


def test_a_cache_of_another_user_is_named(tmp_path):
    reason = "failed to open global cache lock for writing: '/c/.cache.lock' Caused by: Permission denied (os error 13)"
    error = _install_error(EngineError("InstallerError", reason), (), tmp_path, {})
    assert error.hint.startswith("set ENVPACK_CACHE_DIR")


@every_row("file", [".rattler/credentials.json", ".pixi/config.toml"])
def test_a_file_that_the_engine_reads_is_blamed_and_no_channel(site, tmp_path, monkeypatch, file):
    home = tmp_path / file.partition("/")[0]
    monkeypatch.setenv("HOME", str(home))
    (home / file).parent.mkdir(parents=True)
    (home / file).write_text("nonsense here")
    with pytest.raises(EnvironmentBuildError) as caught:
        resolved(site, tmp_path / "cache")
    assert caught.value.kind == "engine-failed"
    assert caught.value.message.startswith("the conda engine cannot read a file of its settings or credentials: ")
    assert caught.value.hint == "correct or remove that file, pixi's config.toml or credentials.json of rattler"


SETTINGS = {
    "netrc": ".netrc",
    "named netrc": "named",
    "credentials": ".rattler/credentials.json",
    "certificates": "named",
}
VARIABLES = {"named netrc": "NETRC", "certificates": "SSL_CERT_FILE"}


@pytest.mark.timeout(60)
@every_row("what", SETTINGS)
def test_settings_that_never_end_are_not_waited_for(site, tmp_path, monkeypatch, what):
    home = tmp_path / what
    file = home / SETTINGS[what]
    file.parent.mkdir(parents=True)
    os.mkfifo(file)
    for name, value in {"HOME": home, "NETRC": "", "SSL_CERT_FILE": "", VARIABLES.get(what, "HOME"): file}.items():
        monkeypatch.setenv(name, str(home if name == "HOME" else value))
    with pytest.raises(EnvironmentBuildError) as caught:
        resolved(site, tmp_path / "cache")
    assert (caught.value.kind, caught.value.where) == ("engine-failed", str(file))
    reason = "the conda engine cannot read a file of its settings or credentials: it is a pipe or a device"
    assert (caught.value.message, caught.value.hint) == (reason, "put a file there, or remove it")


@pytest.mark.timeout(60)
@every_row("subdir", ["linux-64", "noarch"])
def test_an_index_that_never_ends_is_not_waited_for(tmp_path, subdir):
    channel = tmp_path / "channel ü"
    make_conda_package(channel, "python", "3.10.2", {"share/x": b"x"})
    address, file = index(channel), channel / subdir / "repodata.json"
    file.unlink()
    os.mkfifo(file)
    for names, spec in (([address], "python 3.10.*"), ([], f"{address}/{subdir}::python 3.10.*")):
        with pytest.raises(EnvironmentBuildError) as caught:
            settings = CondaSettings()
            where = {"settings": settings, "cache": tmp_path / "cache", "places": {}}
            resolve_conda([spec], settings.resolve(names), TARGET, **where)
        assert (caught.value.kind, caught.value.where) == ("channel-invalid", str(file))
        assert caught.value.message == "a channel has a pipe or a device in place of its index"
        assert caught.value.hint == "put its index there, or name another channel"
    file.unlink()


@pytest.mark.timeout(60)
def test_a_package_that_never_ends_is_not_waited_for(tmp_path):
    file = tmp_path / "linux-64/python-3.10.2-0.conda"
    file.parent.mkdir()
    os.mkfifo(file)
    with pytest.raises(EnvironmentBuildError) as caught:
        _install(tmp_path, _packaged(file))
    assert (caught.value.kind, caught.value.where) == ("channel-invalid", str(file))
    assert caught.value.message == "conda package python 3.10.2: its file is a pipe or a device"
    assert caught.value.hint == "put the package there, or lock again"


def test_a_proxy_that_does_not_answer_is_named_with_the_channel(tmp_path):
    settings = CondaSettings(variables={"HTTP_PROXY": "http://me:very-secret@127.0.0.1:9", "NO_PROXY": "elsewhere"})
    channels = settings.resolve(["http://channel.invalid/c"])
    with pytest.raises(EnvironmentBuildError) as caught:
        resolve_conda(["python"], channels, TARGET, settings=settings, cache=tmp_path, places={})
    error = caught.value
    assert "a channel does not answer through the proxy http://***@127.0.0.1:9 (" in error.message
    assert error.hint.startswith("correct HTTP_PROXY or HTTPS_PROXY")
    url = f"{channels.urls[0]}/linux-64/python-3.10.2-0.conda"
    package = CondaPackage(name="python", version="3.10.2", build="0", subdir="linux-64", url=url)
    with pytest.raises(EnvironmentBuildError) as caught:
        install_conda([package], tmp_path / "x", TARGET, settings=settings, credentials={}, cache=tmp_path)
    error = caught.value
    assert "cannot be downloaded through the proxy http://***@127.0.0.1:9: Connection refused" in error.message
    assert error.hint.startswith("correct HTTP_PROXY or HTTPS_PROXY")


def test_a_file_without_authorities_is_named_before_a_channel_is_asked(site, tmp_path, monkeypatch):
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "none.pem"))
    monkeypatch.delenv("SSL_CERT_DIR", raising=False)
    with pytest.raises(InputError) as caught:
        resolved(site, tmp_path)
    assert (caught.value.kind, caught.value.where) == ("bad-certificates", str(tmp_path / "none.pem"))
