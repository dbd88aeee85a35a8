"""Root file systems of Debian and Ubuntu, and programs that run in them."""

import os
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

# apt is on every installed system, and with it libstdc++, which the cmake of the index needs.
PACKAGES = ("apt", "git", "make", "ca-certificates", "python3-venv")
HEADERS = "python3-dev"
USER = 1000
# Systems: the suite and the components of mmdebstrap, and the keys that sign the packages.
SYSTEMS = {
    "debian-12": ("bookworm", "main", "debian-archive-keyring"),
    "debian-13": ("trixie", "main", "debian-archive-keyring"),
    "ubuntu-24.04": ("noble", "main,universe", "ubuntu-archive-keyring"),
}
# File systems of the kernel that programs need: /proc, and /dev with its shared memory.
_ENTER = """for shown in proc dev; do mount --rbind /$shown "$1/$shown" || exit 125; done
root=$1 user=$2; shift 2
exec chroot --userspec="$user:$user" "$root" "$@" """
_MOST_SECONDS = 3600


class UntriedError(Exception):
    """A system cannot be had here; the text says what is missing."""


def what_is_missing() -> str:
    """What this machine lacks to make and enter root file systems, ``""`` for nothing."""
    if os.geteuid() != 0:
        return "entering a root file system takes root"
    if shutil.which("mmdebstrap") is None:
        return "mmdebstrap is not installed"
    trial = subprocess.run(
        ["unshare", "--mount", "sh", "-c", "mount --bind /proc /proc && chroot / true"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    return f"no root file system can be entered here: {trial.stderr.strip()}" if trial.returncode else ""


def make_root(system: str, folder: Path, *, headers: bool) -> Path:
    """A root file system, made once.

    Raises:
        UntriedError: its packages cannot be had here.
    """
    suite, components, keyring = SYSTEMS[system]
    root = folder / (system if headers else f"{system}-without-headers")
    if not Path(f"/usr/share/keyrings/{keyring}.gpg").is_file():
        raise UntriedError(f"no keys to check its packages with: {keyring}.gpg, of the package ubuntu-keyring")
    if not root.is_dir():
        root.parent.mkdir(parents=True, exist_ok=True)
        partial = root.with_name(f"{root.name}.partial")
        shutil.rmtree(partial, ignore_errors=True)
        packages = ",".join((*PACKAGES, *([HEADERS] if headers else [])))
        # The mounts that mmdebstrap makes end with it, however it ends.
        command = ["unshare", "--mount", "mmdebstrap", "--variant=minbase", "--quiet"]
        command += [f"--include={packages}", f"--components={components}"]
        made = subprocess.run([*command, suite, partial], capture_output=True, text=True, check=False)
        if made.returncode:
            raise UntriedError(f"mmdebstrap failed: {made.stderr.strip()[-500:]}")
        partial.rename(root)
    return root


@dataclass
class Output:
    """What a program wrote, and when.

    Attributes:
        status: exit status.
        lines: its output and errors.
        seconds: how long it ran.
        first: seconds until the first line.
        silence: the longest time without a line, in seconds.
    """

    status: int = 0
    lines: list[str] = field(default_factory=list)
    seconds: float = 0.0
    first: float = 0.0
    silence: float = 0.0

    @property
    def text(self) -> str:
        return "\n".join(self.lines)


class Root:
    """A copy of a root file system, in which programs run."""

    def __init__(self, made: Path, folder: Path) -> None:
        self.folder = folder
        subprocess.run(["cp", "--archive", "--reflink=auto", made, folder], check=True)
        shutil.copy("/etc/resolv.conf", folder / "etc/resolv.conf")
        for line, file in ((f"user:x:{USER}:{USER}::/home/user:/bin/bash", "passwd"), (f"user:x:{USER}:", "group")):
            with (folder / "etc" / file).open("a", encoding="utf-8") as accounts:
                accounts.write(f"{line}\n")
        self.add_folder("/home/user", USER)
        for certificate in Path("/usr/local/share/ca-certificates").glob("*.crt"):
            self.trust(certificate)

    def add_folder(self, path: str, owner: int, mode: int = 0o755) -> None:
        place = self.folder / path.lstrip("/")
        place.mkdir(parents=True, mode=mode)
        os.chown(place, owner, owner)

    def trust(self, certificate: Path) -> None:
        """Put an authority into the system's store."""
        shutil.copy(certificate, self.folder / "usr/local/share/ca-certificates")
        self.run(["update-ca-certificates"], 0, {"HOME": "/root"})

    def kilobytes(self) -> int:
        command = ["du", "--summarize", "--one-file-system", self.folder]
        counted = subprocess.run(command, stdout=subprocess.PIPE, check=True)
        return int(counted.stdout.split()[0])

    def run(
        self, command: Sequence[str], user: int, variables: dict[str, str], on_line: Callable[[str], None] = str
    ) -> Output:
        """Run a program to its end, with exactly these variables and a PATH; its mounts end with it."""
        own = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"} | variables
        inside = ["/usr/bin/env", "-i", *(f"{name}={value}" for name, value in own.items()), *command]
        enter = ["unshare", "--mount", "--fork", "sh", "-c", _ENTER, "sh", self.folder, str(user)]
        pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        with subprocess.Popen([*enter, *inside], **pipes, text=True, errors="replace", process_group=0) as child:
            end = threading.Timer(_MOST_SECONDS, os.killpg, [child.pid, signal.SIGTERM])
            end.start()
            try:
                return _follow(child, on_line)
            except BaseException:
                os.killpg(child.pid, signal.SIGTERM)
                raise
            finally:
                end.cancel()


def _follow(child: subprocess.Popen[str], on_line: Callable[[str], None]) -> Output:
    started = last = time.monotonic()
    output = Output()
    for line in child.stdout or ():
        now = time.monotonic()
        output.first = output.first or now - started
        output.silence, last = max(output.silence, now - last), now
        output.lines.append(line.rstrip("\n"))
        on_line(output.lines[-1])
    output.status = child.wait()
    output.seconds = time.monotonic() - started
    return output
