"""A copy of envpack whose stub is two small C++ files: for tests of the cache and of matrices, which need many stubs.

The real stub takes minutes to compile. This one is configured, compiled, linked and inspected in the same way, in a
second; it has the facts of a stub, answers the server's trial run, and serves no model.
"""

import fcntl
import re
import shutil
import sys
from contextlib import contextmanager
from pathlib import Path

import envpack
from envpack.stub.recipe import source_folder
from envpack.stub.toolchain import find_toolchain

KEPT = (
    "CMakeLists.txt",
    "epochs.cmake",
    "pybind11.cmake",
    "abi/commands.h.in",
    "abi/headers.cmake",
    "abi/layouts.txt",
    "abi/records.h.in",
    "abi/release.h.in",
    "abi/traits.h",
    "two_halves/build_info.cc.in",
    "two_halves/build_info.h",
    "two_halves/embed.cc.in",
)
MAIN = """#include <cstdio>

#include "two_halves/build_info.h"

extern "C" const char envpack_body_begin[];
extern "C" const char envpack_body_end[];

int main(int argc, char**) {
  if (argc == 1) return 1;
  std::printf("a small stub for Python %s with a body of %zu bytes\\n", envpack::build::kPythonMinor,
              static_cast<std::size_t>(envpack_body_end - envpack_body_begin));
  return 0;
}
"""
BODY = """#include <Python.h>

extern "C" __attribute__((visibility("default"))) void envpack_stub_run() { Py_Initialize(); }
"""
COMMON = """if(ENVPACK_COMMON)
  file(GLOB_RECURSE objects ${ENVPACK_COMMON}/*/launcher/*.o)
  add_library(launcher OBJECT IMPORTED GLOBAL)
  set_target_properties(launcher PROPERTIES IMPORTED_OBJECTS "${objects}")
  return()
endif()
add_library(launcher OBJECT main.cc)
target_link_libraries(launcher PUBLIC options)
if(ENVPACK_ONLY_COMMON)
  install(TARGETS launcher OBJECTS DESTINATION .)
endif()
"""
# What the rules for the part of each Python name besides the two files.
OTHERS = {
    r"session wires warm template local gpu info": "options info",
    r"launcher session warm info": "launcher info",
    r"set\(demangle demangle\)": "set(demangle)",
}
# An editable installation finds the checkout before PYTHONPATH.
SITE = """import sys
sys.meta_path[:] = [finder for finder in sys.meta_path if type(finder).__name__ != "ScikitBuildRedirectingFinder"]
"""
COMPILER = """#!{python} -IS
import fcntl, os, sys
if "-c" in sys.argv and "TryCompile" not in os.getcwd():
    with open({gate!r}) as gate:
        fcntl.flock(gate, fcntl.LOCK_SH)
os.execv({compiler!r}, [{compiler!r}, *sys.argv[1:]])
"""


def with_small_stub(folder: Path) -> Path:
    """Write the copy of envpack; with the result as PYTHONPATH, it is what `python -m envpack` runs.

    The working folder must not be the checkout, which Python would search first.
    """
    package, real = folder / "envpack", source_folder()
    shutil.copytree(Path(envpack.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__", "_source"))
    (folder / "sitecustomize.py").write_text(SITE)
    sources = package / "_source/stub_src"
    (sources.parent / "envpack").mkdir(parents=True)
    for name in ("CMakeLists.txt", "envpack/releases.toml"):
        shutil.copy(real / name, sources.parent / name)
    for name in KEPT:
        (sources / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(real / "stub_src" / name, sources / name)
    rules = (real / "stub_src/python.cmake").read_text()
    for pattern, text in OTHERS.items():
        rules, count = re.subn(pattern, text, rules)
        assert count == 1, f"python.cmake has no {pattern}"
    files = {"main.cc": MAIN, "body.cc": BODY, "common.cmake": COMMON, "python.cmake": rules}
    for name, text in files.items():
        (sources / name).write_text(text)
    return folder


def gated_compiler(file: Path, gate: Path) -> str:
    """Write a script that stands for this machine's compiler; it waits while `closed` holds the file ``gate``."""
    (compiler,) = find_toolchain("system").compiler
    file.write_text(COMPILER.format(python=sys.executable, compiler=compiler, gate=str(gate)))
    file.chmod(0o755)
    return str(file)


@contextmanager
def closed(gate: Path):
    """Compilers with this gate wait until the block ends."""
    with gate.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        yield
