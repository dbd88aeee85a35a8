"""The index that each package comes from: uv resolves requirements from small indexes on 127.0.0.1."""

import json
import re

import pytest

from envpack.lock.pip import resolve_pip
from envpack.requirements.format import read_requirements
from envpack.requirements.target import Target
from envpack.support.errors import EnvironmentBuildError
from tests.tables import every_row
from tests.web import serve
from tests.wheels import make_wheel, write_index

INDEX_TARGET = Target("linux-64", "3.10")
PROJECT = '[project]\nname = "p"\nversion = "0"\ndependencies = ["leaf"]\n'


@pytest.fixture(scope="module")
def sites(tmp_path_factory):
    """Two indexes with one package of the same name: the public one has the newer version."""
    folders = {name: tmp_path_factory.mktemp(name) for name in ("public", "own")}
    for folder, name, version in (
        ("public", "leaf", "9.0"),
        ("own", "leaf", "1.0"),
        ("own", "twig", "1.0"),
        ("own", "branch", "1.0"),
    ):
        make_wheel(folders[folder] / "files", name, version, {f"{name}.py": ""})
        write_index(folders[folder])
    (folders["own"] / "login" / "leaf").mkdir(parents=True)
    (folders["own"] / "login" / "leaf" / "index.html").write_text("<html><form>Sign in</form></html>")
    with serve(folders["public"]) as public, serve(folders["own"]) as own:
        yield {"public": public.url("/simple"), "own": own.url("/simple"), "server": own}


@pytest.fixture
def own_account(sites, tmp_path, monkeypatch):
    """Let the server of the second index require an account."""
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "cache"))
    sites["server"].account = "me:very-secret"
    yield
    sites["server"].account = ""


@pytest.fixture
def resolve(sites, tmp_path, monkeypatch):
    for name in ("UV_INDEX", "UV_INDEX_URL", "UV_EXTRA_INDEX_URL", "PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("UV_DEFAULT_INDEX", sites["public"])
    monkeypatch.setenv("UV_HTTP_RETRIES", "0")

    def run(name, text):
        for site in ("public", "own"):
            text = text.replace(f"{{{site}}}", sites[site])
        (tmp_path / name).write_text(text)
        packages = resolve_pip(read_requirements(tmp_path / name), INDEX_TARGET)
        return {package.name: package.version for package in packages}

    return run


@every_row(
    ("name", "text", "version"),
    [
        ("requirements.txt", "leaf\n", "9.0"),
        ("requirements.txt", "--index-url {own}\nleaf\n", "1.0"),
        ("requirements.txt", "--extra-index-url {own}\nleaf\n", "1.0"),
        ("environment.yml", "dependencies:\n- pip:\n  - --index-url {own}\n  - leaf\n", "1.0"),
        ("pyproject.toml", PROJECT, "9.0"),
        ("pyproject.toml", PROJECT + '[[tool.uv.index]]\nurl = "{own}"\ndefault = true\n', "1.0"),
        ("pyproject.toml", PROJECT + '[[tool.uv.index]]\nname = "own"\nurl = "{own}"\n', "1.0"),
        ("pyproject.toml", PROJECT + '[[tool.uv.index]]\nname = "own"\nurl = "{own}"\nexplicit = true\n', "9.0"),
        (
            "pyproject.toml",
            PROJECT + '[[tool.uv.index]]\nname = "own"\nurl = "{own}"\nexplicit = true\n'
            '[tool.uv.sources]\nleaf = {index = "own"}\n',
            "1.0",
        ),
        ("pyproject.toml", PROJECT + '[tool.uv]\nindex-url = "{own}"\n', "1.0"),
        (
            "pyproject.toml",
            PROJECT + '[[tool.uv.index]]\nurl = "{own}"\n[tool.uv]\nindex-strategy = "unsafe-best-match"\n',
            "9.0",
        ),
        ("pyproject.toml", PROJECT + '[[tool.pdm.source]]\nname = "pypi"\nurl = "{own}"\n', "1.0"),
        ("pyproject.toml", PROJECT + '[tool.uv]\nconstraint-dependencies = ["leaf<9"]\nindex-url = "{own}"\n', "1.0"),
    ],
)
def test_packages_come_from_the_index_that_the_file_names(resolve, name, text, version):
    assert resolve(name, text) == {"leaf": version}


TWIG_IN_POETRY = """
[[package]]
name = "leaf"
version = "9.0"
groups = ["main"]
files = []
[[package]]
name = "twig"
version = "1.0"
groups = ["main"]
files = []
[package.source]
type = "legacy"
url = "{own}"
reference = "own"
[metadata]
lock-version = "2.1"
python-versions = "*"
"""
SOURCES = [{"name": "first", "url": "{public}"}, {"name": "own", "url": "{own}"}]


@pytest.mark.parametrize("public_first", [True, False])
def test_a_lock_takes_each_package_from_its_own_index(resolve, public_first):
    expected = {"leaf": "9.0", "twig": "1.0"}
    assert resolve("poetry.lock", TWIG_IN_POETRY) == expected
    packages = {"leaf": {"version": "==9.0", "index": "first"}, "twig": {"version": "==1.0", "index": "own"}}
    if public_first:
        del packages["leaf"]["index"]
    lock = json.dumps({"_meta": {"sources": SOURCES[:: 1 if public_first else -1]}, "default": packages}, indent=1)
    assert resolve("Pipfile.lock", lock) == expected


NAMED = PROJECT + '[[tool.uv.index]]\nname = "own-one"\nurl = "{own}"\n'


@every_row(
    ("name", "text", "versions"),
    [
        ("pyproject.toml", NAMED, {"leaf": "1.0"}),
        ("pyproject.toml", NAMED + "default = true\n", {"leaf": "1.0"}),
        (
            "pyproject.toml",
            NAMED + 'explicit = true\n[tool.uv.sources]\nleaf = {index = "own-one"}\n',
            {"leaf": "1.0"},
        ),
        ("poetry.lock", TWIG_IN_POETRY.replace('"own"', '"own-one"'), {"leaf": "9.0", "twig": "1.0"}),
    ],
)
def test_an_index_with_a_name_has_the_account_of_that_name(resolve, own_account, monkeypatch, name, text, versions):
    monkeypatch.setenv("UV_INDEX_OWN_ONE_USERNAME", "me")
    monkeypatch.setenv("UV_INDEX_OWN_ONE_PASSWORD", "very-secret")
    assert resolve(name, text) == versions


@every_row(
    ("name", "text", "kind", "line"),
    [
        ("requirements.txt", "leaf\n--extra-index-url {own}\n", "index-forbidden", 2),
        (
            "pyproject.toml",
            NAMED + 'explicit = true\n[tool.uv.sources]\nleaf = {index = "own-one"}\n',
            "unresolvable",  # of such an index, uv does not say it
            4,
        ),
    ],
)
def test_an_index_that_requires_an_account_is_named(resolve, sites, own_account, tmp_path, name, text, kind, line):
    with pytest.raises(EnvironmentBuildError) as caught:
        resolve(name, text)
    error = caught.value
    assert (error.kind, error.where) == (kind, f"{tmp_path / name}:{line}")
    assert sites["own"] in f"{error.message} {error.hint}"
    assert "~/.netrc" in error.hint


@every_row(
    ("name", "text"),
    [
        ("requirements.txt", "--index-url {own}\nbranch\n"),
        (
            "pyproject.toml",
            PROJECT.replace("leaf", "branch") + '[[tool.uv.index]]\nname = "own"\nurl = "{own}"\nexplicit = true\n'
            '[tool.uv.sources]\nbranch = {index = "own"}\n',
        ),
    ],
)
def test_an_index_may_have_hashes_that_are_no_sha256(resolve, sites, name, text):
    page = sites["server"].folder / "simple/branch/index.html"
    page.write_text(re.sub("sha256=[0-9a-f]+", "md5=d41d8cd98f00b204e9800998ecf8427e", page.read_text()))
    assert resolve(name, text) == {"branch": "1.0"}


def test_a_page_without_files_may_be_a_login(resolve, sites):
    with pytest.raises(EnvironmentBuildError) as caught:
        resolve("requirements.txt", "--index-url {own}/../login\nleaf\n")
    assert (
        caught.value.hint == "the index lists no file of leaf: check its address; a login page may answer in its place"
    )


def test_the_indexes_of_pip_are_used_unless_uv_has_some(resolve, sites, tmp_path, monkeypatch):
    (tmp_path / "pip.conf").write_text(f"[global]\nindex-url = {sites['own']}\n")
    monkeypatch.setenv("PIP_CONFIG_FILE", str(tmp_path / "pip.conf"))
    monkeypatch.setenv("HOME", str(tmp_path))
    assert resolve("requirements.txt", "leaf\n") == {"leaf": "9.0"}
    monkeypatch.delenv("UV_DEFAULT_INDEX")
    assert resolve("requirements.txt", "leaf\n") == {"leaf": "1.0"}


@every_row(
    ("name", "text", "line"),
    [
        ("requirements.txt", "leaf\n--extra-index-url http://127.0.0.1:9/simple\n", 2),
        ("requirements.txt", "--index-url http://me:very-secret@127.0.0.1:9/simple\nleaf\n", 1),
        ("pyproject.toml", PROJECT + '[[tool.uv.index]]\nurl = "http://127.0.0.1:9/simple"\n', 6),
    ],
)
def test_an_index_that_does_not_answer_is_named_with_its_line(resolve, tmp_path, name, text, line):
    with pytest.raises(EnvironmentBuildError) as caught:
        resolve(name, text)
    error = caught.value
    assert error.kind == "index-unreachable"
    assert "127.0.0.1:9/simple does not answer" in error.message
    assert "very-secret" not in str(error)
    assert error.where == f"{tmp_path / name}:{line}"


def test_a_proxy_that_does_not_answer_is_named_with_the_index(resolve, monkeypatch):
    for name in ("http_proxy", "no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HTTP_PROXY", "http://me:very-secret@127.0.0.1:9")
    with pytest.raises(EnvironmentBuildError) as caught:
        resolve("requirements.txt", "--index-url http://index.invalid/simple\nleaf\n")
    error = caught.value
    assert error.message.startswith(
        "the package index http://index.invalid/simple does not answer through the proxy http://***@127.0.0.1:9: "
    )
    assert error.hint.startswith("correct HTTP_PROXY or HTTPS_PROXY")
