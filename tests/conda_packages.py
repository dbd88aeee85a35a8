"""Small conda packages and channels for tests."""

import hashlib
import io
import json
import tarfile
import zipfile
from pathlib import Path

from envpack.conda.engine import index_channel
from envpack.support import zstd

PLACEHOLDER = "/opt/placehold" + "_placehold" * 20


def make_conda_package(
    channel: Path,
    name: str,
    version: str,
    files: dict[str, bytes | Path],
    *,
    depends=(),
    noarch="",
    subdir="linux-64",
    **about,
) -> Path:
    """Write ``name-version-0.conda`` into a channel folder; content with `PLACEHOLDER` is declared in its metadata.

    A path in place of content is the target of a symbolic link. Scripts and files in ``bin`` are executable.
    ``about`` goes to ``index.json``.
    """
    subdir = "noarch" if noarch else subdir
    (channel / subdir).mkdir(parents=True, exist_ok=True)
    index = {
        "name": name, "version": version, "build": "0", "build_number": 0, "subdir": subdir, "depends": list(depends),
        "license": "MIT", "timestamp": 315532800000,
    } | about  # fmt: skip
    if noarch:
        index["noarch"] = noarch
    paths = [_record(path, content) for path, content in sorted(files.items())]
    info = {
        "info/index.json": json.dumps(index).encode(),
        "info/paths.json": json.dumps({"paths": paths, "paths_version": 1}).encode(),
        "info/files": "".join(f"{path}\n" for path in sorted(files)).encode(),
        "info/about.json": b"{}",
    }
    if noarch == "python":
        info["info/link.json"] = json.dumps({"noarch": {"type": "python"}, "package_metadata_version": 1}).encode()
    package = channel / subdir / f"{name}-{version}-0.conda"
    with zipfile.ZipFile(package, "w") as archive:
        archive.writestr("metadata.json", json.dumps({"conda_pkg_format_version": 2}))
        archive.writestr(f"info-{name}-{version}-0.tar.zst", _packed(info))
        archive.writestr(f"pkg-{name}-{version}-0.tar.zst", _packed(files))
    return package


def _record(path: str, content: bytes | Path) -> dict:
    if isinstance(content, Path):
        return {"_path": path, "path_type": "softlink", "sha256": hashlib.sha256(b"").hexdigest(), "size_in_bytes": 0}
    digest = hashlib.sha256(content).hexdigest()
    record = {"_path": path, "path_type": "hardlink", "sha256": digest, "size_in_bytes": len(content)}
    if PLACEHOLDER.encode() in content:
        record |= {"prefix_placeholder": PLACEHOLDER, "file_mode": "binary" if b"\0" in content else "text"}
    return record


def index(channel: Path) -> str:
    """Index a channel folder; its address as a URL."""
    for subdir in ("linux-64", "noarch"):
        (channel / subdir).mkdir(parents=True, exist_ok=True)
    index_channel(channel)
    return channel.as_uri()


def _packed(members: dict[str, bytes | Path]) -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as archive:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            if isinstance(content, Path):
                info.type, info.linkname = tarfile.SYMTYPE, str(content)
                archive.addfile(info)
                continue
            executable = content.startswith(b"#!") or name.startswith("bin/")
            info.size, info.mode = len(content), 0o755 if executable else 0o644
            archive.addfile(info, io.BytesIO(content))
    return zstd.compress(stream.getvalue())
