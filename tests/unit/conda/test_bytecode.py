"""Byte code does not depend on other files, on their order, or on chance."""

import os
import random
import shutil
import sys
import sysconfig
from pathlib import Path

import pytest

from envpack.conda.bytecode import bytecode_path, compile_files
from envpack.support.errors import EnvironmentBuildError
from tests.needed_pythons import need_interpreter
from tests.tables import every_row

MINOR = f"{sys.version_info.major}.{sys.version_info.minor}"
LIBRARY = Path(sysconfig.get_path("stdlib")).parent
BELOW = Path(sysconfig.get_path("stdlib")).name
ROUNDS = 3


def compiled(sources, root):
    """The byte code that exists, by source."""
    files = {source: root / bytecode_path(source, MINOR) for source in sources}
    return {source: file.read_bytes() for source, file in files.items() if file.is_file()}


def test_each_package_gets_the_same_byte_code_every_time(tmp_path):
    """Uses the standard library, in which `subprocess` varied when one process compiled all files."""
    sources = [str(file.relative_to(LIBRARY)) for file in (LIBRARY / BELOW).glob("[a-z]*.py")]
    letters = sorted({Path(source).name[0] for source in sources})
    first = {}
    for turn in range(ROUNDS):
        root = tmp_path / str(turn)
        for source in sources:
            (root / source).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(LIBRARY / source, root / source)
        packages = [[source for source in sources if Path(source).name[0] == letter] for letter in letters]
        random.Random(turn).shuffle(packages)
        for package in packages:
            random.Random(turn).shuffle(package)
        compile_files(root, packages, Path(sys.executable))
        found = compiled(sources, root)
        assert len(found) == len(sources) > 100
        first = first or found
        assert [source for source in sources if found[source] != first[source]] == []


@every_row("minor", ["3.8", "3.9", "3.10"])
def test_a_folder_with_a_longer_path_gets_the_same_byte_code(tmp_path_factory, minor):
    """Where names are in memory depends on it; Python's own `types` leaves the name `_m` behind."""
    python, source, found = need_interpreter(minor).executable, "lib/named.py", set()
    for length in range(1, 100, 6):
        root = tmp_path_factory.mktemp("root") / ("a" * length)
        (root / "lib").mkdir(parents=True)
        (root / source).write_text("def f(a):\n    _m = a\n    return a\n")
        compile_files(root, [[source]], python)
        found.add((root / bytecode_path(source, minor)).read_bytes())
    assert len(found) == 1


def test_files_that_cannot_be_parsed_get_no_byte_code(tmp_path):
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib/good.py").write_text("X = 1\n")
    (tmp_path / "lib/bad.py").write_text("this is not Python {{ template }}\n")
    sources = ["lib/bad.py", "lib/good.py"]
    compile_files(tmp_path, [sources], Path(sys.executable))
    assert set(compiled(sources, tmp_path)) == {"lib/good.py"}


@every_row("name", ["a\u2028b", "a\nb", "a\r\n\nb", "\n", "é", os.fsdecode(b"a\xff"), " "])
def test_files_with_any_name_are_compiled(tmp_path_factory, name):
    root = tmp_path_factory.mktemp("root")
    (root / "lib").mkdir()
    sources = [f"lib/{name}.py", "lib/z.py"]
    for source in sources:
        (root / source).write_text("X = 1\n")
    compile_files(root, [sources], Path(sys.executable))
    assert set(compiled(sources, root)) == set(sources)


@pytest.mark.parametrize("packages", [[], [[]]])
def test_nothing_to_compile_starts_no_interpreter(tmp_path, packages):
    compile_files(tmp_path, packages, Path("/nowhere/python"))


def test_a_file_that_cannot_be_written_is_an_error(tmp_path):
    (tmp_path / "good.py").write_text("X = 1\n")
    (tmp_path / "__pycache__").write_text("a file where the folder should be")
    with pytest.raises(EnvironmentBuildError) as caught:
        compile_files(tmp_path, [["good.py"]], Path(sys.executable))
    assert caught.value.kind == "bytecode-failed"
