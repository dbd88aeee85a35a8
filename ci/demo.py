"""The demo: run, visibly, what a user would type, and stop at the first command that fails.

python ci/demo.py DIRECTORY
python ci/demo.py --check       only look for the Pythons, before minutes go into an installation
"""

import os
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

# The training runs in the environments that envpack has built, activated as a user would activate them.
TRAIN = (
    "source core/python3.10/bin/activate && python core/training/train.py && "
    "source preprocessing/python3.8/bin/activate && python core/training/write_samples.py"
)
STUBS = {"preprocessing": "3.8", "core": "3.10", "postprocessing": "3.12"}


def check_pythons() -> int:
    """Exit with an error unless this machine has every Python of the demo; envpack need not be installed for that."""
    if sys.version_info < (3, 11):  # noqa: UP036 - a user of an older Python has not read pyproject.toml
        sys.exit(f"error: Python 3.11 or newer is needed, this is {sys.version.split()[0]}; try make PYTHON=python3.12")
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
    with tempfile.TemporaryDirectory() as folder:
        os.environ["ENVPACK_CACHE_DIR"] = folder
        from envpack.pythons import available_interpreters

        found = {interpreter.minor for interpreter in available_interpreters() if interpreter.library}
    missing = [python for python in STUBS.values() if python not in found]
    if missing:
        sys.exit(
            f"error: the demo needs Python {', '.join(missing)} with a shared libpython, and this machine has none\n"
            f"  fix: uv python install {' '.join(missing)}, or pyenv with PYTHON_CONFIGURE_OPTS=--enable-shared"
        )
    return 0


def main(repository: Path) -> int:
    envpack = Path(sys.executable).parent / "envpack"
    os.environ["PATH"] = f"{envpack.parent}{os.pathsep}{os.environ['PATH']}"
    if repository.exists():
        print(f"{repository} exists: envpack init is not needed")
    else:
        show("envpack", "init", "--recipe", "digits", str(repository))
    os.chdir(repository)
    show("envpack", "build", "--stub", "never")
    for model, python in STUBS.items():
        show("envpack", "stub", "--python", python, "--output", model)
    if Path("pipeline/envpack/smoke.json").exists():
        print("the classifier is trained: up to date")
    else:
        show("bash", "-c", TRAIN)
    show("envpack", "verify")
    return 0


def show(*command: str) -> None:
    print(f"\n$ {shlex.join(command)}", flush=True)
    ended = subprocess.run(command, check=False)
    if ended.returncode != 0:
        sys.exit(ended.returncode)


if __name__ == "__main__":
    sys.exit(check_pythons() if sys.argv[1] == "--check" else main(Path(sys.argv[1])))
