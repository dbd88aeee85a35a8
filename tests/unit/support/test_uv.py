"""The indexes of pip's configuration files, and how uv is run."""

import os
from pathlib import Path

import pytest

from envpack.support import uv
from envpack.support.errors import EnvironmentBuildError, EnvpackError
from envpack.support.processes import CompletedProcess
from envpack.support.uv import index_settings, no_index, pip_indexes, run_uv
from tests.tables import every_row

OWN, MORE = "https://own.example/simple", "https://more.example/simple"


@pytest.fixture(autouse=True)
def _machine_without_pip_settings(monkeypatch):
    """The files below /etc, which a machine may have, are not read."""
    real = uv.read_text
    monkeypatch.setattr(uv, "read_text", lambda file, **how: "" if Path("/etc") in file.parents else real(file, **how))


@every_row(
    ("text", "variables", "expected"),
    [
        (f"[global]\nindex-url = {OWN}\n", {}, {"UV_DEFAULT_INDEX": OWN}),
        (f"[global]\nindex_url = {MORE}\n[install]\nindex-url = {OWN}\n", {}, {"UV_DEFAULT_INDEX": OWN}),
        (f"[global]\nextra-index-url =\n    {OWN}\n    {MORE}\n", {}, {"UV_INDEX": f"{OWN} {MORE}"}),
        (f"[global]\nextra-index-url = file:///srv/simple {OWN}\n", {}, {"UV_INDEX": OWN}),
        ("[global]\nindex-url = file:///srv/simple\n", {}, {"UV_DEFAULT_INDEX": "file:///srv/simple"}),
        (f"[global]\nfind-links = /srv/wheels {OWN}\n", {}, {"UV_FIND_LINKS": OWN}),
        (
            f"[global]\nindex-url = {OWN}\nno-index = true\nfind-links =\n    /srv/wheels\n    {MORE}\n",
            {},
            {"UV_DEFAULT_INDEX": OWN, "UV_FIND_LINKS": f"/srv/wheels,{MORE}"},
        ),
        (
            f"[global]\nno-index = no\nindex-url = {OWN}\n",
            {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": "/srv/a /srv/b"},
            {"UV_DEFAULT_INDEX": OWN, "UV_FIND_LINKS": "/srv/a,/srv/b"},
        ),
        (f"[global]\nindex-url = {OWN}\n", {"PIP_INDEX_URL": MORE}, {"UV_DEFAULT_INDEX": MORE}),
        (
            "[global]\ntrusted-host = a b:1 https://c ::1\ncert = /ca.pem\nclient-cert = ~/me~.pem\nproxy = http://p:1\n",
            {"HTTP_PROXY": "http://q:1", "PIP_CERT": "/other.pem"},
            {
                "UV_INSECURE_HOST": "a b:1",
                "SSL_CERT_FILE": "/other.pem",
                "SSL_CLIENT_CERT": "/nonexistent/me~.pem",
                "HTTPS_PROXY": "http://p:1",
            },
        ),
        (f"[global]\nindex-url = {OWN}\n", {"UV_INDEX_URL": MORE}, {}),
        (f"[global]\nindex-url = {OWN}\n", {"PIP_CONFIG_FILE": "/dev/null"}, {}),
        ("[global\n", {}, {}),
        ("[global]\ntimeout = 60\n", {}, {}),
    ],
)
def test_remote_indexes_of_pip_get_the_names_of_uv(tmp_path, text, variables, expected):
    (tmp_path / "pip").mkdir(exist_ok=True)
    (tmp_path / "pip/pip.conf").write_text(text)
    host = {"XDG_CONFIG_HOME": str(tmp_path), "HOME": "/nonexistent", **variables}
    assert pip_indexes(host) == expected
    assert no_index(host) == (["--no-index"] if "/srv" in expected.get("UV_FIND_LINKS", "") else [])


def test_indexes_of_pip_are_not_meant_for_a_uv_that_has_its_own(tmp_path):
    for name, text in {"pip/pip.conf": f"[global]\nindex-url = {OWN}\n", "uv/uv.toml": "[[index]]\n"}.items():
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_text(text)
    assert pip_indexes({"XDG_CONFIG_HOME": str(tmp_path)}) == {}


def test_settings_of_indexes_are_told_apart_without_their_secrets(tmp_path, monkeypatch):
    for name in [*os.environ]:
        if name.startswith(("UV_", "PIP_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path))
    assert index_settings() == []
    monkeypatch.setenv("PIP_EXTRA_INDEX_URL", OWN.replace("//", "//me:very-secret@"))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    assert index_settings() == [f"UV_INDEX={OWN}", f"UV_EXTRA_INDEX_URL={OWN}", "--no-index"]
    (tmp_path / "uv").mkdir()
    (tmp_path / "uv/uv.toml").write_text(f'[[index]]\nurl = "{MORE.replace("//", "//me:very-secret@")}"\n')
    assert index_settings() == [f"UV_EXTRA_INDEX_URL={OWN}", f'[[index]]\nurl = "{MORE}"\n']


@every_row("account", ["me:very-secret#1", "me:p@very-secret/x"])
def test_a_setting_with_a_password_that_is_not_encoded_is_refused_without_it(monkeypatch, account):
    for name in ("UV_INDEX", "PIP_EXTRA_INDEX_URL", "UV_FIND_LINKS"):
        with monkeypatch.context() as patch:
            patch.delenv("UV_INDEX", raising=False)
            patch.setenv(name, f"http://{account}@host.example/simple")
            with pytest.raises(EnvironmentBuildError) as caught:
                run_uv(["--version"])
            assert "%23 for #" in caught.value.hint
            assert "very-secret" not in str(caught.value)


@every_row(
    ("name", "kind", "message"),
    [
        ("KILL", "system-limit", "the system refuses more of what this command needs: a program ended by SIGKILL"),
        ("SEGV", "pip-failed", "uv ended by SIGSEGV"),
    ],
)
def test_a_signal_that_ends_uv_is_named(tmp_path, monkeypatch, name, kind, message):
    """Its output ends anywhere: `Downloading numpy` was shown as the reason why numpy cannot be resolved."""
    program = tmp_path / f"uv-{name}"
    program.write_text(f"#!/bin/sh\necho Downloading numpy >&2\nkill -{name} $$\n")
    program.chmod(0o755)
    monkeypatch.setattr(uv, "_uv", lambda: str(program))
    with pytest.raises(EnvpackError) as caught:
        run_uv(["pip", "compile"])
    assert (caught.value.kind, caught.value.message) == (kind, message)
    assert caught.value.details == ("Downloading numpy" if kind == "pip-failed" else "")


@pytest.mark.timeout(60)
@every_row(
    "file", [".config/uv/uv.toml", "x/uv/uv.toml", "named", ".netrc", "netrc", "y/uv/credentials/credentials.toml"]
)
def test_settings_that_never_end_are_not_waited_for(tmp_path, monkeypatch, file):
    home = tmp_path / file.replace("/", "-")
    variables = {"x/": ("XDG_CONFIG_HOME", home / "x"), "y/": ("XDG_DATA_HOME", home / "y")}
    variables |= {"na": ("UV_CONFIG_FILE", home / file), "ne": ("NETRC", home / file)}
    for name in ("XDG_CONFIG_HOME", "XDG_DATA_HOME", "UV_CONFIG_FILE", "NETRC"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv(*map(str, variables.get(file[:2], ("HOME", home))))
    (home / file).parent.mkdir(parents=True)
    os.mkfifo(home / file)
    with pytest.raises(EnvironmentBuildError) as caught:
        run_uv(["--version"])
    assert (caught.value.kind, caught.value.where) == ("pip-failed", str(home / file))
    assert caught.value.message == "uv cannot read a file of its settings or credentials: it is a pipe or a device"
    assert caught.value.hint == "put a file there, or remove it"


def test_a_file_of_settings_that_is_not_there_is_named(tmp_path, monkeypatch):
    monkeypatch.setenv("UV_CONFIG_FILE", str(tmp_path / "missing.toml"))
    with pytest.raises(EnvironmentBuildError, match="no such file, which UV_CONFIG_FILE names") as caught:
        run_uv(["--version"])
    assert (caught.value.where, caught.value.hint) == (f"{tmp_path}/missing.toml", "correct the variable, or unset it")


class Run:
    """Stands for the start of a program; the program prints a password."""

    def __init__(self, monkeypatch):
        monkeypatch.setattr("envpack.support.uv.run", self)

    def __call__(self, command, *, env, cwd, timeout=None):
        self.command, self.variables, self.folder = command, env, cwd
        self.temporary = Path(env["TMPDIR"])
        assert self.temporary.is_dir()
        return CompletedProcess(3, "out https://me:secret@a.example/x", "err https://me:secret@a.example/x")


def test_uv_runs_apart_from_projects_settings_and_secrets(monkeypatch):
    started = Run(monkeypatch)
    monkeypatch.setenv("PYTHONPATH", "/trap")
    completed = run_uv(["pip", "compile", Path("/x")], variables={"MINE": "1", "UV_PYTHON_DOWNLOADS": "always"})
    assert started.command[1:] == ["pip", "compile", Path("/x"), "--no-progress", "--color", "never"]
    assert Path(started.command[0]).name == "uv"
    assert (started.folder, started.variables["MINE"]) == (Path("/"), "1")
    assert started.variables["UV_PYTHON_DOWNLOADS"] == "never"
    assert started.variables["UV_PREVIEW_FEATURES"] == "pylock"
    assert "PYTHONPATH" not in started.variables
    assert not started.temporary.exists()
    assert completed.returncode == 3
    assert completed.stdout.startswith("out ")
    assert completed.stderr.startswith("err ")
    assert "secret" not in completed.stdout + completed.stderr


def test_a_missing_uv_is_an_error_with_the_command_that_repairs_it(monkeypatch):
    def missing():
        raise FileNotFoundError

    Run(monkeypatch)
    monkeypatch.setattr("uv.find_uv_bin", missing)
    with pytest.raises(EnvironmentBuildError, match="uv is not installed") as caught:
        run_uv([])
    assert caught.value.kind == "uv-missing"
    assert caught.value.hint
