"""The demo: types, visibly, what a user would type, and stops at the first thing that fails.

python ci/demo.py DIRECTORY
"""

import os
import shlex
import subprocess
import sys
from pathlib import Path

# The training runs inside of the environments that envpack has built, activated as anybody would activate them.
TRAIN = (
    "source core/python3.10/bin/activate && python core/training/train.py && "
    "source preprocessing/python3.8/bin/activate && python core/training/write_samples.py"
)
STUBS = {"preprocessing": "3.8", "core": "3.10", "postprocessing": "3.12"}


def main(repository: Path) -> int:
    envpack = Path(sys.executable).parent / "envpack"
    os.environ["PATH"] = f"{envpack.parent}{os.pathsep}{os.environ['PATH']}"
    if repository.exists():
        print(f"{repository} is there already: envpack init is not needed")
    else:
        show("envpack", "init", "--recipe", "digits", str(repository))
    os.chdir(repository)
    show("envpack", "build", "--all", "--stub", "never")
    for model, python in STUBS.items():
        show("envpack", "stub", "--python", python, "--output", model)
    if Path("pipeline/envpack/smoke.json").exists():
        print("the classifier is trained already: up to date")
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
    sys.exit(main(Path(sys.argv[1])))
