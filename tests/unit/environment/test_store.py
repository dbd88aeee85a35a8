import json
import subprocess
import sys
from pathlib import Path

from envpack.environment import read_environment


def test_incomplete_or_unknown_folder_is_no_environment(tmp_path):
    assert read_environment(tmp_path) is None
    (tmp_path / "envpack-environment.json").write_text("{")
    assert read_environment(tmp_path) is None
    (tmp_path / "envpack-environment.json").write_text(json.dumps({"schema": 99}))
    assert read_environment(tmp_path) is None


def test_importing_the_packages_imports_no_heavy_library():
    heavy = {"rattler", "conda_pack", "uv", "elftools", "yaml", "filelock", "backports", "packaging"}
    code = f"import sys, envpack.environment, envpack.archive; print({heavy!r} & set(sys.modules))"
    root = Path(__file__).parents[3]
    result = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=True)
    assert result.stdout == "set()\n"
