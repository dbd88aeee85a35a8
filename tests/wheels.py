"""Small wheels, source distributions and package indexes for tests."""

import base64
import hashlib
import io
import tarfile
import zipfile
from pathlib import Path


def make_wheel(
    folder: Path, name: str, version: str, files: dict[str, str], *, needs=(), tag="py3-none-any", scripts=()
):
    """Write a wheel; ``files`` are relative to site-packages, ``scripts`` like ``"tool = package:main"``."""
    folder.mkdir(parents=True, exist_ok=True)
    info = f"{name}-{version}.dist-info"
    needed = "".join(f"Requires-Dist: {need}\n" for need in needs)
    content = dict(files)
    content[f"{info}/METADATA"] = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\nLicense: MIT\n{needed}"
    content[f"{info}/WHEEL"] = f"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: {tag}\n"
    if scripts:
        content[f"{info}/entry_points.txt"] = "[console_scripts]\n" + "".join(f"{line}\n" for line in scripts)
    rows = []
    wheel = folder / f"{name}-{version}-{tag}.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for path, text in content.items():
            archive.writestr(zipfile.ZipInfo(path, (1980, 1, 1, 0, 0, 0)), text)
            digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
            rows.append(f"{path},sha256={digest},{len(text.encode())}\n")
        archive.writestr(zipfile.ZipInfo(f"{info}/RECORD", (1980, 1, 1, 0, 0, 0)), "".join(rows) + f"{info}/RECORD,,\n")
    return wheel


def make_source(folder: Path, name: str, version: str, *, fails=""):
    """Write a source distribution with its own build backend, which builds a wheel or fails with this message."""
    folder.mkdir(parents=True, exist_ok=True)
    root = f"{name}-{version}"
    backend = f"""
import pathlib, sys, zipfile

def build_wheel(folder, settings=None, metadata=None):
    if {fails!r}:
        sys.exit({fails!r})
    wheel = pathlib.Path(folder) / "{name}-{version}-py3-none-any.whl"
    info = "{name}-{version}.dist-info"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("{name}.py", "VALUE = 'built'\\n")
        archive.writestr(info + "/METADATA", "Metadata-Version: 2.1\\nName: {name}\\nVersion: {version}\\n")
        archive.writestr(info + "/WHEEL", "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n")
        archive.writestr(info + "/RECORD", "".join(name + ",,\\n" for name in archive.namelist()) + info + "/RECORD,,")
    return wheel.name
"""
    members = {
        "pyproject.toml": f"[build-system]\nrequires = []\nbuild-backend = 'backend'\nbackend-path = ['.']\n"
        f"[project]\nname = '{name}'\nversion = '{version}'\n",
        "backend.py": backend,
        "PKG-INFO": f"Metadata-Version: 2.2\nName: {name}\nVersion: {version}\n",
    }
    source = folder / f"{root}.tar.gz"
    with tarfile.open(source, "w:gz") as archive:
        for path, text in members.items():
            info = tarfile.TarInfo(f"{root}/{path}")
            info.size = len(text.encode())
            archive.addfile(info, io.BytesIO(text.encode()))
    return source


def write_index(root: Path, *, yanked=(), hashes=True):
    """Write ``root/simple``, an index (PEP 503) of the wheels in ``root/files`` with their hashes."""
    by_name: dict[str, list[Path]] = {}
    for file in sorted((root / "files").iterdir()):
        by_name.setdefault(file.name.split("-")[0].replace("_", "-"), []).append(file)
    for name, files in by_name.items():
        page = root / "simple" / name / "index.html"
        page.parent.mkdir(parents=True, exist_ok=True)
        page.write_text("".join(_link(file, file.name in yanked, hashes) for file in files))


def _link(file: Path, is_yanked: bool, hashes: bool) -> str:
    digest = f"#sha256={hashlib.sha256(file.read_bytes()).hexdigest()}" if hashes else ""
    mark = ' data-yanked="it was wrong"' if is_yanked else ""
    return f'<a href="../../files/{file.name}{digest}"{mark}>{file.name}</a>\n'
