"""Environments of unusual sizes, names and places."""

import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from envpack.archive.folder import place_folder
from envpack.archive.inspection import inspect_environment
from envpack.archive.tarball import pack_archive
from envpack.requirements.model import Requirements
from tests.built import build_environment
from tests.needed_pythons import need
from tests.wheels import make_wheel, write_index

PYTHON = "3.10"
MANY = 100_000


@pytest.fixture
def index(tmp_path, monkeypatch):
    """Builds an environment of wheels that a test has made."""
    root = tmp_path / "index"

    def build(name, files):
        make_wheel(root / "files", name, "1.0", files)
        write_index(root)
        monkeypatch.setenv("UV_DEFAULT_INDEX", (root / "simple").as_uri())
        monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "uv"))
        return build_environment(Requirements(pip=(name,)), python=need(PYTHON))

    return build


def started(folder: Path, code: str) -> str:
    """What the Python of a placed environment says, with nothing else set."""
    said = subprocess.run([folder / "bin/python3", "-c", code], env={}, capture_output=True, text=True, check=False)
    assert said.returncode == 0, said.stderr
    return said.stdout.strip()


@pytest.mark.thorough
def test_a_hundred_thousand_files(index, tmp_path):
    files = {f"many/part_{number // 1000}/file_{number}.txt": "x" for number in range(MANY)}
    environment = index("many", files | {"many/__init__.py": ""})
    assert place_folder(environment, tmp_path / "m/env")
    found = inspect_environment(tmp_path / "m/env")
    assert (found.findings, found.files > MANY) == ([], True)
    pack_archive(environment, tmp_path / "m/env.tar.gz")
    found = inspect_environment(tmp_path / "m/env.tar.gz")
    assert (found.findings, found.files > MANY) == ([], True)


@pytest.mark.thorough
def test_names_with_spaces_and_letters_of_all_kinds(index, tmp_path):
    names = ["with space.txt", "ünïcödé.txt", "日本語.txt", "quo'te\".txt", "back\\slash.txt", f"{'long' * 50}.txt"]
    environment = index("odd", {"odd/__init__.py": "", **{f"odd/{name}": name for name in names}})
    place_folder(environment, tmp_path / "my models/größe/env")
    pack_archive(environment, tmp_path / "my models/env.tar.gz")
    shutil.unpack_archive(tmp_path / "my models/env.tar.gz", tmp_path / "unpacked", filter="data")
    for folder in (tmp_path / "my models/größe/env", tmp_path / "unpacked"):
        package = folder / f"lib/python{PYTHON}/site-packages/odd"
        assert {name: (package / name).read_text() for name in names} == {name: name for name in names}
        assert started(folder, "import odd; print(odd.__name__)") == "odd"
    assert inspect_environment(tmp_path / "my models/env.tar.gz").findings == []


def test_a_home_that_cannot_be_written_to_is_no_obstacle(index, tmp_path, monkeypatch):
    home = tmp_path / "home"
    home.mkdir()
    home.chmod(stat.S_IRUSR | stat.S_IXUSR)
    before = os.environ["HOME"]
    monkeypatch.setenv("PYENV_ROOT", os.environ.get("PYENV_ROOT", f"{before}/.pyenv"))
    monkeypatch.setenv("HOME", str(home))
    environment = index("calm", {"calm.py": "VALUE = 1\n"})
    place_folder(environment, tmp_path / "env")
    assert started(tmp_path / "env", "import calm; print(calm.VALUE)") == "1"
    assert list(home.iterdir()) == []


def test_another_file_system_gets_copies(numpy_env, other_disk):
    place_folder(numpy_env, other_disk / "env")
    placed, kept = other_disk / "env/bin/python3.8", numpy_env.prefix / "bin/python3.8"
    assert placed.stat().st_dev != kept.stat().st_dev
    assert placed.read_bytes() == kept.read_bytes()
    assert inspect_environment(other_disk / "env").findings == []


@pytest.mark.thorough
def test_the_order_in_which_groups_are_compiled_does_not_show_in_their_byte_code(numpy_env, tmp_path):
    sources = sorted(str(file.relative_to(numpy_env.prefix)) for file in numpy_env.prefix.rglob("numpy/**/*.py"))[:300]
    groups = [sources[first : first + 20] for first in range(0, len(sources), 20)]
    child = Path(sys.modules["envpack.conda.bytecode"].__file__).with_name("compile_child.py")
    written = []
    for order in (groups, groups[::-1]):
        copy = tmp_path / f"copy{len(written)}"
        for source in sources:
            (copy / source).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(numpy_env.prefix / source, copy / source)
        (tmp_path / "list").write_text("\0\0".join("\0".join(group) for group in order))
        command = [numpy_env.prefix / "bin/python3.8", "-s", "-S", "-B", child, copy, tmp_path / "list"]
        subprocess.run(command, env={"PYTHONHASHSEED": "0"}, check=True)
        written.append({str(file.relative_to(copy)): file.read_bytes() for file in copy.rglob("*.pyc")})
    assert len(written[0]) > 200
    assert written[0] == written[1]
