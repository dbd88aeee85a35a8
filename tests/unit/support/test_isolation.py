from envpack.support.isolation import bare_environment, clean_environment

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
    assert clean_environment({**TRAPS, "PATH": "/bin"}) == {"PATH": "/bin", "PYTHONNOUSERSITE": "1"}


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
    env = clean_environment({"PIP_INDEX_URL": "i", "PIP_CERT": "c"})
    assert (env["UV_DEFAULT_INDEX"], env["SSL_CERT_FILE"]) == ("i", "c")


def test_uv_settings_win_over_pip_settings():
    env = clean_environment({"PIP_INDEX_URL": "i", "PIP_CERT": "c", "UV_INDEX_URL": "u", "SSL_CERT_FILE": "s"})
    assert env["UV_INDEX_URL"] == "u"
    assert "UV_DEFAULT_INDEX" not in env
    assert env["SSL_CERT_FILE"] == "s"


def test_bare_environment_has_no_home():
    assert "HOME" not in bare_environment()
