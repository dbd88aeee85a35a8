"""Makes what a server needs for its models, once: environments and stubs."""

import os
import shutil
import subprocess
import sys
import tarfile
from dataclasses import dataclass
from pathlib import Path

import pytest
from filelock import FileLock

from envpack.environment.relocation import write_activation
from envpack.stub.build import build_stub
from envpack.stub.recipe import Cell
from envpack.support.placed_files import STUB_NAME
from envpack.support.replacement import replaced_file
from tests.needed_pythons import need_interpreter
from tests.newer_pythons import is_newer, newer_environment, target_of

# The oldest and the newest NumPy worth trying for each Python; 3.13 and later have no NumPy 1.
NUMPYS = {
    "3.6": ("1.19.5",),
    "3.7": ("1.21.6",),
    "3.8": ("1.24.4",),
    "3.9": ("1.26.4",),
    "3.10": ("1.26.4", "2.2.6"),
    "3.11": ("1.26.4", "2.2.6"),
    "3.12": ("1.26.4", "2.2.6"),
    "3.13": ("2.2.6",),
    "3.14": ("2.5.5",),
    "3.15": ("2.5.5",),
}


@dataclass
class ModelEnvironments:
    """Keeps what it makes in one folder."""

    folder: Path

    def stub(self, python):
        if "ENVPACK_TEST_STUBS" in os.environ:  # see ci/sanitized.py
            return Path(os.environ["ENVPACK_TEST_STUBS"]) / python / STUB_NAME
        if not is_newer(python):
            need_interpreter(python)
        return build_stub(Cell(target_of(python)), cache=self.folder / "stubs").path

    def environments(self, python):
        return [self.environment(python, numpy) for numpy in NUMPYS[python]]

    def environment(self, python, numpy):
        """A folder that the server takes for an environment: the interpreter's files as links, and NumPy."""
        if is_newer(python):
            return newer_environment(python, numpy)
        interpreter = need_interpreter(python)
        folder = self.folder / f"environments/{interpreter.version}-numpy{numpy}"
        folder.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(f"{folder}.lock"):  # another run of the tests may keep its things here too
            if not (folder / "bin/activate").is_file():
                shutil.rmtree(folder, ignore_errors=True)
                _link_interpreter(interpreter, folder)
                _install_numpy(interpreter, numpy, folder / f"lib/python{python}/site-packages")
                write_activation(folder)
        return folder

    def variant(self, environment, name, activate):
        """The same environment, with more lines in its activate."""
        folder = self.folder / f"environments/{environment.name}-{name}"
        (folder / "bin").mkdir(parents=True, exist_ok=True)
        if not (folder / "lib").exists():
            (folder / "lib").symlink_to(environment / "lib")
        shutil.copy(environment / "bin/python3", folder / "bin/python3")
        write_activation(folder)
        with (folder / "bin/activate").open("r+") as file:
            text = file.read().replace("return 0", f"{activate}\nreturn 0")
            file.seek(0)
            file.write(text)
        return folder

    def without_modes(self, environment):
        """The same environment without executable files, as object storage delivers it."""
        folder = self.variant(environment, "without-modes", "true")
        for file in (folder / "bin").iterdir():
            file.chmod(0o644)
        return folder

    def archive(self, environment):
        """The same environment as an archive: small, since its library folder is a link to where everything is."""
        file = self.folder / f"environments/{environment.name}.tar"
        with replaced_file(file) as temporary, tarfile.open(temporary, "w", dereference=True) as tar:
            for name in ("bin/activate", "bin/python3", "pyvenv.cfg"):
                tar.add(environment / name, name)
            link = tarfile.TarInfo("lib")
            link.type, link.linkname = tarfile.SYMTYPE, str(environment / "lib")
            tar.addfile(link)
        return file


def _link_interpreter(interpreter, folder):
    standard = folder / f"lib/python{interpreter.minor}"
    (standard / "site-packages").mkdir(parents=True)
    (folder / "bin").mkdir()
    shutil.copy(interpreter.executable, folder / "bin/python3")
    (folder / "lib" / interpreter.library.name).symlink_to(interpreter.library)
    for entry in interpreter.stdlib.iterdir():
        if entry.name not in ("site-packages", "dist-packages"):
            (standard / entry.name).symlink_to(entry)
    (standard / "dist-packages").symlink_to("site-packages")  # where the Pythons of Debian look


def _install_numpy(interpreter, version, folder):
    uv = Path(sys.executable).with_name("uv")
    if not uv.is_file():
        pytest.skip("uv is not installed beside this Python")
    command = [uv, "pip", "install", "--quiet", "--python", interpreter.executable, "--only-binary", ":all:"]
    done = subprocess.run(
        [*command, "--target", folder, f"numpy=={version}"], capture_output=True, text=True, check=False
    )
    if done.returncode:
        pytest.skip(f"NumPy {version} could not be installed: {done.stderr[-300:]}")
