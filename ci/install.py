"""Make a virtual environment that holds this checkout and a real Triton server.

    python3 ci/install.py .venv           what the demo needs
    python3 ci/install.py .venv test      and the tools of the tests

Runs on a bare Python 3.11 or newer; needs nothing but a package index for pip and uv.
"""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

CHECKOUT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(CHECKOUT))

from envpack.support.certificates import trusted_certificates  # noqa: E402 - needs no installation
from envpack.support.processes import clean_environment  # noqa: E402


def server_requirement() -> str:
    """The wheel that carries the server of the release that the demo and the tests use."""
    facts = read_toml("envpack/releases.toml")
    return f"nvidia-pytriton=={facts['releases']['24.10']['wheel']}"


def uv_requirement() -> str:
    """The uv that envpack depends on."""
    return next(name for name in read_toml("pyproject.toml")["project"]["dependencies"] if name.startswith("uv>"))


def read_toml(name: str) -> dict[str, Any]:
    import tomllib  # Python 3.10 lacks it, and is to get an error that says what it needs

    return tomllib.loads((CHECKOUT / name).read_text(encoding="utf-8"))


def extras(wanted: list[str]) -> str:
    """The extras to install: a checkout compiles its stubs, with zig where there is no other compiler."""
    has_compiler = any(shutil.which(name) for name in ("c++", "g++", "clang++"))
    names = ["compile", *wanted, *([] if has_compiler or "test" in wanted else ["zig"])]
    return f"[{','.join(names)}]"


def main(folder: Path, wanted: list[str]) -> None:
    if sys.version_info < (3, 11):  # noqa: UP036 - a user of an older Python has not read pyproject.toml
        sys.exit(f"error: Python 3.11 or newer is needed, this is {sys.version.split()[0]}; try make PYTHON=python3.12")
    step(f"make the virtual environment {folder}", [sys.executable, "-m", "venv", folder])
    python = folder / "bin" / "python"
    pip = [python, "-m", "pip", "--quiet", "--disable-pip-version-check", "install"]
    step("install uv, which installs the rest in a fifth of pip's time", [*pip, uv_requirement()], for_pip(python))
    uv = [folder / "bin" / "uv", "pip", "install", "--quiet", "--python", python]
    checkout = f"{CHECKOUT}{extras(wanted)}"
    for_uv = os.environ | clean_environment()
    step(f"install envpack and its dependencies into {folder}", [*uv, "--editable", checkout], for_uv)
    # Without its dependencies: only the server in it is used, which needs none of them.
    step("install the Triton server of the nvidia-pytriton wheel", [*uv, "--no-deps", server_requirement()], for_uv)


def for_pip(python: Path) -> Mapping[str, str]:
    """Variables for pip: before pip 24.2 it trusts public authorities only, unless its settings name others."""
    settings = subprocess.run([python, "-m", "pip", "config", "list"], stdout=subprocess.PIPE, text=True, check=True)
    certificates = "" if ".cert=" in settings.stdout else trusted_certificates()
    return os.environ | {"PIP_CERT": certificates} if certificates else os.environ


def step(what: str, command: list[str | Path], variables: Mapping[str, str] | None = None) -> None:
    """Run a command to its end; say every few seconds that it still runs."""
    started, on_terminal = time.monotonic(), sys.stdout.isatty()
    print(what, end="" if on_terminal else "\n", flush=True)
    with subprocess.Popen(command, env=variables) as child:
        while True:
            try:
                child.wait(timeout=1 if on_terminal else 9)
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
