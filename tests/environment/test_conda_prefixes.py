"""`envpack build --from-prefix`: conda environments, as the engine installs them, taken over."""

import json
import os
import shutil

import pytest

from envpack.conda.engine import PREFIX_PLACEHOLDER, run_engine
from envpack.conda.settings import CondaSettings
from envpack.environment.inventory import read_inventory
from envpack.lock.resolve import LockOptions, lock_requirements
from envpack.requirements.model import Requirements
from envpack.requirements.target import Target
from envpack.support.errors import UsageError
from envpack.support.progress import NoProgress
from tests.built import copied_environment, environment_of
from tests.conda_packages import PLACEHOLDER, index, make_conda_package
from tests.environment.prefixes import PYTHON, TOKEN, changed_hands, refused, said_by, uv
from tests.faults.command_line import listing
from tests.steps import Steps


@pytest.fixture(scope="module")
def conda_lock(tmp_path_factory, small_channel):
    """A channel with files that name their prefix, and a lock of it."""
    channel = tmp_path_factory.mktemp("channel")
    shutil.copytree(small_channel.channel, channel, dirs_exist_ok=True)
    name = PLACEHOLDER.encode()
    rooted = {
        "etc/rooted.conf": b"root = " + name + b"/share\n",
        "lib/rooted.bin": b"\1" + name + b"/a:" + name + b"/b\0end\0" + name + b"\0tail\0",
        "bin/rooted": b"#!" + name + b"/bin/python\nimport sys\nprint('rooted', sys.prefix)\n",
        "share/plain": b"plain\n",
        "share/other": b"other\n",
    }
    make_conda_package(channel, "rooted", "1.0", rooted)
    module = {"site-packages/module.py": b"VALUE = 1\n"}
    make_conda_package(channel, "module", "1.0", module, noarch="python", depends=("python",))
    how = LockOptions(
        channels=(index(channel),), settings=CondaSettings(), cache=tmp_path_factory.mktemp("conda-cache")
    )
    target = Target("linux-64", PYTHON, "2.35")
    return lock_requirements(Requirements(conda=("rooted", "module")), target, how, NoProgress())


@pytest.fixture
def conda(conda_lock, tmp_path):
    """A conda environment as its tools install it: files name the folder that they lie in."""
    root = tmp_path / "somebody's conda" / "env"
    run_engine(
        "install",
        packages=conda_lock.conda,
        prefix=str(root),
        subdir="linux-64",
        prefix_placeholder=str(root),
        package_cache=str(tmp_path / "p"),
        patience=600,
    )
    assert (root / "etc/rooted.conf").read_text() == f"root = {root}/share\n"
    return root


class TestConda:
    @pytest.mark.thorough
    def test_it_holds_what_the_same_packages_give_from_a_lock(self, conda, conda_lock, tmp_path):
        taken = copied_environment(conda)
        built = environment_of(conda_lock, cache=tmp_path / "other")
        records = ("conda-meta/",)
        left, right = (
            # Byte code is made together with that of other files, on which its bytes depend.
            {
                one._replace(sha256="") if one.path.endswith(".pyc") else one
                for one in read_inventory(found.prefix)
                if not one.path.startswith(records)
            }
            for found in (taken, built)
        )
        assert left ^ right == set()
        assert {one.path: one.placeholder for one in left if one.placeholder} == {
            "etc/rooted.conf": "text",
            "lib/rooted.bin": "binary",
        }
        assert changed_hands(taken) == set()
        assert {(one.name, one.version) for one in taken.packages} == {
            (one.name, one.version) for one in built.packages
        }

    def test_a_moved_copy_works_and_the_original_stays(self, conda, tmp_path):
        before = listing(conda)
        environment = copied_environment(conda)
        assert listing(conda) == before
        inodes = {file.stat().st_ino for file in conda.rglob("*") if file.is_file()}
        files = [file for file in environment.prefix.rglob("*") if file.is_file()]
        assert [file for file in files if file.stat().st_ino in inodes] == []
        moved = shutil.copytree(environment.prefix, tmp_path / "moved", symlinks=True)
        shutil.rmtree(conda)
        assert said_by(moved / "bin/rooted", prefix=moved, server=True) == f"rooted {moved}"
        assert said_by(moved / "bin/python3", "-c", "import module, ssl; print(module.VALUE)", prefix=moved) == "1"

    @pytest.mark.thorough
    def test_what_differs_from_its_package_is_listed(self, conda):
        (conda / "share/plain").write_text("edited\n")
        (conda / "share/other").unlink()
        (conda / "etc/rooted.conf").write_text(f"root = {conda}/share\nmore = 1\n")
        (conda / "share/mine").write_text("mine\n")
        environment = copied_environment(conda)
        assert changed_hands(environment) == {
            ("share/plain", "conda rooted", "unknown"),
            ("share/other", "conda rooted", ""),
            ("etc/rooted.conf", "conda rooted", "unknown"),
        }
        assert (environment.prefix / "share/plain").read_text() == "edited\n"
        assert (environment.prefix / "etc/rooted.conf").read_text() == f"root = {PREFIX_PLACEHOLDER}/share\nmore = 1\n"
        entries = {one.path: one.package for one in read_inventory(environment.prefix)}
        assert (entries["share/mine"], entries["share/plain"]) == ("unknown", "rooted")

    @pytest.mark.thorough
    def test_one_that_was_moved_still_names_its_old_place_and_is_understood(self, conda, tmp_path):
        first = copied_environment(conda)
        moved = conda.rename(tmp_path / "moved")
        second = copied_environment(moved)
        assert changed_hands(second) == set()
        assert second.prefix == first.prefix

    @pytest.mark.thorough
    def test_one_that_was_rewritten_for_its_place_is_as_its_packages(self, conda, tmp_path):
        """As conda-unpack does it: the records still have the digests from before."""
        first = copied_environment(conda)
        place = tmp_path / "e"
        shutil.copytree(conda, place, symlinks=True)
        old, new = os.fsencode(conda), os.fsencode(place)
        for path in ("etc/rooted.conf", "bin/rooted"):
            (place / path).write_bytes((conda / path).read_bytes().replace(old, new))
        binary = (conda / "lib/rooted.bin").read_bytes()
        strings = [one.replace(old, new).ljust(len(one), b"\0") if old in one else one for one in binary.split(b"\0")]
        (place / "lib/rooted.bin").write_bytes(b"\0".join(strings))
        environment = copied_environment(place)
        assert changed_hands(environment) == set()
        for path in ("etc/rooted.conf", "bin/rooted", "lib/rooted.bin"):
            assert (environment.prefix / path).read_bytes() == (first.prefix / path).read_bytes()

    @pytest.mark.thorough
    def test_packages_of_pip_in_it_are_listed(self, conda, wheels):
        uv("pip", "install", "--python", conda / "bin/python3", "--no-index", "--find-links", wheels, "tree")
        environment = copied_environment(conda)
        sources = {one.name: one.source for one in environment.packages}
        assert sources == {"python": "conda", "rooted": "conda", "module": "conda", "tree": "pip", "leaf": "pip"}
        assert changed_hands(environment) == set()

    @pytest.mark.thorough
    def test_tokens_of_its_channels_are_left_behind(self, conda):
        record = next((conda / "conda-meta").glob("rooted-*.json"))
        content = json.loads(record.read_text())
        content["url"] = f"https://me:{TOKEN}@example.invalid/t/{TOKEN}/channel/linux-64/rooted-1.0-0.conda"
        record.write_text(json.dumps(content))
        (conda / "conda-meta/history").write_text(f"# cmd: conda install -c https://me:{TOKEN}@example.invalid\n")
        prefix = copied_environment(conda).prefix
        files = [file for file in prefix.rglob("*") if file.is_file()]
        assert [file for file in files if TOKEN.encode() in file.read_bytes()] == []

    @pytest.mark.thorough
    def test_environments_and_packages_inside_of_a_base_installation_stay_there(self, conda):
        for folder in ("pkgs", "envs"):
            (conda / folder / "x").mkdir(parents=True)
            (conda / folder / "x/file").write_text("x")
        prefix = copied_environment(conda).prefix
        assert not (prefix / "pkgs").exists()
        assert not (prefix / "envs").exists()

    @pytest.mark.thorough
    @pytest.mark.parametrize(
        ("change", "kind", "says"),
        [
            ({"subdir": "osx-arm64"}, "other-platform", "osx-arm64"),
            ({"subdir": "linux-aarch64"}, "other-platform", "linux-aarch64"),
            ({"build": "0_73_pypy"}, "prefix-unsupported", "not CPython"),
            ({"name": "python-like"}, "prefix-unsupported", "no Python"),
        ],
    )
    def test_what_no_server_could_use_is_refused(self, conda, change, kind, says):
        record = next((conda / "conda-meta").glob("python-*.json"))
        record.write_text(json.dumps(json.loads(record.read_text()) | change))
        error = refused(conda)
        assert (error.kind, says in error.message) == (kind, True)

    @pytest.mark.thorough
    def test_a_python_of_no_supported_version_is_refused(self, conda):
        record = next((conda / "conda-meta").glob("python-*.json"))
        record.write_text(json.dumps(json.loads(record.read_text()) | {"version": "3.5.1"}))
        assert refused(conda, UsageError).kind == "bad-python-version"

    @pytest.mark.parametrize("content", ["{", "[]", '{"name": 3}', "\0"])
    def test_a_damaged_record_is_named(self, conda, content):
        (conda / "conda-meta/broken.json").write_text(content)
        error = refused(conda)
        assert (error.kind, error.where) == ("not-a-prefix", str(conda / "conda-meta/broken.json"))


@pytest.mark.thorough
def test_variables_that_conda_would_set_are_named_and_not_their_values(conda):
    (conda / "conda-meta/state").write_text(json.dumps({"version": 1, "env_vars": {"MODEL_TOKEN": TOKEN}}))
    (conda / "etc/conda/env_vars.d").mkdir(parents=True)
    (conda / "etc/conda/env_vars.d/package.json").write_text('{"OF_A_PACKAGE": "1"}')
    (conda / "etc/conda/env_vars.d/damaged.json").write_text("{")
    progress = Steps()
    copied_environment(conda, progress=progress)
    (warning,) = (outcome for outcome in progress.seen if "variables" in outcome)
    assert "MODEL_TOKEN, OF_A_PACKAGE;" in warning
    assert TOKEN not in str(progress.seen)


def test_nothing_is_said_of_variables_where_there_are_none(conda):
    progress = Steps()
    copied_environment(conda, progress=progress)
    assert progress.seen
    assert "variables" not in str(progress.seen)
