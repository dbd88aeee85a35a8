"""A C++ compiler that remembers object files, for tests that compile the same stub again and again.

It is a script that stands for this machine's compiler and has its version. It does not optimise, to halve the work.
"""

import fcntl
import sys
from contextlib import contextmanager
from pathlib import Path

from envpack.stub import target_from_interpreter
from envpack.stub.recipe import Recipe, source_folder
from envpack.stub.toolchain import find_toolchain
from tests.cache import kept_cache

_SCRIPT = """#!{python} -IS
import fcntl, hashlib, os, shutil, subprocess, sys
from pathlib import Path

COMPILER, KEPT, GATE = {compiler!r}, Path({kept!r}), {gate!r}
words, here = sys.argv[1:], os.getcwd()
command = [COMPILER, *words, "-O0", "-Wfatal-errors"]
source = Path(words[words.index("-c") + 1]) if "-c" in words else None
# An object with .incbin contains other files than sources.
if source is None or "TryCompile" in here or ".incbin" in source.read_text():
    os.execv(COMPILER, command)
if GATE:
    with open(GATE) as gate:
        fcntl.flock(gate, fcntl.LOCK_SH)
digest = hashlib.sha256("\\0".join(words).replace(here, ".").encode())
pythons = [Path(word, "patchlevel.h") for word in words if Path(word, "patchlevel.h").is_file()]
for file in sorted(Path().rglob("*")):  # what CMake generated, which may name the folder
    if file.suffix in (".h", ".cc", ".cxx"):
        pythons.append(file)
for file in pythons:
    digest.update(file.read_bytes().replace(here.encode(), b"."))
entry = KEPT / digest.hexdigest()[:32]
outputs = {{"object": words[words.index("-o") + 1], "dependencies": words[words.index("-MF") + 1]}}
if entry.is_dir():
    for name, output in outputs.items():
        shutil.copyfile(entry / name, output)
    sys.exit()
status = subprocess.run(command).returncode
if status == 0:
    partial = Path(f"{{entry}}.{{os.getpid()}}")
    partial.mkdir(parents=True)
    for name, output in outputs.items():
        shutil.copyfile(output, partial / name)
    try:
        partial.rename(entry)
    except OSError:  # another process was faster
        shutil.rmtree(partial)
sys.exit(status)
"""


def remembering_compiler(file, *, gate=""):
    """Write the compiler; it waits before it compiles while `closed` holds the file ``gate``."""
    tools = find_toolchain("system")
    recipe = Recipe(target_from_interpreter("3.10"), None, tools, source_folder())
    kept = kept_cache() / "objects" / recipe.common_entry
    file.write_text(_SCRIPT.format(python=sys.executable, compiler=tools.compiler[0], kept=str(kept), gate=str(gate)))
    file.chmod(0o755)
    return file


@contextmanager
def closed(gate: Path):
    """Compilers with this gate wait until the block ends."""
    with gate.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        yield
