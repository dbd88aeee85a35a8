import json
import subprocess
import sys
from pathlib import Path

from envpack.environment import Environment, Package, read_environment


def test_incomplete_or_unknown_folder_is_no_environment(tmp_path):
    assert read_environment(tmp_path) is None
    (tmp_path / "envpack-environment.json").write_text("{")
    assert read_environment(tmp_path) is None
    (tmp_path / "envpack-environment.json").write_text(json.dumps({"schema": 99}))
    assert read_environment(tmp_path) is None


def test_an_environment_is_what_its_manifest_says(tmp_path):
    package = {
        "name": "x", "version": "1", "source": "pip", "license": "MIT", "url": "https://x", "sha256": "a", "size": 5,
    }  # fmt: skip
    manifest = {
        "schema": 3, "key": "k", "python": "3.9.1", "minor": "3.9", "packages": [package], "glibc": "2.28",
        "glibcxx": "3.4.21", "platform": "linux-64", "size": 7, "content": "c", "stand_ins": 2,
    }  # fmt: skip
    (tmp_path / "envpack-environment.json").write_text(json.dumps(manifest))
    assert read_environment(tmp_path) == Environment(
        key="k", python="3.9.1", minor="3.9", prefix=tmp_path, packages=(Package(**package),), glibc="2.28",
        glibcxx="3.4.21", platform="linux-64", size=7, content="c", placeholders=2, fresh=False,
    )  # fmt: skip
    assert read_environment(tmp_path / "envpack-environment.json") is None
    (tmp_path / "envpack-environment.json").write_text("[]")
    assert read_environment(tmp_path) is None


def test_importing_the_packages_imports_no_heavy_library():
    heavy = {"rattler", "conda_pack", "uv", "elftools", "yaml", "filelock", "backports", "packaging"}
    code = f"import sys, envpack.environment, envpack.archive; print({heavy!r} & set(sys.modules))"
    root = Path(__file__).parents[3]
    result = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=True)
    assert result.stdout == "set()\n"
