"""Make a container image of a Triton server from Debian's packages and the nvidia-pytriton wheel.

    python -m ci.containers.image            imports the image unless it exists, and prints its tag

The official image is some 10 GB and comes from a registry. This one has the same layout (/opt/tritonserver), bash and
coreutils as the server needs them, and nothing else: of Python only the library that the release's own stub starts
with, and the libraries that any system's Python brings along. So each model has to bring its environment. The server
itself comes out of the wheel that is installed beside this Python.
"""

from __future__ import annotations

import hashlib
import io
import os
import subprocess
import tarfile
import tempfile
from pathlib import Path

import docker

from envpack.conda.choice import interpreter_for
from envpack.server.launch import ServerInstallation, find_server
from envpack.settings.releases import find_release

TAG = "envpack-test/tritonserver"
_RECIPE_LABEL = "envpack.test.recipe"
_PACKAGES = (
    *("libc6", "libgcc-s1", "libstdc++6", "zlib1g", "libc-bin", "base-files"),
    *("bash", "dash", "libtinfo6"),
    *("libffi8", "libssl3", "libbz2-1.0", "liblzma5", "libuuid1", "libexpat1"),
    *("coreutils", "libacl1", "libattr1", "libgmp10", "libselinux1", "libpcre2-8-0"),
)
_NOT_NEEDED = ("usr/share/doc", "usr/share/man", "usr/share/locale", "usr/share/info", "usr/lib/x86_64-linux-gnu/gconv")
_HOME = "opt/tritonserver"
# The server of the wheel searches ../lib for its libraries; its backends search four levels above their folder.
_LIBRARIES, _LIBRARIES_LINK = f"{_HOME}/lib", "nvidia_pytriton.libs"
_UNUSED_LIBRARY = "libpython3"  # belongs to the wheel's own stub for Python 3.13, which the image leaves out


def ensure_image(client: docker.DockerClient) -> str:
    """The tag of an image with the installed server; the image is made if the daemon does not have it."""
    server = find_server()
    tag = f"{TAG}:{server.release or 'local'}"
    recipe = _recipe(server)
    try:
        if client.images.get(tag).labels.get(_RECIPE_LABEL) == recipe:
            return tag
    except docker.errors.ImageNotFound:
        pass
    with tempfile.TemporaryDirectory(prefix="envpack-image-") as temporary:
        _download(Path(temporary))
        archive = Path(temporary) / "image.tar"
        with tarfile.open(archive, "w") as content:
            _add_system(content, Path(temporary))
            _add_server(content, server)
        changes = (
            f"LABEL {_RECIPE_LABEL}={recipe}",
            f"ENV PATH=/{_HOME}/bin:/usr/local/bin:/usr/bin:/bin",
            f"WORKDIR /{_HOME}",
        )
        client.api.import_image_from_file(str(archive), repository=TAG, tag=tag.rpartition(":")[2], changes=changes)
    if not client.images.list(name=tag):  # podman ignores the tag of an import
        (image,) = client.images.list(filters={"label": f"{_RECIPE_LABEL}={recipe}"})
        image.tag(TAG, tag.rpartition(":")[2])
    return tag


def _recipe(server: ServerInstallation) -> str:
    parts = (Path(__file__).read_text(encoding="utf-8"), server.release, str(server.executable.stat().st_size))
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


def _download(folder: Path) -> None:
    folder.chmod(0o777)  # apt-get drops root's rights to download
    done = subprocess.run(
        ["apt-get", "download", "-q", *_PACKAGES], cwd=folder, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise RuntimeError(f"apt-get download failed: {done.stderr.strip()[-500:]}")


def _add_system(image: tarfile.TarFile, downloads: Path) -> None:
    root = downloads / "root"
    for package in sorted(downloads.glob("*.deb")):
        subprocess.run(["dpkg-deb", "-x", package, root], check=True)
    for link, target in (("bin", "usr/bin"), ("lib", "usr/lib"), ("lib64", "usr/lib64"), ("sbin", "usr/sbin")):
        _merge(root, link, target)
    (root / "usr/bin/sh").unlink(missing_ok=True)
    (root / "usr/bin/sh").symlink_to("dash")
    (root / "etc/passwd").write_text("root:x:0:0::/root:/bin/bash\nnobody:x:65534:65534::/nonexistent:/bin/false\n")
    (root / "etc/group").write_text("root:x:0:\nnogroup:x:65534:\n")
    (root / "tmp").mkdir(exist_ok=True)
    (root / "tmp").chmod(0o1777)
    # A daemon makes folders that the archive does not list; a rootless one makes them readable for root alone.
    for folder in ("models", f"{_HOME}/bin", f"{_HOME}/backends/python", _LIBRARIES):
        (root / folder).mkdir(parents=True)
    image.add(root, ".", filter=_of_system)


def _merge(root: Path, old: str, new: str) -> None:
    """Debian's packages ship /bin and /lib as folders; the system requires links into /usr."""
    target = root / new
    target.mkdir(parents=True, exist_ok=True)
    if (root / old).is_dir() and not (root / old).is_symlink():
        subprocess.run(["cp", "-a", f"{root / old}/.", target], check=True)
        subprocess.run(["rm", "-r", root / old], check=True)
    if not (root / old).is_symlink():
        (root / old).symlink_to(new)


def _of_system(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
    name = entry.name.removeprefix("./")
    if any(name == folder or name.startswith(f"{folder}/") for folder in _NOT_NEEDED):
        return None
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    return entry


def _add_server(image: tarfile.TarFile, server: ServerInstallation) -> None:
    libraries = Path(server.library_path)
    assert server.library_path, "the server is not the one of a wheel"
    _add(image, server.executable, f"{_HOME}/bin/tritonserver", 0o755)
    for file in sorted((server.backends / "python").iterdir()):
        if file.is_file():
            _add(image, file, f"{_HOME}/backends/python/{file.name}", 0o755 if os.access(file, os.X_OK) else 0o644)
    _add_default_stub(image, server)
    for file in sorted(libraries.iterdir()):
        if not file.name.startswith(_UNUSED_LIBRARY):
            _add(image, file, f"{_LIBRARIES}/{file.name}", 0o644)
    link = tarfile.TarInfo(_LIBRARIES_LINK)
    link.type, link.linkname = tarfile.SYMTYPE, _LIBRARIES
    image.addfile(link)


def _add_default_stub(image: tarfile.TarFile, server: ServerInstallation) -> None:
    """The release's own stub, and the system's Python library that the official image has for it."""
    python = find_release(server.release).python
    _add(image, server.stubs[python], f"{_HOME}/backends/python/{server.stubs[python].name}", 0o755)
    library = interpreter_for(python).library
    assert library is not None, f"the Python {python} here has no shared library"
    _add(image, library, f"usr/lib/{library.name}", 0o644)


def _add(image: tarfile.TarFile, file: Path, name: str, mode: int) -> None:
    entry = tarfile.TarInfo(name)
    content = file.read_bytes()
    entry.size, entry.mode = len(content), mode
    image.addfile(entry, io.BytesIO(content))


if __name__ == "__main__":
    print(ensure_image(docker.from_env()))
