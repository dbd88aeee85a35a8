"""`envpack build --from-prefix`: real virtual environments, and conda's as the engine installs them, taken over."""

import base64
import csv
import hashlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from uv import find_uv_bin

from envpack.archive import Selection, place_folder
from envpack.conda.choice import interpreter_for
from envpack.conda.engine import as_request, run_engine
from envpack.conda.install import PREFIX_PLACEHOLDER
from envpack.conda.settings import CondaSettings
from envpack.environment.build import environment_of
from envpack.environment.from_prefix import environment_from_prefix
from envpack.environment.inventory import read_inventory
from envpack.environment.store import MANIFEST
from envpack.lock import LockOptions, lock_requirements
from envpack.requirements import Requirements
from envpack.requirements.target import Target
from envpack.support.errors import EnvironmentBuildError, InputError, UsageError
from envpack.support.progress import NoProgress
from tests.conda_packages import PLACEHOLDER, index, make_conda_package
from tests.faults.command_line import listing
from tests.needed_pythons import need
from tests.waiting import settled
from tests.wheels import make_wheel

PYTHON = "3.10"
SITE = f"lib/python{PYTHON}/site-packages"
TOKEN = "tk-12345"


@pytest.fixture(scope="module")
def wheels(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheels")
    tree = {"tree.py": "import sys, leaf\ndef grow():\n    print(leaf.VALUE, sys.prefix)\n"}
    make_wheel(folder, "leaf", "1.0", {"leaf.py": "VALUE = 1\n"})
    make_wheel(folder, "tree", "1.0", tree, needs=("leaf",), scripts=("grow = tree:grow",))
    return folder


def uv(*words):
    subprocess.run([find_uv_bin(), *words], check=True, capture_output=True, env=os.environ | {"UV_OFFLINE": "1"})


@pytest.fixture(scope="module", params=["venv", "virtualenv", "uv"])
def virtual(request, wheels, tmp_path_factory):
    """A virtual environment made and filled by its own tools."""
    root = tmp_path_factory.mktemp("my envs") / request.param
    python = interpreter_for(need(PYTHON)).executable
    if request.param != "uv":
        maker = {"venv": [python, "-m", "venv"], "virtualenv": [sys.executable, "-m", "virtualenv", "-q", "-p", python]}
        subprocess.run([*maker[request.param], root], check=True, env=os.environ | {"XDG_DATA_HOME": str(root.parent)})
        install = [root / "bin/python", "-m", "pip", "install", "--quiet", "--no-index", "--find-links", wheels, "tree"]
        subprocess.run(install, check=True)
    else:
        uv("venv", "--python", python, root)
        uv("pip", "install", "--python", root / "bin/python", "--no-index", "--find-links", wheels, "tree")
    (root / "share").mkdir(exist_ok=True)
    (root / "share/kernel.json").write_text(json.dumps({"argv": [f"{root}/bin/python", "-m", "x"]}))
    return root


@pytest.fixture
def copied(virtual, tmp_path):
    """A copy of one that a test may change; its files still name the place of the original."""
    return shutil.copytree(virtual, tmp_path / "copied", symlinks=True)


@pytest.fixture(scope="module")
def conda_lock(tmp_path_factory, small_channel):
    """A channel with files that name their prefix, and a lock of it."""
    channel = tmp_path_factory.mktemp("channel")
    shutil.copytree(small_channel.folder, channel, dirs_exist_ok=True)
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
    packages = [as_request(package) for package in conda_lock.conda]
    run_engine(
        {
            "operation": "install",
            "packages": packages,
            "prefix": str(root),
            "subdir": "linux-64",
            "prefix_placeholder": str(root),
            "package_cache": str(tmp_path / "p"),
        }
    )
    assert (root / "etc/rooted.conf").read_text() == f"root = {root}/share\n"
    return root


class Outcomes(NoProgress):
    """Remembers how steps ended."""

    def __init__(self):
        self.said = []

    def end(self, outcome):
        self.said.append(outcome)


def said_by(*words: str | Path, prefix: Path, server: bool = False) -> str:
    """What a program of an environment says with nothing in its environment but, at most, what a server sets."""
    variables = {"PATH": f"{prefix}/bin:/usr/bin"} if server else {}
    done = subprocess.run(words, env=variables, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def refused(root, error=InputError, **how):
    with pytest.raises(error) as caught:
        environment_from_prefix(root, **how)
    assert caught.value.hint
    return caught.value


def changed_hands(environment):
    told = json.loads((environment.prefix / MANIFEST).read_text())["changed_hands"]
    return {(one["path"], one["before"], one["after"]) for one in told}


class TestVirtual:
    def test_a_moved_copy_works_with_an_empty_environment(self, virtual, tmp_path):
        before = listing(virtual)
        environment = environment_from_prefix(virtual)
        assert listing(virtual) == before
        assert environment.python == interpreter_for(PYTHON).version
        moved = shutil.copytree(environment.prefix, tmp_path / "moved", symlinks=True)
        shutil.move(environment.prefix, tmp_path / "away")
        try:
            assert said_by(moved / "bin/python3", "-c", "import tree; tree.grow()", prefix=moved) == f"1 {moved}"
            assert said_by(moved / "bin/grow", prefix=moved, server=True) == f"1 {moved}"
            names = {one.name for one in environment.packages}
            assert names >= {"python", "tree", "leaf"}
        finally:
            shutil.move(tmp_path / "away", environment.prefix)

    def test_nothing_is_shared_with_the_original_or_names_it(self, virtual):
        prefix = environment_from_prefix(virtual).prefix
        files = [file for file in prefix.rglob("*") if file.is_file() and not file.is_symlink()]
        originals = {file.stat().st_ino for file in virtual.rglob("*") if file.is_file()}
        assert [file for file in files if file.stat().st_ino in originals] == []
        assert [file for file in files if os.fsencode(virtual) in file.read_bytes()] == []
        assert json.loads((prefix / "share/kernel.json").read_text())["argv"][0] == f"{PREFIX_PLACEHOLDER}/bin/python"
        entries = {one.path: one for one in read_inventory(prefix)}
        assert (entries["share/kernel.json"].placeholder, entries["share/kernel.json"].package) == ("text", "unknown")
        assert (prefix / "bin/grow").read_bytes().startswith(b"#!/usr/bin/env python3.10\n")
        assert not (prefix / "bin/activate.fish").exists()

    def test_installation_records_are_right(self, virtual):
        prefix = environment_from_prefix(virtual).prefix
        checked = 0
        for record in (prefix / SITE).glob("*.dist-info/RECORD"):
            for path, digest, _ in csv.reader(record.read_text().splitlines()):
                file = prefix / SITE / path
                if not (virtual / SITE / path).exists():
                    continue  # virtualenv records byte code that it does not bring
                assert file.is_file(), path
                assert not path.endswith(".pyc")
                if digest:
                    found = base64.urlsafe_b64encode(hashlib.sha256(file.read_bytes()).digest()).rstrip(b"=").decode()
                    assert digest == f"sha256={found}", path
                    checked += 1
        assert checked > 4
        assert changed_hands(environment_from_prefix(virtual)) == set()

    def test_byte_code_is_made_anew(self, virtual):
        prefix = environment_from_prefix(virtual).prefix
        code = "import leaf, importlib.util as u; print(open(u.cache_from_source(leaf.__file__), 'rb').read(8)[4])"
        assert said_by(prefix / "bin/python3", "-B", "-c", code, prefix=prefix) == "1"  # unchecked hash

    def test_files_for_passwords_stay_where_they_are(self, copied):
        for name in ("pip.conf", ".netrc", "etc/condarc.d/own.yml"):
            (copied / name).parent.mkdir(parents=True, exist_ok=True)
            (copied / name).write_text("[global]\nindex-url = https://me:crocodile-17@host/simple\n")
        prefix = environment_from_prefix(copied).prefix
        assert not [file for file in prefix.rglob("*") if file.is_file() and b"crocodile-17" in file.read_bytes()]
        assert not (prefix / "pip.conf").exists()

    def test_an_unchanged_one_is_not_read_again(self, virtual, monkeypatch):
        first = environment_from_prefix(virtual)
        assert settled(virtual)
        environment_from_prefix(virtual)
        read = []
        monkeypatch.setattr("envpack.environment.prefix_files._digest", read.append)
        again = environment_from_prefix(virtual)
        assert (again.prefix, again.fresh, read) == (first.prefix, False, [])

    @pytest.mark.thorough
    def test_a_change_is_noticed_though_size_and_time_stay(self, copied):
        first = environment_from_prefix(copied)
        assert settled(copied)
        assert environment_from_prefix(copied).prefix == first.prefix
        module = copied / SITE / "leaf.py"
        status = module.stat()
        module.write_text("VALUE = 2\n")
        os.utime(module, ns=(status.st_atime_ns, status.st_mtime_ns))
        second = environment_from_prefix(copied)
        assert second.fresh
        assert said_by(second.prefix / "bin/python3", "-c", "import leaf; print(leaf.VALUE)", prefix=copied) == "2"
        assert said_by(first.prefix / "bin/python3", "-c", "import leaf; print(leaf.VALUE)", prefix=copied) == "1"

    @pytest.mark.thorough
    def test_one_that_was_moved_before_is_the_same(self, virtual, copied):
        assert environment_from_prefix(copied).prefix == environment_from_prefix(virtual).prefix

    def test_an_editable_install_is_refused_by_name(self, copied, tmp_path):
        project = tmp_path / "project"
        (project / "mine").mkdir(parents=True)
        info = copied / SITE / "mine-1.0.dist-info"  # as installers write it, with a finder in place of a path
        info.mkdir()
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: mine\nVersion: 1.0\n")
        (info / "direct_url.json").write_text(
            json.dumps({"url": project.as_uri(), "dir_info": {"editable": True}}, separators=(",", ":"))
        )
        (info / "RECORD").write_text("mine-1.0.dist-info/RECORD,,\n")
        error = refused(copied, EnvironmentBuildError)
        assert (error.kind, error.where) == ("points-outside", str(copied))
        assert "mine is an editable installation" in error.message

    def test_a_path_to_somewhere_else_is_refused(self, copied):
        (copied / SITE / "outward.pth").write_text("/somewhere/else\n")
        assert refused(copied, EnvironmentBuildError).kind == "points-outside"

    @pytest.mark.thorough
    def test_a_link_to_somewhere_else_is_refused_when_it_is_placed_unless_it_is_left_out(self, copied, tmp_path):
        (copied / SITE / "outward").symlink_to("/somewhere/else")
        environment = environment_from_prefix(copied)
        with pytest.raises(EnvironmentBuildError) as caught:
            place_folder(environment, tmp_path / "env")
        error = caught.value
        assert (error.kind, f"{SITE}/outward" in error.message) == ("link-leaves-environment", True)
        assert place_folder(environment, tmp_path / "env", Selection(exclude=("outward",)))

    @pytest.mark.thorough
    @pytest.mark.parametrize(
        ("before", "after", "kind", "says"),
        [
            ("site-packages = false", "site-packages = true", "prefix-unsupported", "of the system"),
            ("home = ", "implementation = PyPy\nhome = ", "prefix-unsupported", "not CPython"),
            ("home = ", "home = /nowhere", "prefix-unsupported", "the Python that it was created from"),
            ("home = ", "hme = ", "not-a-prefix", "the folder of its Python"),
        ],
    )  # fmt: skip
    def test_what_no_server_could_use_is_refused(self, copied, before, after, kind, says):
        settings = copied / "pyvenv.cfg"
        told = settings.read_text()
        if "implementation" in told and "PyPy" in after:
            before, after = "implementation = CPython", "implementation = PyPy"
        assert before in told
        settings.write_text(told.replace(before, after))
        error = refused(copied)
        assert (error.kind, says in error.message) == (kind, True), error.message

    def test_another_python_than_the_models_is_refused(self, virtual):
        assert refused(virtual, python="3.8").kind == "other-python"

    def test_another_machine_than_the_servers_is_refused(self, virtual):
        assert refused(virtual, platform="linux-aarch64").kind == "other-platform"

    @pytest.mark.thorough
    def test_a_newer_system_than_the_servers_is_refused(self, virtual):
        assert refused(virtual, EnvironmentBuildError, glibc="2.4").kind == "glibc-too-old"


class TestConda:
    @pytest.mark.thorough
    def test_it_holds_what_the_same_packages_give_from_a_lock(self, conda, conda_lock, tmp_path):
        taken = environment_from_prefix(conda, cache=tmp_path / "one")
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
        environment = environment_from_prefix(conda)
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
        environment = environment_from_prefix(conda)
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
        first = environment_from_prefix(conda)
        moved = conda.rename(tmp_path / "moved")
        second = environment_from_prefix(moved)
        assert changed_hands(second) == set()
        assert second.prefix == first.prefix

    @pytest.mark.thorough
    def test_one_that_was_rewritten_for_its_place_is_as_its_packages(self, conda, tmp_path):
        """As conda-unpack does it: the records still have the digests from before."""
        first = environment_from_prefix(conda)
        place = tmp_path / "e"
        shutil.copytree(conda, place, symlinks=True)
        old, new = os.fsencode(conda), os.fsencode(place)
        for path in ("etc/rooted.conf", "bin/rooted"):
            (place / path).write_bytes((conda / path).read_bytes().replace(old, new))
        binary = (conda / "lib/rooted.bin").read_bytes()
        strings = [one.replace(old, new).ljust(len(one), b"\0") if old in one else one for one in binary.split(b"\0")]
        (place / "lib/rooted.bin").write_bytes(b"\0".join(strings))
        environment = environment_from_prefix(place)
        assert changed_hands(environment) == set()
        for path in ("etc/rooted.conf", "bin/rooted", "lib/rooted.bin"):
            assert (environment.prefix / path).read_bytes() == (first.prefix / path).read_bytes()

    @pytest.mark.thorough
    def test_packages_of_pip_in_it_are_listed(self, conda, wheels):
        uv("pip", "install", "--python", conda / "bin/python3", "--no-index", "--find-links", wheels, "tree")
        environment = environment_from_prefix(conda)
        sources = {one.name: one.source for one in environment.packages}
        assert sources == {"python": "conda", "rooted": "conda", "module": "conda", "tree": "pip", "leaf": "pip"}
        assert changed_hands(environment) == set()

    @pytest.mark.thorough
    def test_tokens_of_its_channels_are_left_behind(self, conda):
        record = next((conda / "conda-meta").glob("rooted-*.json"))
        told = json.loads(record.read_text())
        told["url"] = f"https://me:{TOKEN}@example.invalid/t/{TOKEN}/channel/linux-64/rooted-1.0-0.conda"
        record.write_text(json.dumps(told))
        (conda / "conda-meta/history").write_text(f"# cmd: conda install -c https://me:{TOKEN}@example.invalid\n")
        prefix = environment_from_prefix(conda).prefix
        files = [file for file in prefix.rglob("*") if file.is_file()]
        assert [file for file in files if TOKEN.encode() in file.read_bytes()] == []

    @pytest.mark.thorough
    def test_environments_and_packages_inside_of_a_base_installation_stay_there(self, conda):
        for folder in ("pkgs", "envs"):
            (conda / folder / "x").mkdir(parents=True)
            (conda / folder / "x/file").write_text("x")
        prefix = environment_from_prefix(conda).prefix
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


@pytest.mark.parametrize("what", ["missing", "empty", "windows"])
def test_anything_else_is_refused_in_one_line(tmp_path, what):
    root = tmp_path / what
    if what != "missing":
        root.mkdir()
    if what == "windows":
        (root / "Scripts").mkdir()
        (root / "pyvenv.cfg").write_text("home = C:\\Python310\nversion = 3.10.1\n")
    error = refused(root)
    assert error.kind == ("other-platform" if what == "windows" else "not-a-prefix")
    assert error.where == str(root)
    assert "\n" not in str(error)


@pytest.mark.thorough
def test_variables_that_conda_would_set_are_named_and_not_their_values(conda):
    (conda / "conda-meta/state").write_text(json.dumps({"version": 1, "env_vars": {"MODEL_TOKEN": TOKEN}}))
    (conda / "etc/conda/env_vars.d").mkdir(parents=True)
    (conda / "etc/conda/env_vars.d/package.json").write_text('{"OF_A_PACKAGE": "1"}')
    (conda / "etc/conda/env_vars.d/damaged.json").write_text("{")
    progress = Outcomes()
    environment_from_prefix(conda, progress=progress)
    (told,) = (outcome for outcome in progress.said if "variables" in outcome)
    assert "MODEL_TOKEN, OF_A_PACKAGE;" in told
    assert TOKEN not in str(progress.said)


def test_nothing_is_said_of_variables_where_there_are_none(conda):
    progress = Outcomes()
    environment_from_prefix(conda, progress=progress)
    assert progress.said
    assert "variables" not in str(progress.said)
