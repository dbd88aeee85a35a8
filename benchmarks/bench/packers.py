"""What packs an environment, each as a process of its own: wall and CPU seconds, peak memory, size."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from envpack.environment import Environment

ROOT = Path(__file__).parents[2]
_OURS = """
import sys
from pathlib import Path
from envpack.archive import Selection, pack_archive, place_folder
from envpack.environment import read_environment
prefix, out, form, include, exclude = sys.argv[1:]
environment = read_environment(Path(prefix))
selection = Selection(tuple(exclude.split()), tuple(include.split()))
if form == "dir":
    place_folder(environment, Path(out), selection)
else:
    pack_archive(environment, Path(out), form=form, selection=selection)
"""


@dataclass(frozen=True)
class Cost:
    """What one run took: seconds, seconds of all its threads, megabytes of memory, megabytes written."""

    wall: float
    cpu: float
    memory: float
    size: float


@dataclass(frozen=True)
class Packer:
    """A way to pack.

    Attributes:
        name: what to call it.
        form: ``"dir"``, ``"tar.gz"`` or ``"tar"``.
        command: what runs; the last word is where it writes.
        clean: what of our store is removed before each run: ``"*"`` for all, or a pattern of files, ``""`` for none.

    """

    name: str
    form: str
    command: tuple[str, ...]
    clean: str = ""


def packers(environment: Environment) -> list[Packer]:
    """All of them, conda-pack's default first."""
    prefix = str(environment.prefix)
    theirs = (str(Path(sys.executable).with_name("conda-pack")), "--quiet", "--force", "-p", prefix)

    def ours(form: str, include: str = "", exclude: str = "") -> tuple[str, ...]:
        return (sys.executable, "-c", _OURS, prefix, "{out}", form, include, exclude)

    return [
        Packer("conda-pack", "tar.gz", (*theirs, "-o", "{out}")),
        Packer("conda-pack --n-threads -1", "tar.gz", (*theirs, "--n-threads", "-1", "-o", "{out}")),
        Packer("GNU tar", "tar", ("tar", "cf", "{out}", "-C", prefix, ".")),
        Packer("envpack tar.gz, first, all files", "tar.gz", ours("tar.gz", "**"), "*"),
        Packer("envpack tar.gz, first", "tar.gz", ours("tar.gz"), "*"),
        # Other archives of these packages are in the store; that this choice is another one changes no file.
        Packer("envpack tar.gz, packed before", "tar.gz", ours("tar.gz", exclude="/none/")),
        Packer("envpack tar.gz, second model", "tar.gz", ours("tar.gz")),
        Packer("envpack tar, all files", "tar", ours("tar", "**"), "archives/*.tar"),
        Packer("envpack tar", "tar", ours("tar"), "archives/*.tar"),
        Packer("envpack dir", "dir", ours("dir")),
    ]


def run(packer: Packer, folder: Path) -> Cost:
    """Run it once; its result is ``folder/out.FORM``, the store ``folder/store``."""
    out, store = folder / f"out.{packer.form}", folder / "store"
    for place in store.glob(packer.clean) if packer.clean else ():
        remove(place)
    remove(out)
    command = [word.replace("{out}", str(out)) for word in packer.command]
    variables = {**os.environ, "ENVPACK_CACHE_DIR": str(store), "PYTHONPATH": str(ROOT)}
    os.sync()  # or whoever flushes what it writes would wait for what the one before it has written
    started = time.perf_counter()
    with subprocess.Popen(command, env=variables, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as child:
        said = child.stderr.read() if child.stderr else b""
        _, status, used = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
    wall = time.perf_counter() - started
    if child.returncode:
        raise SystemExit(f"{packer.name} failed: {said.decode(errors='replace')[-500:]}")
    size = out.stat().st_size if out.is_file() else 0
    return Cost(wall, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024, size / 1e6)


def remove(path: Path) -> None:
    """Remove a file or a folder, if it is there."""
    if path.is_dir():
        shutil.rmtree(path)
    path.unlink(missing_ok=True)
