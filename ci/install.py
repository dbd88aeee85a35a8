"""Make a virtual environment that holds this checkout and a real Triton server.

    python3 ci/install.py .venv           what the demo needs
    python3 ci/install.py .venv test      and the tools of the tests

Runs on a bare Python 3.11 or newer; needs nothing but a package index for pip.
"""

import shutil
import subprocess
import sys
import tomllib
import venv
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parent.parent


def server_requirement() -> str:
    """The wheel that carries the server of the release that the demo and the tests use."""
    facts = tomllib.loads((CHECKOUT / "envpack" / "releases.toml").read_text(encoding="utf-8"))
    return f"nvidia-pytriton=={facts['releases']['24.10']['wheel']}"


def extras(wanted: list[str]) -> str:
    """The extras to install: a checkout compiles its stubs, with zig where there is no other compiler."""
    has_compiler = any(shutil.which(name) for name in ("c++", "g++", "clang++"))
    names = ["compile", *wanted, *([] if has_compiler or "test" in wanted else ["zig"])]
    return f"[{','.join(names)}]"


def main(folder: Path, wanted: list[str]) -> None:
    if sys.version_info < (3, 11):  # noqa: UP036 - whoever runs this has not read pyproject.toml
        sys.exit(f"error: Python 3.11 or newer is needed, this is {sys.version.split()[0]}; try make PYTHON=python3.12")
    print(f"installing into {folder}", flush=True)
    venv.create(folder, with_pip=True, clear=False)
    pip = [folder / "bin" / "python", "-m", "pip", "--quiet", "--disable-pip-version-check", "install"]
    subprocess.run([*pip, "--editable", f"{CHECKOUT}{extras(wanted)}"], check=True)
    # Without its dependencies: only the server inside of it is used, and that needs none of them.
    subprocess.run([*pip, "--no-deps", server_requirement()], check=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
