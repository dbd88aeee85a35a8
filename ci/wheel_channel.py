"""A conda channel in place of conda-forge: wheels of an index as conda packages, and a Python of this machine."""

import contextlib
import os
import re
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator, Sequence
from email.parser import Parser
from pathlib import Path

from tests.conda_packages import index, make_conda_package
from tests.web import serve


@contextlib.contextmanager
def wheel_channel(python: str, names: Sequence[str]) -> Iterator[None]:
    """Serve the channel on 127.0.0.1, and set CONDARC to a file that says so, during the block.

    Args:
        python: minor version.
        names: packages, each with what it requires.
    """
    with tempfile.TemporaryDirectory(prefix="envpack-channel-") as temporary:
        folder = Path(temporary)
        channel = folder / "conda-forge"
        add = [sys.executable, "-m", "envpack", "channel", "add-python", python, "--to", channel, "--quiet"]
        subprocess.run(add, check=True)
        wheels = ["--python-version", python, "--only-binary", ":all:", "--no-deps", "--dest", folder / "wheels"]
        subprocess.run([sys.executable, "-m", "pip", "--quiet", "download", *wheels, *names], check=True)
        for wheel in (folder / "wheels").glob("*.whl"):
            _convert(wheel, channel, python, names)
        index(channel)
        with serve(folder) as site:
            settings = folder / "condarc"
            settings.write_text(f"channel_alias: {site.url()}\n", encoding="utf-8")
            before = os.environ.get("CONDARC")
            os.environ["CONDARC"] = str(settings)
            try:
                yield
            finally:
                os.environ.pop("CONDARC")
                os.environ.update({} if before is None else {"CONDARC": before})


def _convert(wheel: Path, channel: Path, python: str, names: Sequence[str]) -> None:
    """Make a conda package of a wheel; of its requirements, those in ``names`` are kept."""
    site = f"lib/python{python}/site-packages"
    with zipfile.ZipFile(wheel) as archive:
        files = {f"{site}/{name}": archive.read(name) for name in archive.namelist() if not name.endswith("/")}
    (metadata,) = (content for name, content in files.items() if name.endswith(".dist-info/METADATA"))
    about = Parser().parsestr(metadata.decode())
    required = {re.match(r"[\w.-]+", line)[0] for line in about.get_all("Requires-Dist", []) if "extra ==" not in line}
    depends = [f"python {python}.*", *sorted(required & set(names))]
    make_conda_package(channel, about["Name"].lower(), about["Version"], files, depends=depends)
