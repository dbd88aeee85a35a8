"""Requirements and exact packages: what every reader in this room returns."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit


@dataclass(frozen=True, kw_only=True)
class CondaPackage:
    """One exact conda package."""

    name: str  # of the package, for example "numpy"
    version: str  # for example "1.26.4"
    build: str  # build string, for example "py310h4bfa8fc_0"
    subdir: str  # "linux-64", "linux-aarch64" or "noarch"
    url: str  # https://… or file:///…, without user name or password
    sha256: str = ""  # in hexadecimal digits, "" if only md5 is known
    md5: str = ""  # in hexadecimal digits, "" if unknown
    size: int = 0  # bytes, 0 if unknown
    license: str = ""  # from the package's metadata, "" if unknown
    depends: tuple[str, ...] = ()  # match specs of its dependencies
    constrains: tuple[str, ...] = ()  # match specs that apply only if the package they name is installed


@dataclass(frozen=True)
class PipPackage:
    """One exact wheel."""

    name: str  # normalised, for example "scikit-learn"
    version: str  # for example "1.5.2"
    url: str  # of the wheel, https://… or file:///…, without user name or password
    sha256: str  # in hexadecimal digits
    size: int = 0  # bytes, 0 if unknown

    @property
    def is_wheel(self) -> bool:
        """Whether it is a wheel, else a source distribution; a server may want a query after the file's name."""
        return urlsplit(self.url).path.endswith(".whl")


@dataclass(frozen=True, kw_only=True)
class Requirements:
    """The packages that an environment must contain."""

    conda: tuple[str, ...] = ()  # conda match specs, for example "ffmpeg >=6"; python itself is not among them
    # Requirements as lines of a requirements file: PEP 508, a wheel as name @ file:///…, each followed by its
    # hashes as --hash=sha256:…
    pip: tuple[str, ...] = ()
    python: str = ""  # Python minor version that the file requires, for example "3.10"; "" if it allows several
    python_range: str = ""  # the Python versions that the file allows, see `allows_minor`; "" if it says nothing
    source: Path | None = None  # the file they were read from, None for requirements made by a program
    channels: tuple[str, ...] = ()  # conda channels that the file names, in order of preference
    # Requirements that apply only if another requirement installs the package they name.
    constraints: tuple[str, ...] = ()
    # Options of a requirements file that name indexes or restrict the choice of packages, such as "--index-url
    # https://…"; they may contain passwords.
    pip_options: tuple[str, ...] = ()
    # Packages with an index of their own, each with its address, which may contain a password.
    indexes: tuple[tuple[str, str], ...] = ()
    # Names of indexes by their address; uv has an account for each name in variables such as UV_INDEX_NAME_PASSWORD.
    index_names: Mapping[str, str] = field(default_factory=dict, compare=False)
    # Folders of Python projects to be built to wheels, whether the file names them as editable or not.
    projects: tuple[Path, ...] = ()
    locked_conda: tuple[CondaPackage, ...] = ()  # exact conda packages of a lock; no conda package is resolved then
    locked_pip: tuple[PipPackage, ...] = ()  # exact wheels of a lock; they are not resolved
    platform: str = ""  # "linux-64" or "linux-aarch64" if the file is for only one of them, else ""
    files: tuple[Path, ...] = ()  # every file that was read, `source` first
    # For requirements, "python" among them, the file and line that they come from, as "FILE:LINE".
    places: Mapping[str, str] = field(default_factory=dict, compare=False)
    # What was left out or changed, each with its place, for the user.
    warnings: tuple[str, ...] = field(default=(), compare=False)

    @property
    def download_variables(self) -> dict[str, str]:
        """Variables for downloads by uv: accounts of all indexes that the file names, and hosts that it trusts."""
        options = [option.partition(" ")[::2] for option in self.pip_options]
        pages = (address for name, address in options if name.endswith("index-url") or address.startswith("http"))
        found = [*pages, *(address for _, address in self.indexes), *self.index_names]
        variables = {
            "UV_INDEX": " ".join(dict.fromkeys(map(self.with_name, found))),
            "UV_INSECURE_HOST": " ".join(host for name, host in options if name == "--trusted-host"),
        }
        return {name: value for name, value in variables.items() if value}

    def with_name(self, address: str) -> str:
        """An index in the form that uv reads in variables: with its name, if it has one."""
        name = self.index_name(address)
        return f"{name}={address}" if name else address

    def index_name(self, address: str) -> str:
        """The name of an index, ``""`` if it has none that uv allows."""
        name = self.index_names.get(address, "")
        return name if re.fullmatch(r"[A-Za-z0-9_.-]+", name) else ""

    @property
    def pythons(self) -> str:
        """The Python versions that are allowed, as version specifiers; ``""`` for all."""
        return self.python_range or (f"=={self.python}.*" if self.python else "")
