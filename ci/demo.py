"""The demo: run, visibly, what a user would type, and stop at the first command that fails.

python ci/demo.py DIRECTORY
python ci/demo.py --check DIRECTORY    only look for what an installation cannot mend, before minutes go into it
"""

import os
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parent.parent
NEXT = """
Next, a model of your own, step by step in docs/getting-started.md (first: source {activate}):
  envpack init --template model models/mine    # or your own models/mine: config.pbtxt, 1/model.py, requirements.txt
  cd models && envpack build mine{options}    # its environment and, where its Python is not the server's, its stub
  envpack verify mine                          # on the real server
"""


def check(repository: Path) -> None:
    """Print which Pythons this machine has for the demo, and exit with an error if it cannot have any.

    envpack need not be installed for that.
    """
    if sys.version_info < (3, 11):  # noqa: UP036 - a user of an older Python has not read pyproject.toml
        sys.exit(f"error: Python 3.11 or newer is needed, this is {sys.version.split()[0]}; try make PYTHON=python3.12")
    sys.path.insert(0, str(CHECKOUT))
    with tempfile.TemporaryDirectory() as folder:
        os.environ["ENVPACK_CACHE_DIR"] = folder
        from envpack.conda.fetched import fetching_forbidden
        from envpack.conda.interpreters import available_interpreters, unreadable_folders
        from envpack.support.folders import shell_fault

        if unfit := shell_fault(str(repository.absolute())):
            sys.exit(
                f"error: {repository.absolute()}: the path {unfit}\n"
                "  fix: put the demo's models into another folder: make demo DEMO=/tmp/envpack-demo"
            )
        usable = list(dict.fromkeys(one.minor for one in available_interpreters() if one.library))
        forbidden, closed = fetching_forbidden(), unreadable_folders()
    for folder in closed:
        print(f"warning: {folder} cannot be read; its Pythons are not used")
    print(f"Pythons of this machine with a shared libpython: {', '.join(usable) or 'none'}", flush=True)
    if not usable and forbidden:
        sys.exit(
            f"error: the demo needs a Python with a shared libpython; this machine has none, and {forbidden.reason}\n"
            f"  fix: {forbidden.remedy}, or install one: on Debian and Ubuntu, apt-get install python3-dev"
        )


def main(repository: Path) -> None:
    from demo_pythons import choose, prepare

    from envpack.settings.table import DEFAULT_RELEASE

    envpack = Path(sys.executable).parent / "envpack"
    os.environ["PATH"] = f"{envpack.parent}{os.pathsep}{os.environ['PATH']}"
    choice = choose(repository)
    if repository.exists():
        print(f"{repository} exists: envpack init is not needed")
    else:
        show("envpack", "init", "--recipe", "digits", str(repository))
    os.chdir(repository)
    prepare(choice)
    show("envpack", "build", "--stub", "never")
    for model, python in choice.pythons.items():
        show("envpack", "stub", "--python", python, "--output", model)
    if Path("pipeline/envpack/smoke.json").exists():
        print("the classifier is trained: up to date")
    else:
        show("bash", "-c", train(choice.pythons))
    # The server here is of the default release, whatever the system's Python makes the models fit.
    release = () if choice.triton == DEFAULT_RELEASE else ("--triton", DEFAULT_RELEASE)
    show("envpack", "verify", *release)
    print(NEXT.format(options=choice.options, activate=shlex.quote(str(envpack.with_name("activate")))))


def train(pythons: dict[str, str]) -> str:
    """The training, in the environments that envpack has built, activated as a user would activate them."""
    return (
        f"source core/python{pythons['core']}/bin/activate && python core/training/train.py && "
        f"source preprocessing/python{pythons['preprocessing']}/bin/activate && python core/training/write_samples.py"
    )


def show(*command: str) -> None:
    print(f"\n$ {shlex.join(command)}", flush=True)
    ended = subprocess.run(command, check=False)
    if ended.returncode != 0:
        sys.exit(ended.returncode)


if __name__ == "__main__":
    check(Path(sys.argv[2])) if sys.argv[1] == "--check" else main(Path(sys.argv[1]))
