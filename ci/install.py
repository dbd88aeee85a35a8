"""Make a virtual environment that holds this checkout and a real Triton server.

    python3 ci/install.py .venv           what the demo needs
    python3 ci/install.py .venv test      and the tools of the tests

Runs on a bare Python 3.11 or newer; needs nothing but a package index for pip and uv.
"""

import shutil
import subprocess
import sys
import time
import tomllib
import venv
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parent.parent


def server_requirement() -> str:
    """The wheel that carries the server of the release that the demo and the tests use."""
    facts = tomllib.loads((CHECKOUT / "envpack" / "releases.toml").read_text(encoding="utf-8"))
    return f"nvidia-pytriton=={facts['releases']['24.10']['wheel']}"


def uv_requirement() -> str:
    """The uv that envpack depends on."""
    project = tomllib.loads((CHECKOUT / "pyproject.toml").read_text(encoding="utf-8"))
    return next(name for name in project["project"]["dependencies"] if name.startswith("uv>"))


def extras(wanted: list[str]) -> str:
    """The extras to install: a checkout compiles its stubs, with zig where there is no other compiler."""
    has_compiler = any(shutil.which(name) for name in ("c++", "g++", "clang++"))
    names = ["compile", *wanted, *([] if has_compiler or "test" in wanted else ["zig"])]
    return f"[{','.join(names)}]"


def main(folder: Path, wanted: list[str]) -> None:
    if sys.version_info < (3, 11):  # noqa: UP036 - a user of an older Python has not read pyproject.toml
        sys.exit(f"error: Python 3.11 or newer is needed, this is {sys.version.split()[0]}; try make PYTHON=python3.12")
    venv.create(folder, with_pip=True, clear=False)
    python = folder / "bin" / "python"
    pip = [python, "-m", "pip", "--quiet", "--disable-pip-version-check", "install"]
    step("install uv, which installs the rest in a fifth of pip's time", [*pip, uv_requirement()])
    uv = [folder / "bin" / "uv", "pip", "install", "--quiet", "--python", python]
    checkout = f"{CHECKOUT}{extras(wanted)}"
    step(f"install envpack and its dependencies into {folder}", [*uv, "--editable", checkout])
    # Without its dependencies: only the server in it is used, which needs none of them.
    step("install the Triton server of the nvidia-pytriton wheel", [*uv, "--no-deps", server_requirement()])


def step(what: str, command: list[str | Path]) -> None:
    """Run a command to its end; say every few seconds that it still runs."""
    started, on_terminal = time.monotonic(), sys.stdout.isatty()
    print(what, end="" if on_terminal else "\n", flush=True)
    with subprocess.Popen(command) as child:
        while True:
            try:
                child.wait(timeout=1 if on_terminal else 15)
                break
            except subprocess.TimeoutExpired:
                seconds = f"{time.monotonic() - started:.0f} s"
                line = f"\r{what} … {seconds}" if on_terminal else f"  … {seconds}\n"
                print(line, end="", flush=True)
    seconds = f"{time.monotonic() - started:.0f} s"
    print(f"\r{what} … {seconds}" if on_terminal else f"  done in {seconds}")
    if child.returncode != 0:
        sys.exit(child.returncode)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
