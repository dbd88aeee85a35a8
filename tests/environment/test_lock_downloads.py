"""Channels and indexes that fail, lie or require a password."""

import dataclasses

import pytest

from envpack.conda.settings import read_conda_settings
from envpack.environment.store import MANIFEST, read_environment
from envpack.requirements.model import Requirements
from tests.built import build_environment, environment_of

from .locks import BOTH, lock_for, names, refused
from .sources import PYTHON

SECRET = "s3cret"

pytestmark = pytest.mark.usefixtures("own_index")


class TestNetworkFaults:
    def test_an_incomplete_download_is_retried(self, served, tmp_path):
        lock = lock_for(BOTH, served, tmp_path)
        served.truncated = {"rooted-1.0-0.conda": 1, "tree-1.0-py3-none-any.whl": 1}
        assert environment_of(lock, cache=tmp_path / "other").fresh
        assert served.truncated == {"rooted-1.0-0.conda": 0, "tree-1.0-py3-none-any.whl": 0}

    @pytest.mark.thorough
    @pytest.mark.parametrize(
        ("file", "kind", "named"),
        [
            ("rooted-1.0-0.conda", "channel-unreachable", "rooted 1.0"),
            ("tree-1.0-py3-none-any.whl", "index-unreachable", "tree==1.0"),
        ],
    )
    def test_a_download_that_stays_incomplete_is_named(self, served, tmp_path, file, kind, named):
        lock = lock_for(BOTH, served, tmp_path)
        served.truncated = {file: 99}
        error = refused(environment_of, lock, cache=tmp_path / "other")
        assert (error.kind, named in error.message) == (kind, True)
        assert list((tmp_path / "other/environments").glob("[!.]*")) == []

    @pytest.mark.parametrize(("name", "named"), [("rooted", "rooted 1.0"), ("tree", "tree==1.0")])
    def test_a_package_that_is_not_the_locked_one_is_refused(self, served, tmp_path, name, named):
        lock = lock_for(BOTH, served, tmp_path)
        wrong = {"sha256": "0" * 64}
        lock = dataclasses.replace(
            lock,
            conda=tuple(
                dataclasses.replace(package, **wrong) if package.name == name else package for package in lock.conda
            ),
            pip=tuple(
                dataclasses.replace(package, **wrong) if package.name == name else package for package in lock.pip
            ),
        )
        error = refused(environment_of, lock, cache=tmp_path)
        assert (error.kind, named in error.message) == ("hash-mismatch", True)

    def test_a_channel_that_is_down_is_named(self, served, tmp_path):
        error = refused(lock_for, BOTH, served, tmp_path, channels=("http://127.0.0.1:9/conda",))
        assert error.kind == "channel-unreachable"
        assert "http://127.0.0.1:9/conda" in error.message

    @pytest.mark.thorough
    def test_an_index_that_is_down_is_named_as_such(self, served, tmp_path, monkeypatch):
        monkeypatch.setenv("UV_DEFAULT_INDEX", "http://127.0.0.1:9/simple")
        assert refused(lock_for, BOTH, served, tmp_path).kind == "index-unreachable"

    @pytest.mark.thorough
    def test_slow_responses_are_awaited(self, served, tmp_path):
        served.pause = 0.5
        assert names(lock_for(BOTH, served, tmp_path))["tree"] == "1.0"

    def test_a_package_of_another_machines_local_channel_is_named(self, tmp_path, served):
        lock = lock_for(Requirements(), served, tmp_path)
        url = "file:///nowhere/linux-64/python-3.10.0-local_1.conda"
        gone = dataclasses.replace(lock.conda[0], build="local_1", url=url)
        error = refused(environment_of, dataclasses.replace(lock, conda=(gone,)), cache=tmp_path)
        assert (error.kind, error.where) == ("package-missing", "/nowhere/linux-64/python-3.10.0-local_1.conda")
        assert f"envpack channel add-python {PYTHON} --to FOLDER" in error.hint

    def test_another_package_of_another_machines_channel_is_named(self, tmp_path, served):
        lock = lock_for(Requirements(), served, tmp_path)
        gone = dataclasses.replace(lock.conda[0], build="0", url="file:///nowhere/linux-64/plain-1.0-0.conda")
        error = refused(environment_of, dataclasses.replace(lock, conda=(gone,)), cache=tmp_path)
        assert (error.kind, error.where) == ("package-missing", "/nowhere/linux-64/plain-1.0-0.conda")
        assert "add-python" not in error.hint


class TestSecrets:
    @pytest.fixture
    def locked(self, served):
        served.account = f"me:{SECRET}"
        return served

    @pytest.mark.thorough
    @pytest.mark.parametrize("of_its_own", [False, True])
    def test_passwords_in_addresses_work_and_are_written_to_no_file(self, locked, tmp_path, of_its_own):
        channel = locked.url("/conda", locked.account)
        index = locked.url("/pypi/simple", locked.account)
        where = {"indexes": (("tree", index),)} if of_its_own else {"pip_options": (f"--index-url {index}",)}
        requirements = Requirements(conda=("plain",), pip=("tree",), **where)
        lock = lock_for(requirements, locked, tmp_path, channels=(channel,))
        assert SECRET not in lock.text
        environment = build_environment(requirements, python=PYTHON, channels=(channel,), cache=tmp_path)
        assert environment.fresh
        written = [tmp_path / "solutions", environment.prefix / "conda-meta", environment.prefix / MANIFEST]
        files = [file for path in written for file in (path, *path.rglob("*")) if file.is_file()]
        assert len(files) > 3
        assert [file for file in files if SECRET.encode() in file.read_bytes()] == []

    @pytest.mark.thorough
    def test_passwords_of_condarc_and_of_variables_work(self, locked, tmp_path, monkeypatch):
        condarc = tmp_path / "condarc"
        condarc.write_text(f"channels: ['http://me:${{MY_PASSWORD}}@127.0.0.1:{locked.port}/conda']\n")
        monkeypatch.setenv("CONDARC", str(condarc))
        monkeypatch.setenv("MY_PASSWORD", SECRET)
        monkeypatch.setenv("UV_DEFAULT_INDEX", locked.url("/pypi/simple", locked.account))
        settings = read_conda_settings()
        environment = build_environment(BOTH, python=PYTHON, channels=settings.channels, cache=tmp_path / "cache")
        assert read_environment(environment.prefix) is not None

    @pytest.mark.parametrize("account", ["", "me:wrong-password"])
    def test_a_channel_that_requires_a_password_is_named_without_the_wrong_one(self, locked, tmp_path, account):
        error = refused(lock_for, BOTH, locked, tmp_path, channels=(locked.url("/conda", account),))
        assert error.kind == "channel-forbidden"
        assert "wrong-password" not in str(error) + error.details

    @pytest.mark.parametrize("account", ["", "me:wrong-password"])
    def test_an_index_that_requires_a_password_is_named_without_the_wrong_one(
        self, locked, tmp_path, account, monkeypatch, packaged
    ):
        packaged(PYTHON, tmp_path)
        monkeypatch.setenv("UV_DEFAULT_INDEX", locked.url("/pypi/simple", account))
        error = refused(lock_for, Requirements(pip=("tree",)), locked, tmp_path, channels=("local",))
        assert error.kind == "index-forbidden"
        assert "wrong-password" not in str(error) + error.details
