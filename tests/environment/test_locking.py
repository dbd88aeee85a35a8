"""Locks from real solves, and environments from locks alone: a channel and an index that tests serve on 127.0.0.1."""

import dataclasses
import hashlib
import json
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from envpack.archive import pack_archive, place_folder
from envpack.archive.inspection import inspect_environment
from envpack.conda.install import PREFIX_PLACEHOLDER
from envpack.conda.settings import CondaSettings, read_conda_settings
from envpack.environment import build_environment, read_environment
from envpack.environment.build import environment_of
from envpack.environment.inventory import read_inventory
from envpack.environment.store import MANIFEST
from envpack.lock import LockOptions, format_lock, lock_requirements, read_lock, write_lock
from envpack.requirements import Requirements
from envpack.requirements.target import Target
from envpack.support.errors import EnvironmentBuildError, UsageError
from envpack.support.progress import NoProgress
from tests.web import serve
from tests.wheels import make_wheel, write_index

from .sources import PYTHON

SECRET = "s3cret"

pytestmark = pytest.mark.usefixtures("own_index")


def lock_for(requirements, served, cache, **options):
    target = options.pop("target", Target("linux-64", PYTHON, "2.35", "12.6"))
    channels = options.pop("channels", (served.url("/conda"),))
    lock_options = LockOptions(channels=channels, settings=CondaSettings(), cache=cache, **options)
    return lock_requirements(requirements, target, lock_options, NoProgress())


def names(lock):
    return {package.name: package.version for package in (*lock.conda, *lock.pip)}


def refused(call, *args, **kwargs):
    with pytest.raises(EnvironmentBuildError) as caught:
        call(*args, **kwargs)
    return caught.value


BOTH = Requirements(conda=("rooted", "plain <1.1"), pip=("tree", "leaf<1.1"))


def test_a_lock_names_every_package_with_address_and_hash(served, tmp_path):
    lock = lock_for(BOTH, served, tmp_path)
    assert names(lock) == {
        "python": lock.conda[1].version,
        "rooted": "1.0",
        "plain": "1.0",
        "tree": "1.0",
        "leaf": "1.0",
    }
    assert all(
        package.url.startswith(served.url()) and len(package.sha256) == 64 for package in (*lock.conda, *lock.pip)
    )


def test_two_machines_make_the_same_files_from_one_lock(served, tmp_path):
    write_lock(lock_for(BOTH, served, tmp_path / "a"), tmp_path / "envpack.lock")
    lock = read_lock(tmp_path / "envpack.lock")
    first = environment_of(lock, cache=tmp_path / "a")
    second = environment_of(lock, cache=tmp_path / "much/longer/path with spaces/ü/b")
    assert (first.prefix / MANIFEST).read_bytes() == (second.prefix / MANIFEST).read_bytes()
    assert read_inventory(first.prefix) == read_inventory(second.prefix)


def test_rattler_reads_the_lock(served, tmp_path):
    write_lock(lock_for(BOTH, served, tmp_path), tmp_path / "envpack.lock")
    code = (
        "import sys, os, json, rattler\n"
        "found = rattler.LockFile.from_path(sys.argv[1]).default_environment()\n"
        "platform = found.platforms()[0]\n"
        "conda = found.conda_repodata_records_for_platform(platform)\n"
        "conda = [[package.name.normalized, package.sha256.hex()] for package in conda]\n"
        "pip = [[package.name, package.location] for package in found.pypi_packages_for_platform(platform)]\n"
        "print(json.dumps([sorted(conda), sorted(pip)]), flush=True)\n"
        "os._exit(0)\n"  # rattler can crash when its process exits
    )
    completed = subprocess.run(
        [sys.executable, "-c", code, tmp_path / "envpack.lock"], capture_output=True, text=True, check=True
    )
    lock = read_lock(tmp_path / "envpack.lock")
    assert json.loads(completed.stdout) == [
        [[package.name, package.sha256] for package in lock.conda],
        [[package.name, package.url] for package in lock.pip],
    ]


def test_packages_resolved_by_another_engine_are_installed_from_the_lock(served, tmp_path, monkeypatch):
    """The program is a script that reports what rattler resolved; micromamba is not installed here."""
    known = lock_for(BOTH, served, tmp_path)
    report = {"success": True, "actions": {"LINK": [dataclasses.asdict(package) for package in known.conda]}}
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/micromamba").write_text(f"#!{sys.executable}\nprint({json.dumps(report)!r})\n")
    (tmp_path / "bin/micromamba").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"), prepend=":")
    lock = lock_for(BOTH, served, tmp_path, engine="micromamba")
    assert format_lock(lock) == format_lock(known)
    assert environment_of(lock, cache=tmp_path).fresh


def test_the_same_requirements_are_resolved_once(served, tmp_path):
    how = {"python": PYTHON, "channels": (served.url("/conda"),), "cache": tmp_path}
    first = build_environment(BOTH, **how)
    served.requested.clear()
    assert build_environment(BOTH, **how).prefix == first.prefix
    assert served.requested == []


def test_a_lock_is_installed_without_the_network_once_the_cache_has_its_packages(served, tmp_path, monkeypatch):
    lock = lock_for(BOTH, served, tmp_path)
    shutil.rmtree(environment_of(lock, cache=tmp_path).prefix)
    served.requested.clear()
    monkeypatch.setenv("UV_OFFLINE", "1")
    assert environment_of(lock, cache=tmp_path).fresh
    assert served.requested == []


def test_wheels_in_the_cache_are_not_requested_again(served, tmp_path):
    lock = lock_for(BOTH, served, tmp_path)
    without_tree = dataclasses.replace(lock, pip=tuple(package for package in lock.pip if package.name != "tree"))
    environment_of(without_tree, cache=tmp_path)
    served.requested.clear()
    built = environment_of(lock, cache=tmp_path)
    assert {package.name for package in built.packages if package.source == "pip"} == {
        package.name for package in lock.pip
    }
    assert {path.rpartition("/")[2].partition("-")[0] for path in served.requested} == {"tree"}


def test_what_an_incomplete_cache_lacks_is_named_without_the_network(served, tmp_path, monkeypatch):
    lock = lock_for(BOTH, served, tmp_path)
    monkeypatch.setenv("UV_OFFLINE", "1")
    error = refused(environment_of, dataclasses.replace(lock, pip=lock.pip[:1]), cache=tmp_path)
    assert error.kind == "not-in-cache", error.details
    assert "leaf==1.0" in error.message
    assert list((tmp_path / "environments").glob("[!.]*")) == []


def test_update_frees_one_package_and_leaves_the_others(served, tmp_path):
    old = lock_for(Requirements(pip=("tree", "leaf<1.1")), served, tmp_path)
    again = lock_for(Requirements(pip=("tree",)), served, tmp_path, previous=old)
    assert names(again)["leaf"] == "1.0"
    fresh = lock_for(Requirements(pip=("tree",)), served, tmp_path, previous=old, update=("leaf",))
    assert names(fresh)["leaf"] == "1.1"  # 1.2 is yanked


def test_update_frees_a_conda_package(served, tmp_path):
    old = lock_for(Requirements(conda=("plain <1.1",)), served, tmp_path)
    assert names(lock_for(Requirements(conda=("plain",)), served, tmp_path, previous=old))["plain"] == "1.0"
    freed = lock_for(Requirements(conda=("plain",)), served, tmp_path, previous=old, update=("plain",))
    assert names(freed)["plain"] == "1.1"


def test_update_of_something_that_is_not_locked_is_refused(served, tmp_path):
    old = lock_for(Requirements(conda=("plain",)), served, tmp_path)
    with pytest.raises(UsageError) as caught:
        lock_for(Requirements(conda=("plain",)), served, tmp_path, previous=old, update=("leaf",))
    assert caught.value.kind == "not-locked"


def test_a_yanked_version_is_chosen_only_by_its_exact_number(served, tmp_path):
    assert names(lock_for(Requirements(pip=("leaf",)), served, tmp_path))["leaf"] == "1.1"
    assert names(lock_for(Requirements(pip=("leaf==1.2",)), served, tmp_path))["leaf"] == "1.2"


def test_pip_takes_what_conda_provides(served, tmp_path):
    lock = lock_for(Requirements(conda=("shared",), pip=("uses-shared",)), served, tmp_path)
    assert names(lock)["shared"] == "2.0"
    assert [package.name for package in lock.pip] == ["uses-shared"]
    assert environment_of(lock, cache=tmp_path).fresh


def test_files_that_pip_takes_from_conda_are_listed(served, tmp_path):
    lock = lock_for(Requirements(conda=("shared",), pip=("uses-shared", "shared")), served, tmp_path)
    environment = environment_of(lock, cache=tmp_path)
    prefix = environment.prefix
    assert {(package.name, package.version, package.source) for package in environment.packages} >= {
        ("shared", "3.0", "pip")
    }
    assert ("shared", "2.0") not in {(package.name, package.version) for package in environment.packages}
    assert (prefix / f"lib/python{PYTHON}/site-packages/shared/__init__.py").read_text() == "VALUE = 'pip'\n"
    changed = json.loads((prefix / MANIFEST).read_text())["changed_hands"]
    module = f"lib/python{PYTHON}/site-packages/shared/__init__.py"
    assert {"path": module, "before": "conda shared", "after": "pip shared"} in changed


def test_a_conda_package_too_old_for_a_pip_package_is_an_error_that_names_both(served, tmp_path):
    lock = lock_for(Requirements(conda=("shared",), pip=("wants-new-shared",)), served, tmp_path)
    error = refused(environment_of, lock, cache=tmp_path)
    assert error.kind == "inconsistent"
    assert "wants-new-shared" in error.message
    assert "shared>=3" in error.message


def test_a_pth_file_that_points_outside_is_an_error_that_names_its_package(served, tmp_path):
    error = refused(environment_of, lock_for(Requirements(pip=("outward",)), served, tmp_path), cache=tmp_path)
    assert error.kind == "points-outside"
    assert "outward.pth of outward points to /somewhere/else" in error.message


def test_byte_code_belongs_to_the_version_for_any_spelling_of_the_name(served, tmp_path):
    """The package has another spelling in conda, and two versions with the same files."""
    versions = []
    for version in ("1.0", "1.1"):
        lock = lock_for(Requirements(conda=(f"under_scored =={version}",)), served, tmp_path)
        prefix = environment_of(lock, cache=tmp_path).prefix
        code = "import under_scored; print(under_scored.VALUE, under_scored.__cached__)"
        done = subprocess.run([prefix / "bin/python3", "-c", code], env={}, capture_output=True, text=True, check=True)
        versions.append(done.stdout.split()[0])
        assert Path(done.stdout.split()[1]).is_file()
    assert versions == ["1.0", "1.1"]


def test_files_contain_a_placeholder_for_the_unknown_prefix(served, tmp_path):
    environment = environment_of(lock_for(BOTH, served, tmp_path), cache=tmp_path)
    placeholders = {
        package.path: package.placeholder for package in read_inventory(environment.prefix) if package.placeholder
    }
    assert placeholders == {"etc/rooted.conf": "text", "lib/rooted.bin": "binary"}
    assert (environment.prefix / "etc/rooted.conf").read_text() == f"root = {PREFIX_PLACEHOLDER}/share\n"
    assert (environment.prefix / "bin/rooted").read_bytes().startswith(b"#!/usr/bin/env python3.10\nprint(")


def test_a_placed_environment_names_its_folder_and_an_archive_none(served, tmp_path, monkeypatch):
    monkeypatch.setenv("ENVPACK_CACHE_DIR", str(tmp_path))
    environment = environment_of(lock_for(BOTH, served, tmp_path), cache=tmp_path)
    here, there = tmp_path / "m/env", tmp_path / "n/env"
    assert place_folder(environment, here)
    assert place_folder(environment, there, served_as="/models/n/env")
    assert (here / "etc/rooted.conf").read_text() == f"root = {here}/share\n"
    assert (there / "etc/rooted.conf").read_text() == "root = /models/n/env/share\n"
    assert b"\x01/models/n/env/share\0\0" in (there / "lib/rooted.bin").read_bytes()
    assert (environment.prefix / "etc/rooted.conf").read_text() == f"root = {PREFIX_PLACEHOLDER}/share\n"
    assert not place_folder(environment, there, served_as="/models/n/env")
    for folder in (here, there):
        assert inspect_environment(folder).findings == []
    pack_archive(environment, tmp_path / "env.tar")
    with tarfile.open(tmp_path / "env.tar") as archive:
        assert PREFIX_PLACEHOLDER.encode() in archive.extractfile("etc/rooted.conf").read()


def test_a_local_project_is_built_to_a_wheel_and_rebuilt_when_it_changes(served, tmp_path, monkeypatch):
    monkeypatch.delenv("UV_DEFAULT_INDEX")  # its build system comes from the real one
    project = tmp_path / "my project"
    project.mkdir()
    (project / "pyproject.toml").write_text(
        "[build-system]\nrequires = ['flit_core']\nbuild-backend = 'flit_core.buildapi'\n"
        "[project]\nname = 'mine'\nversion = '1.0'\ndescription = 'x'\n"
    )
    (project / "mine.py").write_text('"""Mine."""\nVALUE = 1\n')
    how = {"python": PYTHON, "channels": (served.url("/conda"),), "cache": tmp_path / "cache"}
    first = build_environment(Requirements(projects=(project,)), **how)
    module = f"lib/python{PYTHON}/site-packages/mine.py"
    assert not (first.prefix / module).is_symlink()
    assert (first.prefix / module).read_text() == '"""Mine."""\nVALUE = 1\n'
    assert list(first.prefix.rglob("direct_url.json")) == []
    (project / "mine.py").write_text('"""Mine."""\nVALUE = 2\n')
    second = build_environment(Requirements(projects=(project,)), **how)
    assert (second.prefix / module).read_text().endswith("VALUE = 2\n")


def test_cuda_comes_from_the_target_not_from_this_machine(served, tmp_path):
    assert names(lock_for(Requirements(conda=("gpu",)), served, tmp_path))["gpu"] == "1.0"
    old = Target("linux-64", PYTHON, "2.35", "11.8")
    error = refused(lock_for, Requirements(conda=("gpu",)), served, tmp_path, target=old)
    assert error.kind == "unresolvable"
    assert "'gpu'" in error.message


@pytest.mark.parametrize("digest", [f"sha256:{'0' * 64}", f"sha512:{'0' * 128}"])
def test_hashes_of_requirements_are_held_to(served, tmp_path, digest):
    error = refused(lock_for, Requirements(pip=(f"leaf==1.1 --hash={digest}",)), served, tmp_path)
    assert error.kind == "hash-mismatch"
    assert "leaf" in error.message


def test_a_wheel_of_another_platform_alone_is_no_choice(served, tmp_path):
    error = refused(lock_for, Requirements(pip=("armed",)), served, tmp_path)
    assert error.kind == "wheel-missing"
    assert "'armed'" in error.message


def test_an_environment_for_another_machine_gets_its_wheels_and_byte_code_of_this_one(served, tmp_path):
    environment = build_environment(
        Requirements(pip=("armed",)), python=PYTHON, channels=(served.url("/conda"),), platform="linux-aarch64",
        cache=tmp_path,
    )  # fmt: skip
    assert (environment.platform, environment.python) == ("linux-aarch64", "3.10.99")
    assert {package.name for package in environment.packages} == {"python", "armed"}
    assert (environment.prefix / "bin/arm").read_text().startswith("#!/usr/bin/env python3.10\n")
    for module in ("lib/python3.10/__pycache__/os", "lib/python3.10/site-packages/__pycache__/armed"):
        assert (environment.prefix / f"{module}.cpython-310.pyc").is_file()


def test_the_local_channel_has_nothing_for_other_machines(served, tmp_path):
    with pytest.raises(UsageError) as caught:
        lock_for(BOTH, served, tmp_path, channels=("local",), target=Target("linux-aarch64", PYTHON, "2.35"))
    assert caught.value.kind == "no-channel"


def test_stripped_environments_work_and_have_another_key(served, tmp_path):
    lock = lock_for(Requirements(pip=("tree",)), served, tmp_path)
    plain = environment_of(lock, cache=tmp_path)
    small = environment_of(lock, cache=tmp_path, strip=True)
    assert small.key != plain.key
    code = "import ssl, sqlite3, ctypes, tree; print(tree.VALUE)"
    completed = subprocess.run(
        [small.prefix / "bin/python3", "-I", "-c", code], capture_output=True, text=True, check=True
    )
    assert completed.stdout == "1\n"
    assert environment_of(lock, cache=tmp_path).content == plain.content


def test_a_local_channel_that_is_gone_is_made_again(served, tmp_path, packaged):
    packaged(PYTHON, tmp_path)
    first = build_environment(Requirements(), python=PYTHON, cache=tmp_path)
    shutil.rmtree(tmp_path / "channel")
    shutil.rmtree(tmp_path / "conda-packages")
    shutil.rmtree(first.prefix)
    assert build_environment(Requirements(), python=PYTHON, cache=tmp_path).content == first.content


def test_sources_are_built_only_where_that_is_allowed(served, tmp_path):
    error = refused(lock_for, Requirements(pip=("sourced",)), served, tmp_path)
    assert (error.kind, "'sourced'" in error.message) == ("wheel-missing", True)
    assert "--allow-source sourced" in error.hint
    lock = lock_for(Requirements(pip=("sourced", "tree")), served, tmp_path, sources=("sourced",))
    assert [package.url.rpartition("/")[2] for package in lock.pip if package.name == "sourced"] == [
        "sourced-1.0.tar.gz"
    ]
    prefix = environment_of(lock, cache=tmp_path).prefix
    assert (prefix / f"lib/python{PYTHON}/site-packages/sourced.py").read_text() == "VALUE = 'built'\n"


def test_a_source_that_cannot_be_built_is_named_with_the_output_of_its_build(served, tmp_path):
    lock = lock_for(Requirements(pip=("unbuildable",)), served, tmp_path, sources=(":all:",))
    error = refused(environment_of, lock, cache=tmp_path)
    assert (error.kind, "unbuildable" in error.message) == ("build-failed", True)
    assert "command 'gcc' failed" in error.details


def test_an_index_without_hashes_is_locked_by_the_hash_of_the_file(served, tmp_path, monkeypatch):
    wheel = make_wheel(tmp_path / "index/files", "bare", "1.0", {"bare.py": ""})
    write_index(tmp_path / "index", hashes=False)
    with serve(tmp_path / "index") as site:
        monkeypatch.setenv("UV_DEFAULT_INDEX", site.url("/simple"))
        lock = lock_for(Requirements(pip=("bare",)), served, tmp_path / "cache")
    assert [package.sha256 for package in lock.pip] == [hashlib.sha256(wheel.read_bytes()).hexdigest()]


def test_a_damaged_remembered_lock_is_ignored(served, tmp_path):
    how = {"python": PYTHON, "channels": (served.url("/conda"),), "cache": tmp_path}
    first = build_environment(BOTH, **how)
    (remembered,) = (tmp_path / "solutions").glob("*.lock")
    remembered.write_text("damaged")
    assert build_environment(BOTH, **how).prefix == first.prefix


class TestNetworkFaults:
    def test_an_incomplete_download_is_retried(self, served, tmp_path):
        lock = lock_for(BOTH, served, tmp_path)
        served.truncated = {"rooted-1.0-0.conda": 1, "tree-1.0-py3-none-any.whl": 1}
        assert environment_of(lock, cache=tmp_path / "other").fresh
        assert served.truncated == {"rooted-1.0-0.conda": 0, "tree-1.0-py3-none-any.whl": 0}

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

    def test_an_index_that_is_down_is_named_as_such(self, served, tmp_path, monkeypatch):
        monkeypatch.setenv("UV_DEFAULT_INDEX", "http://127.0.0.1:9/simple")
        assert refused(lock_for, BOTH, served, tmp_path).kind == "index-unreachable"

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

    def test_passwords_in_addresses_work_and_are_written_to_no_file(self, locked, tmp_path):
        channel = locked.url("/conda", locked.account)
        requirements = Requirements(
            conda=("plain",), pip=("tree",),
            pip_options=(f"--index-url {locked.url('/pypi/simple', locked.account)}",),
        )  # fmt: skip
        lock = lock_for(requirements, locked, tmp_path, channels=(channel,))
        assert SECRET not in format_lock(lock)
        environment = build_environment(requirements, python=PYTHON, channels=(channel,), cache=tmp_path)
        assert environment.fresh
        written = [tmp_path / "solutions", environment.prefix / "conda-meta", environment.prefix / MANIFEST]
        files = [file for path in written for file in (path, *path.rglob("*")) if file.is_file()]
        assert len(files) > 3
        assert [file for file in files if SECRET.encode() in file.read_bytes()] == []

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
