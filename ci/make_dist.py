"""Build what is published: the sdist and the wheel of triton-envpack, and the wheels of triton-envpack-stubs.

    python ci/make_dist.py dist
    python ci/make_dist.py dist --machine x86_64 --python 3.10       compiled stubs for fewer machines and Pythons

The wheel of triton-envpack is completed here:

- It requires triton-envpack-stubs of its own version. pyproject.toml does not: `pip install .` in a checkout would look
  for a wheel that no index has. A checkout compiles its stubs.
- It contains the manual pages. They are generated from the commands, which a build in isolation cannot import.
"""

import argparse
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from man_pages import write_pages

import envpack
from envpack.stub.prebuilt import DISTRIBUTION

CHECKOUT = Path(__file__).resolve().parents[1]
MACHINES = ("x86_64", "aarch64")
REQUIREMENT = (
    f"{DISTRIBUTION}=={envpack.__version__}; "
    f"sys_platform == 'linux' and ({' or '.join(f'platform_machine == {machine!r}' for machine in MACHINES)})"
)


def build(output: Path) -> None:
    """The sdist, and the wheel that is built from it."""
    output.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        uv = Path(sys.executable).with_name("uv")
        subprocess.run([uv, "build", "--quiet", "--out-dir", folder, CHECKOUT], check=True)
        (sdist,) = Path(folder).glob("*.tar.gz")
        (wheel,) = Path(folder).glob("*.whl")
        shutil.move(sdist, output / sdist.name)
        complete(wheel, output)


def complete(wheel: Path, output: Path) -> Path:
    """Unpack a wheel, add the requirement and the manual pages, and pack it into ``output``."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "wheel"]
        subprocess.run([*command, "unpack", "--dest", folder, wheel], check=True, stdout=subprocess.DEVNULL)
        (tree,) = Path(folder).iterdir()
        (info,) = tree.glob("*.dist-info")
        add_requirement(info / "METADATA")
        write_pages(tree / f"{info.stem}.data/data/share/man/man1")
        subprocess.run([*command, "pack", "--dest-dir", output, tree], check=True, stdout=subprocess.DEVNULL)
    return output / wheel.name


def add_requirement(metadata: Path) -> None:
    """Requires-Dist belongs to the header, which ends at the first empty line."""
    header, gap, body = metadata.read_text(encoding="utf-8").partition("\n\n")
    metadata.write_text(f"{header}\nRequires-Dist: {REQUIREMENT}{gap}{body}", encoding="utf-8")


def build_stubs(output: Path, machine: str, pythons: Sequence[str]) -> None:
    """The wheel of compiled stubs for a machine."""
    command = [sys.executable, CHECKOUT / "ci/build-prebuilt", "--output", output, "--machine", machine]
    subprocess.run([*command, *(word for python in pythons for word in ("--python", python))], check=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", type=Path, metavar="DIRECTORY")
    parser.add_argument("--machine", action="append", choices=MACHINES)
    parser.add_argument("--python", action="append", default=[], metavar="3.10")
    options = parser.parse_args()
    shutil.rmtree(options.output, ignore_errors=True)
    build(options.output.absolute())
    for machine in options.machine or MACHINES:
        build_stubs(options.output, machine, options.python)
    for file in sorted(options.output.iterdir()):
        print(f"{file}: {file.stat().st_size / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
