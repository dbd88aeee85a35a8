"""Conda settings from .condarc and variables; credentials are separated from addresses."""

import os
from unittest import mock

import pytest

from envpack.conda.engine import index_channel
from envpack.conda.settings import CondaSettings, read_conda_settings
from envpack.support.errors import InputError, StorageError, UsageError


@pytest.fixture
def home(tmp_path):
    return tmp_path


def read_with(**variables):
    with mock.patch.dict(os.environ, variables, clear=True):
        return read_conda_settings()


def read(home, text="", **variables):
    (home / ".condarc").write_text(text)
    return read_with(HOME=str(home), **variables)


def test_without_settings_names_are_channels_of_anaconda(tmp_path):
    settings = read_with(HOME=str(tmp_path / "missing"))
    assert settings.channels == ()
    assert settings.resolve(["conda-forge"]).urls == ("https://conda.anaconda.org/conda-forge",)


def test_channels_alias_and_custom_channels(home):
    settings = read(
        home,
        "channels: [mine, team, conda-forge]\nchannel_alias: https://mirror.example/conda/\n"
        "custom_channels: {team: 'https://team.example/c'}\n",
    )
    assert settings.resolve(settings.channels).urls == (
        "https://mirror.example/conda/mine",
        "https://team.example/c/team",
        "https://mirror.example/conda/conda-forge",
    )


def test_a_name_can_stand_for_several_channels(home):
    settings = read(home, "default_channels: ['https://one.example/a', 'https://two.example/b']\n")
    assert settings.resolve(["defaults"]).urls == ("https://one.example/a", "https://two.example/b")
    settings = read(home, "custom_multichannels: {all: [x, y]}\n")
    assert [url.rpartition("/")[2] for url in settings.resolve(["all"]).urls] == ["x", "y"]


def test_paths_are_channels_too(home, monkeypatch):
    monkeypatch.chdir(home)
    assert CondaSettings().resolve(["./my channel", "/abs"]).urls == (
        (home / "my channel").as_uri(),
        "file:///abs",
    )


def test_the_channels_of_anaconda_have_names_which_a_mirror_of_the_defaults_gets(home):
    names = ["pkgs/main", "pkgs/r", "pkgs/pro"]
    assert read(home).resolve(names).urls == tuple(f"https://repo.anaconda.com/{name}" for name in names)
    mirrored = read(home, "default_channels: ['https://mirror.example/a/pkgs/main']\n")
    assert mirrored.resolve(names[:2]).urls == (
        "https://mirror.example/a/pkgs/main",
        "https://repo.anaconda.com/pkgs/r",
    )
    custom = read(home, "custom_channels: {pkgs/main: 'https://own.example'}\n")
    assert custom.resolve(names[:1]).urls == ("https://own.example/pkgs/main",)


def test_an_address_of_ipv6_keeps_its_brackets(home):
    assert read(home).resolve(["http://[::1]:8000/conda"]).urls == ("http://[::1]:8000/conda",)


def test_files_are_merged_and_the_more_specific_one_comes_first(home):
    """A name that only the general file explains would be looked for at a stranger's address otherwise."""
    (home / ".config/conda").mkdir(parents=True)
    (home / ".config/conda/.condarc").write_text(
        "channels: [corp, both]\ncustom_channels: {corp: 'https://c.example', team: 'https://c.example'}\n"
    )
    settings = read(home, "channels: [both, mine]\ncustom_channels: {team: 'https://t.example'}\n")
    assert settings.channels == ("both", "mine", "corp")
    assert settings.resolve(["corp", "team"]).urls == ("https://c.example/corp", "https://t.example/team")


def test_variables_override_files_and_condarc_comes_before_other_files(home):
    (home / "other").write_text("channels: [named]\n")
    assert read(home, "channels: [file]\n", CONDARC=str(home / "other")).channels == ("named", "file")
    assert read(home, "channels: [file]\n", CONDA_CHANNELS="a,b").channels == ("a", "b")


def test_proxies_and_certificates_become_variables(home):
    settings = read(home, "proxy_servers: {http: 'http://p:1', https: 'http://p:2'}\nssl_verify: ~/ca.pem\n")
    assert settings.variables["HTTPS_PROXY"] == "http://p:2"
    assert settings.variables["SSL_CERT_FILE"].endswith("/ca.pem")
    assert "SSL_CERT_FILE" not in read(home, "ssl_verify: true\n").variables


@pytest.mark.parametrize(
    ("address", "url", "credentials"),
    [
        (
            "https://me:p%40ss@host.example:8080/c",
            "https://host.example:8080/c",
            {"host.example": {"BasicHTTP": {"username": "me", "password": "p@ss"}}},
        ),
        ("https://host.example/t/tk-123/c", "https://host.example/c", {"host.example": {"CondaToken": "tk-123"}}),
        ("https://[::1]:8080/t/tk-123/c", "https://[::1]:8080/c", {"[::1]": {"CondaToken": "tk-123"}}),
    ],
)
def test_credentials_are_separated_from_addresses(address, url, credentials):
    found = CondaSettings().resolve([address])
    assert (found.urls, found.credentials) == ((url,), credentials)
    assert "p@ss" not in repr(found)
    assert "tk-123" not in repr(found)


def test_variables_in_a_file_are_expanded(home):
    settings = read(home, "channels: ['https://me:${TOKEN}@host.example/c']\n", TOKEN="s3cret")
    assert settings.resolve(settings.channels).credentials["host.example"]["BasicHTTP"]["password"] == "s3cret"


@pytest.mark.parametrize("text", ["channels: [", "- a list", "just text s3cret", "channels: " + "[" * 100_000])
def test_a_damaged_file_is_named_and_not_quoted(home, text):
    with pytest.raises(InputError) as caught:
        read(home, text)
    assert (caught.value.kind, caught.value.where) == ("bad-condarc", str(home / ".condarc"))
    assert "s3cret" not in str(caught.value)


def test_a_file_that_cannot_be_read_is_not_called_wrong(home):
    (home / ".condarc").symlink_to("/proc/self/mem")  # which root cannot read from its beginning, either
    with pytest.raises(InputError, match="cannot be read: Input/output error"):
        read_with(HOME=str(home))


def test_a_home_that_cannot_be_looked_into_has_no_settings():
    """As that of another user, which ``sudo`` keeps, or of root in a container; root may look anywhere."""
    assert read_with(HOME="/" + 300 * "x").channels == ()


def test_the_hint_for_a_damaged_file_helps(home):
    with pytest.raises(InputError) as caught:
        read(home, "channels: [")
    assert caught.value.hint == "correct it, or move it away; CONDARC only adds another file"
    (home / "other").write_text("channels: [own]\n")
    with pytest.raises(InputError):
        read_with(HOME=str(home), CONDARC=str(home / "other"))
    (home / ".condarc").rename(home / "away")
    assert read_with(HOME=str(home), CONDARC=str(home / "other")).channels == ("own",)


@pytest.mark.parametrize(
    "address",
    ["ftp://me:s3cret@host/c", "https://me:s3cret@host:port/c", "https://me:x@a/s3cret@host/c", "me:s3cret@host/c"],
)
def test_an_unsupported_address_is_refused_and_not_quoted(address):
    with pytest.raises(UsageError) as caught:
        CondaSettings().resolve([address])
    assert caught.value.kind == "bad-channel"
    assert "s3cret" not in str(caught.value)


def test_a_limit_of_the_system_is_told_from_a_failure_of_the_engine(tmp_path, monkeypatch):
    """As of threads, which ends the library with an error that names no cause."""
    child = tmp_path / "child.py"
    child.write_text(
        "import pathlib, sys\n"
        "sys.stderr.write('panicked at x.rs: ThreadPoolBuildError { kind: IOError(Os { code: 11 }) }')\n"
        'pathlib.Path(sys.argv[2]).write_text(\'{"error": "rust future panicked", "error_type": "x"}\')\n'
    )
    monkeypatch.setattr("envpack.conda.engine._CHILD", child)
    with pytest.raises(StorageError, match="the system refuses more of what this command needs"):
        index_channel(tmp_path)
