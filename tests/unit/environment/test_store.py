import json
import subprocess
import sys
from pathlib import Path

from envpack.environment import read_environment
from envpack.environment.store import environment_key
from envpack.requirements import Requirements


def key(pip=(), conda=(), minor="3.8", channels=("local",), glibc="2.35"):
    return environment_key(Requirements(conda, pip), minor, channels, glibc, None)


def test_order_of_requirements_and_their_file_do_not_matter():
    assert key(("a", "b")) == key(("b", "a", "b"))
    named = Requirements(pip=("a",), source=Path("/x/requirements.txt"))
    assert environment_key(named, "3.8", ("local",), "2.35", None) == key(("a",))


def test_everything_that_changes_the_content_changes_the_key():
    keys = {key(), key(("a",)), key((), ("a",)), key(minor="3.9"), key(channels=("x",)), key(glibc="2.31")}
    assert len(keys) == 6


def test_incomplete_or_unknown_folder_is_no_environment(tmp_path):
    assert read_environment(tmp_path) is None
    (tmp_path / "envpack-environment.json").write_text("{")
    assert read_environment(tmp_path) is None
    (tmp_path / "envpack-environment.json").write_text(json.dumps({"schema": 99}))
    assert read_environment(tmp_path) is None


def test_importing_the_packages_imports_no_heavy_library():
    heavy = {"rattler", "conda_pack", "uv", "elftools", "yaml", "filelock", "zstandard", "packaging"}
    code = f"import sys, envpack.environment, envpack.archive; print({heavy!r} & set(sys.modules))"
    root = Path(__file__).parents[3]
    said = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=True)
    assert said.stdout == "set()\n"
