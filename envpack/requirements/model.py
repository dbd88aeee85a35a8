"""What a model requires, and packages that somebody has chosen already: what every reader of a file here gives."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class CondaPackage:
    """One conda package, exactly.

    Attributes:
        name: of the package, for example ``"numpy"``.
        version: for example ``"1.26.4"``.
        build: build string, for example ``"py310h4bfa8fc_0"``.
        subdir: ``"linux-64"``, ``"linux-aarch64"`` or ``"noarch"``.
        url: where it is: ``https://…`` or ``file:///…``, without user name or password.
        sha256: in hexadecimal digits, ``""`` if only ``md5`` is known.
        md5: in hexadecimal digits, ``""`` if unknown.
        size: bytes, 0 if unknown.
        license: as the package says it, ``""`` if unknown.
        depends: match specs that it needs.
        constrains: match specs that hold if the package they name is there.

    """

    name: str
    version: str
    build: str
    subdir: str
    url: str
    sha256: str = ""
    md5: str = ""
    size: int = 0
    license: str = ""
    depends: tuple[str, ...] = ()
    constrains: tuple[str, ...] = ()


@dataclass(frozen=True)
class PipPackage:
    """One wheel, exactly.

    Attributes:
        name: normalised, for example ``"scikit-learn"``.
        version: for example ``"1.5.2"``.
        url: where the wheel is: ``https://…`` or ``file:///…``, without user name or password.
        sha256: in hexadecimal digits.
        size: bytes, 0 if unknown.

    """

    name: str
    version: str
    url: str
    sha256: str
    size: int = 0


@dataclass(frozen=True)
class Requirements:
    """What an environment must hold.

    Attributes:
        conda: conda match specs, for example ``"ffmpeg >=6"``; python itself is not among them.
        pip: requirements as lines of a requirements file: PEP 508, a wheel as ``name @ file:///…``, hashes behind
            them as ``--hash=sha256:…``.
        python: Python minor version that the file asks for, for example ``"3.10"``, or ``""``.
        source: the file they were read from, ``None`` for requirements made otherwise.
        channels: conda channels that the file names, in order of preference.
        constraints: requirements that hold only if something else asks for the package they name.
        pip_options: options of a requirements file that say where packages come from and which of them are allowed,
            such as ``"--index-url https://…"``; they may hold passwords.
        projects: folders of Python projects that are to be built to wheels, whether they were named as editable or not.
        locked_conda: conda packages that the file has chosen already; nothing is solved then.
        locked_pip: wheels that the file has chosen already; nothing is resolved then.
        platform: ``"linux-64"`` or ``"linux-aarch64"`` if the file is for one of them only, else ``""``.
        files: every file that was read, ``source`` first.

    """

    conda: tuple[str, ...] = ()
    pip: tuple[str, ...] = ()
    python: str = ""
    source: Path | None = None
    channels: tuple[str, ...] = ()
    constraints: tuple[str, ...] = ()
    pip_options: tuple[str, ...] = ()
    projects: tuple[Path, ...] = ()
    locked_conda: tuple[CondaPackage, ...] = ()
    locked_pip: tuple[PipPackage, ...] = ()
    platform: str = ""
    files: tuple[Path, ...] = ()
