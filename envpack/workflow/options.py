"""What callers say of a build and of a resolution."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from envpack.project import Project
from envpack.releases import DEFAULT_RELEASE, Release, find_release

if TYPE_CHECKING:
    from envpack.archive import PackerName
    from envpack.pythons import PythonPreference
    from envpack.stub import ToolchainName
    from envpack.support.transfer import LinkMode

ArchiveFormat = Literal["dir", "tar.gz", "tar"]
Layout = Literal["model", "backend"]
StubPolicy = Literal["auto", "always", "never"]
Start = Literal["cold", "warm"]


@dataclass(frozen=True, kw_only=True)
class ResolveOptions:
    """What decides which packages are chosen, beside the requirements.

    Attributes:
        python: Python minor version; ``""`` for the first of envpack.toml, the requirements, the lockfile, the
            environment that the model has, and the release's own Python.
        triton: Triton release, ``""`` for the project's.
        abi: name of the stub ABI that the release uses, for a release that envpack does not know; ``""`` for the
            known one.
        channels: conda channels in order of preference; empty for those of the project, of the requirements, of the
            user's conda settings, or ``"local"``: this machine's own interpreters.
        platform: ``"linux-64"`` or ``"linux-aarch64"``, ``""`` for the project's or this machine's.
        sources: pip packages that may be built from source; ``":all:"`` for any.
        python_preference: where interpreters come from: ``"system"``: uv fetches one if none of this machine fits;
            ``"managed"``: those that uv installs first; ``"only-system"``, ``"only-managed"``: no others. None for the
            project's, else ``"system"``.
    """

    python: str = ""
    triton: str = ""
    abi: str = ""
    channels: tuple[str, ...] = ()
    platform: str = ""
    sources: tuple[str, ...] = ()
    python_preference: PythonPreference | None = None


@dataclass(frozen=True)
class BuildOptions:
    """What the caller says of a build; empty fields are taken from the project, the model, or a default.

    Attributes:
        resolve: Python, release, channels and whatever else decides which packages are chosen.
        archive_format: ``"dir"`` for a folder beside the model, ``"tar.gz"`` or ``"tar"`` for an archive; None for
            that of envpack.toml, else that of the environment that the model has, else ``"dir"``.
        exclude: patterns of files to leave out, as in ``.gitignore``, beside those of envpack.toml and of envpack.
        include: patterns of files to keep.
        packer: ``"conda-pack"`` makes the archive with conda-pack's library.
        strip: remove debug information from libraries and programs.
        served_from: path of the model repository on the server, ``""`` for the project's.
        stub: ``"auto"`` places one if the release's own stub has another Python, or cannot serve the model's NumPy.
        toolchain: compiler for the stub, None for the project's, else ``"auto"``.
        from_prefix: folder of an existing environment to take over instead of building from requirements.
        link_mode: how files of the cache are placed: ``"clone"``, ``"hardlink"``, ``"copy"`` or ``"auto"``; None for
            the project's, else ``"auto"``.
        layout: ``"model"`` puts the stub beside the model; ``"backend"`` into a backend for its Python, which the
            model then names. None for the project's, or else for what the model names already.
        backends: folder of those backends; None for the project's, or else ``backends`` beside the repository.
        copy_library: folder of a server's own Python backend, whose library is copied instead of linked to.
        start: ``"warm"`` lets the model's instances start warm, and places a stub; ``"cold"`` undoes that. None for the
            project's, or else as the model's configuration has it.
        force: move aside what envpack did not make and would have to replace, instead of refusing.
    """

    resolve: ResolveOptions = field(default_factory=ResolveOptions)
    _: KW_ONLY
    archive_format: ArchiveFormat | None = None
    exclude: tuple[str, ...] = ()
    include: tuple[str, ...] = ()
    packer: PackerName = "envpack"
    strip: bool = False
    served_from: str = ""
    stub: StubPolicy = "auto"
    toolchain: ToolchainName | None = None
    from_prefix: Path | None = None
    link_mode: LinkMode | None = None
    layout: Layout | None = None
    backends: Path | None = None
    copy_library: Path | None = None
    start: Start | None = None
    force: bool = False


def release_for(project: Project, options: ResolveOptions) -> Release:
    """The release to build for: the first that the options and the project name, else the default."""
    where = "" if options.triton else str(project.file)
    return find_release(options.triton or project.triton or DEFAULT_RELEASE, abi=options.abi or None, where=where)
