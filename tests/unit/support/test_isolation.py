import os
import pwd

import pytest

from envpack.support import certificates
from envpack.support.processes import bare_environment, clean_environment

TRAPS = {
    "PYTHONPATH": "/trap",
    "PYTHONHOME": "/trap",
    "PYTHONSTARTUP": "/trap",
    "PIP_TARGET": "/trap",
    "PIP_USER": "1",
    "UV_TARGET": "/trap",
    "UV_SYSTEM_PYTHON": "1",
    "LD_LIBRARY_PATH": "/trap",
    "LD_PRELOAD": "/trap.so",
    "VIRTUAL_ENV": "/trap",
    "CONDA_PREFIX": "/trap",
}


def test_nothing_that_changes_python_gets_through():
    env = clean_environment({**TRAPS, "PATH": "/bin"})
    env.pop("SSL_CERT_FILE", None)  # of the system
    assert env == {"PATH": "/bin", "PYTHONNOUSERSITE": "1"}


@pytest.fixture
def system(tmp_path, monkeypatch):
    """The file with the system's certificates."""
    bundle = tmp_path / "ca-certificates.crt"
    bundle.write_text("-----BEGIN CERTIFICATE-----\n")
    monkeypatch.setattr(certificates, "_BUNDLES", (tmp_path / "other.crt", bundle))
    return bundle


def test_installers_trust_the_systems_certificates(system):
    assert clean_environment({})["SSL_CERT_FILE"] == str(system)
    system.write_text("")  # no authority at all: as if the distribution had no such file
    assert "SSL_CERT_FILE" not in clean_environment({})


@pytest.mark.usefixtures("system")
@pytest.mark.parametrize("name", ["SSL_CERT_FILE", "SSL_CERT_DIR", "PIP_CERT", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"])
def test_certificates_that_the_user_chooses_win(name, tmp_path):
    chosen = tmp_path / "chosen.pem"
    chosen.write_text("certificates")
    assert clean_environment({name: str(chosen)}).get("SSL_CERT_FILE") == (
        None if name == "SSL_CERT_DIR" else str(chosen)
    )


def test_a_folder_of_certificates_for_other_programs_is_left_to_them(system, tmp_path):
    assert clean_environment({"REQUESTS_CA_BUNDLE": str(tmp_path)})["SSL_CERT_FILE"] == str(system)


def test_network_and_cache_settings_get_through():
    host = {
        "HOME": "/h",
        "LC_ALL": "C",
        "https_proxy": "p",
        "SSL_CERT_FILE": "c",
        "UV_CACHE_DIR": "u",
        "XDG_CACHE_HOME": "x",
        "UV_INDEX_COMPANY_PASSWORD": "s",
    }
    assert host.items() <= clean_environment(host).items()


def test_pip_settings_reach_uv_in_its_own_words():
    env = clean_environment({"PIP_INDEX_URL": "i", "PIP_CERT": "c", "PIP_CLIENT_CERT": "k"})
    assert (env["UV_DEFAULT_INDEX"], env["SSL_CERT_FILE"], env["SSL_CLIENT_CERT"]) == ("i", "c", "k")


def test_uv_settings_win_over_pip_settings():
    env = clean_environment({"PIP_INDEX_URL": "i", "PIP_CERT": "c", "UV_INDEX_URL": "u", "SSL_CERT_FILE": "s"})
    assert env["UV_INDEX_URL"] == "u"
    assert "UV_DEFAULT_INDEX" not in env
    assert env["SSL_CERT_FILE"] == "s"


def test_no_proxy_is_used_if_all_hosts_are_excluded():
    proxies = {"HTTP_PROXY": "p", "https_proxy": "p", "ALL_PROXY": "p"}
    assert not proxies.keys() & clean_environment({**proxies, "no_proxy": "*"}).keys()
    assert proxies.items() <= clean_environment({**proxies, "NO_PROXY": "a"}).items()


def test_bare_environment_has_no_home():
    assert "HOME" not in bare_environment()


def test_a_key_ring_that_uv_asks_gets_its_variables():
    of_cloud = {"GOOGLE_APPLICATION_CREDENTIALS": "/key.json", "AWS_PROFILE": "x", "DBUS_SESSION_BUS_ADDRESS": "y"}
    assert not of_cloud.keys() & clean_environment(of_cloud).keys()
    assert of_cloud.items() <= clean_environment({**of_cloud, "UV_KEYRING_PROVIDER": "subprocess"}).items()


def test_accounts_of_poetry_get_the_names_of_uv():
    host = {"POETRY_HTTP_BASIC_CORP_USERNAME": "me", "POETRY_HTTP_BASIC_CORP_PASSWORD": "word"}
    assert {"UV_INDEX_CORP_USERNAME": "me", "UV_INDEX_CORP_PASSWORD": "word"}.items() <= clean_environment(host).items()
    assert clean_environment({**host, "UV_INDEX_CORP_USERNAME": "other"})["UV_INDEX_CORP_USERNAME"] == "other"


def test_a_user_without_a_home_gets_the_folder_of_the_cache(tmp_path, monkeypatch):
    """As containers give their processes numbers of users that no file names."""

    def nobody(number):
        raise KeyError(number)

    assert "HOME" not in clean_environment({})
    monkeypatch.delenv("HOME")
    monkeypatch.setattr(pwd, "getpwuid", nobody)
    monkeypatch.setenv("ENVPACK_CACHE_DIR", str(tmp_path))
    assert clean_environment({})["HOME"] == str(tmp_path)
    monkeypatch.delenv("ENVPACK_CACHE_DIR")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    assert "HOME" not in clean_environment({})


def test_a_user_who_may_not_enter_the_home_that_is_named_gets_the_folder_of_the_cache(tmp_path, monkeypatch):
    """As in a container of root's that another user runs; root may enter any."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("ENVPACK_CACHE_DIR", str(tmp_path / "cache"))
    assert clean_environment()["HOME"] == str(tmp_path)
    monkeypatch.setattr(os, "access", lambda path, _: path != str(tmp_path))
    assert clean_environment()["HOME"] == str(tmp_path / "cache")
