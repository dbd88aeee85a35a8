"""Run tests with stubs that are compiled with sanitizers: the stub's process, its model and the real server.

    python ci/sanitized.py 3.10 -- tests/native tests/server/stub -k "3.10 or stub"
    python ci/sanitized.py 3.8 3.13 --sanitize address,undefined -- tests/server/stub -k "3.8 or 3.13"

Every report is printed and makes the exit status 1, even if the test itself passed.
"""

import argparse
import os
import subprocess
import sys
from pathlib import Path

from envpack.stub.recipe import source_folder
from envpack.stub.target import target_from_interpreter
from envpack.stub.toolchain import find_tool, header_folders
from envpack.support.placed_files import STUB_NAME
from envpack.support.processes import clean_environment

FOLDER = Path("build/sanitized").absolute()
# Python leaks on purpose, and Python's faulthandler reports crashes of a model.
OPTIONS = "detect_leaks=0:handle_segv=0:handle_abort=0:handle_sigbus=0:handle_sigfpe=0:handle_sigill=0"


def build(python: str, sanitizers: str) -> None:
    """Compile the stub of one Python into FOLDER."""
    target = target_from_interpreter(python)
    tree = FOLDER / "trees" / f"{python}-{sanitizers}"
    configure = [
        find_tool("cmake"), "-S", source_folder(), "-B", tree, "-GNinja",
        f"-DCMAKE_MAKE_PROGRAM={find_tool('ninja')}",
        f"-DCMAKE_PREFIX_PATH={';'.join(map(str, header_folders(target.minor)))}",
        f"-DPython_INCLUDE_DIR={target.include}",
        f"-DPython_LIBRARY={target.library}",
        f"-DENVPACK_SANITIZE={sanitizers}",
    ]  # fmt: skip
    subprocess.run(configure, env=clean_environment(), check=True, stdout=subprocess.DEVNULL)
    subprocess.run([find_tool("cmake"), "--build", tree], env=clean_environment(), check=True)
    stub = FOLDER / "stubs" / python / STUB_NAME
    stub.parent.mkdir(parents=True, exist_ok=True)
    stub.write_bytes((tree / "stub_src" / STUB_NAME).read_bytes())
    stub.chmod(0o755)


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("python", nargs="+", help="Pythons to build a stub for, such as 3.10")
    options.add_argument("--sanitize", default="address,undefined", help="what to build with")
    arguments, tests = _split(sys.argv[1:])
    given = options.parse_args(arguments)
    for python in given.python:
        build(python, given.sanitize)
    reports = FOLDER / "reports"
    reports.mkdir(exist_ok=True)
    for old in reports.iterdir():
        old.unlink()
    where = f"log_path={reports}/report"
    environment = {
        **os.environ,
        "ENVPACK_TEST_STUBS": str(FOLDER / "stubs"),
        "ASAN_OPTIONS": f"{OPTIONS}:{where}",
        "UBSAN_OPTIONS": f"print_stacktrace=1:{where}",
    }
    ended = subprocess.run([sys.executable, "-m", "pytest", *tests], env=environment, check=False)
    found = sorted(reports.iterdir())
    for report in found:
        print(f"\n{report.name}\n{report.read_text(errors='replace')}")
    print(f"{len(found)} sanitizer reports")
    return 1 if found else ended.returncode


def _split(arguments: list[str]) -> tuple[list[str], list[str]]:
    """Options of this script, and after -- options of pytest."""
    cut = arguments.index("--") if "--" in arguments else len(arguments)
    return arguments[:cut], arguments[cut + 1 :]


if __name__ == "__main__":
    sys.exit(main())
