"""Runs packers, each in its own process, and measures wall and CPU seconds, peak memory and size."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from envpack.environment.store import Environment

ROOT = Path(__file__).parents[2]
_OURS = """
import sys
from pathlib import Path
from envpack.archive.folder import place_folder
from envpack.archive.selection import Selection
from envpack.archive.tarball import pack_archive
from envpack.environment.store import read_environment
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
    """The cost of a run: wall seconds, CPU seconds of all threads, peak memory in MiB, size of the result in MB."""

    wall: float
    cpu: float
    memory: float
    size: float


@dataclass(frozen=True)
class Packer:
    """A way to pack.

    Attributes:
        name: label in the table.
        form: ``"dir"``, ``"tar.gz"`` or ``"tar"``.
        command: the command; ``{out}`` stands for the path of the result.
        clean: pattern of files in our store to remove before each run: ``"*"`` for all, ``""`` for none.

    """

    name: str
    form: str
    command: tuple[str, ...]
    clean: str = ""


def packers(environment: Environment) -> list[Packer]:
    """All packers, conda-pack's default first."""
    prefix = str(environment.prefix)
    conda_pack = (str(Path(sys.executable).with_name("conda-pack")), "--quiet", "--force", "-p", prefix)

    def ours(form: str, include: str = "", exclude: str = "") -> tuple[str, ...]:
        return (sys.executable, "-c", _OURS, prefix, "{out}", form, include, exclude)

    return [
        Packer("conda-pack", "tar.gz", (*conda_pack, "-o", "{out}")),
        Packer("conda-pack --n-threads -1", "tar.gz", (*conda_pack, "--n-threads", "-1", "-o", "{out}")),
        Packer("GNU tar", "tar", ("tar", "cf", "{out}", "-C", prefix, ".")),
        Packer("envpack tar.gz, first, all files", "tar.gz", ours("tar.gz", "**"), "*"),
        Packer("envpack tar.gz, first", "tar.gz", ours("tar.gz"), "*"),
        # Other archives of these packages are in the store. The pattern makes another selection of the same files.
        Packer("envpack tar.gz, packed before", "tar.gz", ours("tar.gz", exclude="/none/")),
        Packer("envpack tar.gz, second model", "tar.gz", ours("tar.gz")),
        Packer("envpack tar, all files", "tar", ours("tar", "**"), "archives/*.tar"),
        Packer("envpack tar", "tar", ours("tar"), "archives/*.tar"),
        Packer("envpack dir", "dir", ours("dir")),
    ]


def run(packer: Packer, folder: Path) -> Cost:
    """Run a packer once; the result is ``folder/out.FORM``, the store ``folder/store``."""
    out, store = folder / f"out.{packer.form}", folder / "store"
    for path in store.glob(packer.clean) if packer.clean else ():
        remove(path)
    remove(out)
    command = [word.replace("{out}", str(out)) for word in packer.command]
    variables = {**os.environ, "ENVPACK_CACHE_DIR": str(store), "PYTHONPATH": str(ROOT)}
    os.sync()  # otherwise a packer that flushes its output also waits for the output of the previous one
    started = time.perf_counter()
    with subprocess.Popen(command, env=variables, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as child:
        errors = child.stderr.read() if child.stderr else b""
        _, status, used = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
    wall = time.perf_counter() - started
    if child.returncode:
        raise SystemExit(f"{packer.name} failed: {errors.decode(errors='replace')[-500:]}")
    size = out.stat().st_size if out.is_file() else 0
    return Cost(wall, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024, size / 1e6)


def remove(path: Path) -> None:
    """Remove a file or a folder if it exists."""
    if path.is_dir():
        shutil.rmtree(path)
    path.unlink(missing_ok=True)
