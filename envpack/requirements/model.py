"""Requirements and exact packages: what every reader in this room returns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from urllib.parse import urlsplit


@dataclass(frozen=True, kw_only=True)
class CondaPackage:
    """One exact conda package.

    Attributes:
        name: of the package, for example ``"numpy"``.
        version: for example ``"1.26.4"``.
        build: build string, for example ``"py310h4bfa8fc_0"``.
        subdir: ``"linux-64"``, ``"linux-aarch64"`` or ``"noarch"``.
        url: ``https://…`` or ``file:///…``, without user name or password.
        sha256: in hexadecimal digits, ``""`` if only ``md5`` is known.
        md5: in hexadecimal digits, ``""`` if unknown.
        size: bytes, 0 if unknown.
        license: from the package's metadata, ``""`` if unknown.
        depends: match specs of its dependencies.
        constrains: match specs that apply only if the package they name is installed.
    """

    name: str
    version: str
    build: str
    subdir: str
    url: str
    sha256: str = ""
    _: KW_ONLY
    md5: str = ""
    size: int = 0
    license: str = ""
    depends: tuple[str, ...] = ()
    constrains: tuple[str, ...] = ()


@dataclass(frozen=True)
class PipPackage:
    """One exact wheel.

    Attributes:
        name: normalised, for example ``"scikit-learn"``.
        version: for example ``"1.5.2"``.
        url: of the wheel, ``https://…`` or ``file:///…``, without user name or password.
        sha256: in hexadecimal digits.
        size: bytes, 0 if unknown.
    """

    name: str
    version: str
    url: str
    sha256: str
    size: int = 0

    @property
    def is_wheel(self) -> bool:
        """Whether it is a wheel, else a source distribution; a server may want a query after the file's name."""
        return urlsplit(self.url).path.endswith(".whl")


@dataclass(frozen=True, kw_only=True)
class Requirements:
    """The packages that an environment must contain.

    Attributes:
        conda: conda match specs, for example ``"ffmpeg >=6"``; python itself is not among them.
        pip: requirements as lines of a requirements file: PEP 508, a wheel as ``name @ file:///…``, each followed by
            its hashes as ``--hash=sha256:…``.
        python: Python minor version that the file requires, for example ``"3.10"``; ``""`` if it allows several.
        python_range: the Python versions that the file allows, see `allows_minor`; ``""`` if it says nothing.
        source: the file they were read from, ``None`` for requirements made by a program.
        channels: conda channels that the file names, in order of preference.
        constraints: requirements that apply only if another requirement installs the package they name.
        pip_options: options of a requirements file that name indexes or restrict the choice of packages, such as
            ``"--index-url https://…"``; they may contain passwords.
        indexes: packages with an index of their own, each with its address, which may contain a password.
        projects: folders of Python projects to be built to wheels, whether the file names them as editable or not.
        locked_conda: exact conda packages of a lock; no conda package is resolved then.
        locked_pip: exact wheels of a lock; they are not resolved.
        platform: ``"linux-64"`` or ``"linux-aarch64"`` if the file is for only one of them, else ``""``.
        files: every file that was read, ``source`` first.
        places: for requirements, ``"python"`` among them, the file and line that they come from, as ``"FILE:LINE"``.
        warnings: what was left out or changed, each with its place, for the user.
    """

    conda: tuple[str, ...] = ()
    pip: tuple[str, ...] = ()
    python: str = ""
    _: KW_ONLY
    python_range: str = ""
    source: Path | None = None
    channels: tuple[str, ...] = ()
    constraints: tuple[str, ...] = ()
    pip_options: tuple[str, ...] = ()
    indexes: tuple[tuple[str, str], ...] = ()
    projects: tuple[Path, ...] = ()
    locked_conda: tuple[CondaPackage, ...] = ()
    locked_pip: tuple[PipPackage, ...] = ()
    platform: str = ""
    files: tuple[Path, ...] = ()
    places: Mapping[str, str] = field(default_factory=dict, compare=False)
    warnings: tuple[str, ...] = field(default=(), compare=False)

    @property
    def pythons(self) -> str:
        """The Python versions that are allowed, as version specifiers; ``""`` for all."""
        return self.python_range or (f"=={self.python}.*" if self.python else "")
