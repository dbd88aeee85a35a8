"""Twenty requirement files, in every format that envpack reads."""

import shutil
from pathlib import Path

from tests.unit.requirements.test_locks import PIXI_6, PYTHON_URL, SIX

_LOCKS = Path(__file__).parents[1] / "unit/requirements/locks"
_PROJECT = '[project]\nname = "p"\nversion = "1"\n'

# Files of each case by path; the first is the one that is read.
CASES = {
    "requirements.txt": {"requirements.txt": "numpy<2\nscipy ; python_version < '3.11'\n"},
    "requirements.txt in another order, with comments": {
        "requirements.txt": "# SciPy first\nscipy ; python_version < '3.11'\nnumpy<2  # the old one\n"
    },
    "requirements.txt with extras, markers and URLs": {
        "requirements.txt": "uvicorn[standard]>=0.20\nx @ https://files.example.org/x-1.0-py3-none-any.whl\n"
        "colorama ; sys_platform == 'win32'\n"
    },
    "requirements.txt with hashes": {"requirements.txt": f"six==1.16.0 --hash=sha256:{SIX.sha256}\n"},
    "requirements.txt with indexes": {
        "requirements.txt": "--index-url https://index.example.org/simple\n--extra-index-url "
        "https://me:secret@other.example.org/simple\n--only-binary :all:\nnumpy\n"
    },
    "requirements.txt with another file and constraints": {
        "requirements.txt": "-r base.txt\n-c limits.txt\nscipy\n",
        "base.txt": "numpy\n",
        "limits.txt": "numpy<2\nthreadpoolctl==3.5.0\n",
    },
    "requirements.txt with a project": {
        "requirements.txt": "numpy\n-e ./project\n",
        "project/pyproject.toml": _PROJECT,
        "project/p.py": "VALUE = 1\n",
    },
    "pyproject.toml": {"pyproject.toml": _PROJECT + 'requires-python = "==3.10.*"\ndependencies = ["numpy<2"]\n'},
    "pyproject.toml with extras and groups": {
        "pyproject.toml": _PROJECT + '[project.optional-dependencies]\ngpu = ["cupy-cuda12x"]\n'
        '[dependency-groups]\nserve = ["orjson", {include-group = "common"}]\ncommon = ["click"]\n'
        '[tool.envpack]\nextras = ["gpu"]\ngroups = ["serve"]\n'
    },
    "environment.yml": {"environment.yml": "dependencies:\n- python=3.11\n- numpy >=1.26,<2\n- ffmpeg\n"},
    "environment.yml with channels and pip": {
        "environment.yml": "name: x\nchannels: [conda-forge, https://channel.example/own]\n"
        "dependencies:\n- python=3.10\n- conda-forge::numpy\n- pip\n- pip:\n  - six\n  - orjson<4\n"
    },
    "environment.yaml with a requirements file": {
        "environment.yaml": "dependencies:\n- python=3.10\n- numpy\n- pip:\n  - -r more.txt\n",
        "more.txt": "six\n",
    },
    "conda.yaml of MLflow": {
        "conda.yaml": "channels:\n- conda-forge\ndependencies:\n- python=3.10.13\n- pip<=23\n- pip:\n  - mlflow==2.9\n"
    },
    "python_env.yaml of MLflow": {
        "python_env.yaml": "python: 3.10.13\nbuild_dependencies:\n- pip==23.3\ndependencies:\n- -r requirements.txt\n",
        "requirements.txt": "numpy\n",
    },
    "conda-lock.yml": {"conda-lock.yml": (_LOCKS / "conda-lock.yml").read_text(encoding="utf-8")},
    "pixi.lock, version 7": {
        "pixi.lock": (_LOCKS / "pixi.lock").read_text(encoding="utf-8") + f"  sha256: {SIX.sha256}\n",
        "wheels/own_wheel-1.0-py3-none-any.whl": "wheel",
    },
    "pixi.lock, version 6": {"pixi.lock": PIXI_6},
    "pylock.toml": {"pylock.toml": (_LOCKS / "pylock.toml").read_text(encoding="utf-8")},
    "a list of conda, by MD5": {"explicit.txt": f"@EXPLICIT\n{PYTHON_URL}#{'b' * 32}\n"},
    "a list of conda, by SHA-256": {"conda-linux-64.lock": f"@EXPLICIT\n{PYTHON_URL}#sha256:{'a' * 64}\n"},
}


def write_case(name, folder):
    """Write the files of a case into a folder; the one to be read."""
    shutil.rmtree(folder, ignore_errors=True)
    for path, text in CASES[name].items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text, encoding="utf-8")
    return folder / next(iter(CASES[name]))
