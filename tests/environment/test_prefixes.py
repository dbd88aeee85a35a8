"""`envpack build --from-prefix`: real virtual environments, taken over."""

import base64
import csv
import hashlib
import json
import os
import shutil
import subprocess
import sys

import pytest

from envpack.archive.folder import place_folder
from envpack.archive.selection import Selection
from envpack.conda.choice import interpreter_for
from envpack.conda.engine import PREFIX_PLACEHOLDER
from envpack.environment.inventory import read_inventory
from envpack.support.errors import EnvironmentBuildError
from tests.built import copied_environment
from tests.environment.prefixes import PYTHON, SITE, changed_hands, refused, said_by, uv
from tests.faults.command_line import listing
from tests.needed_pythons import need
from tests.waiting import settled


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


class TestVirtual:
    def test_a_moved_copy_works_with_an_empty_environment(self, virtual, tmp_path):
        before = listing(virtual)
        environment = copied_environment(virtual)
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
        prefix = copied_environment(virtual).prefix
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
        prefix = copied_environment(virtual).prefix
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
        assert changed_hands(copied_environment(virtual)) == set()

    def test_byte_code_is_made_anew(self, virtual):
        prefix = copied_environment(virtual).prefix
        code = "import leaf, importlib.util as u; print(open(u.cache_from_source(leaf.__file__), 'rb').read(8)[4])"
        assert said_by(prefix / "bin/python3", "-B", "-c", code, prefix=prefix) == "1"  # unchecked hash

    def test_files_for_passwords_stay_where_they_are(self, copied):
        for name in ("pip.conf", ".netrc", "etc/condarc.d/own.yml"):
            (copied / name).parent.mkdir(parents=True, exist_ok=True)
            (copied / name).write_text("[global]\nindex-url = https://me:crocodile-17@host/simple\n")
        prefix = copied_environment(copied).prefix
        assert not [file for file in prefix.rglob("*") if file.is_file() and b"crocodile-17" in file.read_bytes()]
        assert not (prefix / "pip.conf").exists()

    def test_an_unchanged_one_is_not_read_again(self, virtual, monkeypatch):
        first = copied_environment(virtual)
        assert settled(virtual)
        copied_environment(virtual)
        read = []
        monkeypatch.setattr("envpack.environment.prefix_files.sha256_of", read.append)
        again = copied_environment(virtual)
        assert (again.prefix, again.fresh, read) == (first.prefix, False, [])

    @pytest.mark.thorough
    def test_a_change_is_noticed_though_size_and_time_stay(self, copied):
        first = copied_environment(copied)
        assert settled(copied)
        assert copied_environment(copied).prefix == first.prefix
        module = copied / SITE / "leaf.py"
        status = module.stat()
        module.write_text("VALUE = 2\n")
        os.utime(module, ns=(status.st_atime_ns, status.st_mtime_ns))
        second = copied_environment(copied)
        assert second.fresh
        assert said_by(second.prefix / "bin/python3", "-c", "import leaf; print(leaf.VALUE)", prefix=copied) == "2"
        assert said_by(first.prefix / "bin/python3", "-c", "import leaf; print(leaf.VALUE)", prefix=copied) == "1"

    @pytest.mark.thorough
    def test_one_that_was_moved_before_is_the_same(self, virtual, copied):
        assert copied_environment(copied).prefix == copied_environment(virtual).prefix

    @pytest.mark.thorough
    def test_one_that_names_the_folder_above_the_programs_is_the_same(self, virtual, copied):
        home = interpreter_for(PYTHON).executable.parent
        settings = (copied / "pyvenv.cfg").read_text()
        (copied / "pyvenv.cfg").write_text(settings.replace(f"home = {home}\n", f"home = {home.parent}\n"))
        assert f"home = {home.parent}\n" in (copied / "pyvenv.cfg").read_text()
        assert copied_environment(copied).prefix == copied_environment(virtual).prefix

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

    @pytest.mark.parametrize("line", ["/somewhere/else\n", "import sys; sys.path.append('/somewhere/else')\n"])
    def test_a_path_to_somewhere_else_is_refused(self, copied, line):
        (copied / SITE / "outward.pth").write_text(line)
        error = refused(copied, EnvironmentBuildError)
        assert (error.kind, error.where, "pip install FOLDER" in error.hint) == ("points-outside", str(copied), True)

    @pytest.mark.thorough
    def test_a_link_to_somewhere_else_is_refused_when_it_is_placed_unless_it_is_left_out(self, copied, tmp_path):
        (copied / SITE / "outward").symlink_to("/somewhere/else")
        environment = copied_environment(copied)
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
            ("home = ", "home = /nowhere", "prefix-unsupported", "created from cannot be used: there is no Python"),
            ("home = ", "hme = ", "not-a-prefix", "the folder of its Python"),
        ],
    )  # fmt: skip
    def test_what_no_server_could_use_is_refused(self, copied, before, after, kind, says):
        settings = copied / "pyvenv.cfg"
        text = settings.read_text()
        if "implementation" in text and "PyPy" in after:
            before, after = "implementation = CPython", "implementation = PyPy"
        assert before in text
        settings.write_text(text.replace(before, after))
        error = refused(copied)
        assert (error.kind, says in error.message) == (kind, True), error.message

    def test_a_link_in_the_place_of_site_packages_is_refused(self, copied):
        site = copied / SITE
        site.rename(copied / "packages")
        site.symlink_to(copied / "packages")
        error = refused(copied)
        assert (error.kind, error.where) == ("prefix-unsupported", str(site))

    def test_another_python_than_the_models_is_refused(self, virtual):
        assert refused(virtual, python="3.8").kind == "other-python"

    def test_another_machine_than_the_servers_is_refused(self, virtual):
        assert refused(virtual, platform="linux-aarch64").kind == "other-platform"

    @pytest.mark.thorough
    def test_a_newer_system_than_the_servers_is_refused(self, virtual):
        assert refused(virtual, EnvironmentBuildError, glibc="2.4").kind == "glibc-too-old"


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
