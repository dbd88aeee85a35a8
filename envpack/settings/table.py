"""All settings: what the command line and envpack.toml can say, each once."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self, get_args

from envpack.settings.fields import UNSAID, Choice, Flag, Kind, Number, OnServer, Place, Size, Texts, fields_of, setting
from envpack.support.platforms import PLATFORMS, platform_name

if TYPE_CHECKING:
    from envpack.support.links_and_modes import LinkMode  # which loads ctypes

PythonPreference = Literal["system", "managed", "only-system", "only-managed"]
ArchiveFormat = Literal["dir", "tar.gz", "tar"]
PackerName = Literal["envpack", "conda-pack"]
StubPolicy = Literal["auto", "always", "never"]
Layout = Literal["model", "backend"]
ToolchainName = Literal["auto", "system", "zig"]
Start = Literal["warm", "cold"]
RuntimeName = Literal["auto", "docker", "process"]

DEFAULT_RELEASE = "24.10"

_WEEK = 7 * 24 * 3600  # seconds
_CONTENT, _MODEL, _SERVER, _MANY = "Content", "Model", "Server", "Many machines"
_RESOLVES = "lock build dev kubernetes-build"


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False)
class Settings:
    """What is said in one place: on the command line, in envpack.toml of all models, or there of one model.

    `envpack.settings.Project.of` puts the places together; before, what is not said there is ``UNSAID``. A value that
    envpack.toml cannot have either is a `UsageError`.
    """

    # What the environment contains.
    python: str = setting(
        Kind(example="3.10", metavar="X.Y"),
        "Python version.",
        otherwise="the model's, or Triton's",
        explained="Python minor version. Default: the requirements', else the lockfile's, else that of the environment "
        "that the model has, else the release's",
        has=f"run init {_RESOLVES}",
        in_model=True,
    )
    triton: str = setting(
        Kind(example="24.10", metavar="RELEASE"),
        "Triton release.",
        otherwise=DEFAULT_RELEASE,
        explained="Triton release that the models are for. A stub that is placed beside a model then refuses servers "
        "of another ABI",
        has=f"run verify inspect layout publish kubernetes-verify {_RESOLVES}",
    )
    abi: str = setting(
        Kind(example="25.04", metavar="RELEASE"),
        "For an unknown release: the known one whose stub ABI it uses.",
        otherwise="the newest",
        has="stub",
        has_set=_RESOLVES,
    )
    platform: str = setting(
        Choice(example="linux-64", metavar="PLATFORM", values=PLATFORMS, also=platform_name),
        "linux-64 or linux-aarch64.",
        otherwise="this machine's",
        explained='platform of the server: `"linux-64"` or `"linux-aarch64"`',
        has=_RESOLVES,
        default="",
        group=_CONTENT,
    )
    channels: tuple[str, ...] = setting(
        Texts(example="conda-forge", metavar="URL", has_paths=True),
        "Conda channel; repeatable.",
        explained="conda channels, in order of preference; a relative path such as `./channel` starts at this file. "
        "Default: what the requirements or `.condarc` name, else this machine's interpreters",
        option="--channel",
        has=f"init {_RESOLVES}",
    )
    python_preference: PythonPreference = setting(
        Choice(example="managed", values=get_args(PythonPreference)),
        "Where Pythons come from: this machine first, those of uv first, or only one of them.",
        explained='where Python comes from: `"system"`, `"managed"`, `"only-system"` or `"only-managed"`; see '
        "[Fetched by uv](../guides/add-a-python.md#fetched-by-uv)",
        has_set=f"stub channel-add-python init {_RESOLVES}",
        default="system",
    )
    allow_source: tuple[str, ...] = setting(
        Texts(example="pyspark", metavar="NAME"),
        "Pip package to build from source, or :all:.",
        explained="pip packages that are built from source if they have no wheel, or `:all:`",
        has=f"init {_RESOLVES}",
        group=_CONTENT,
    )
    requirements: Path | None = setting(
        Place(example="core/requirements.txt", metavar="FILE", is_folder=False),
        "Requirements file.",
        otherwise="what the model's folder has",
        explained="requirements file; relative paths start at this file. At the top: of each model in whose folder "
        "there is none of [these file names](requirements.md)",
        in_model=True,
    )
    from_prefix: Path | None = setting(
        Place(example="/home/me/venv", metavar="DIRECTORY"),
        "Take over this conda or virtual environment.",
        explained="folder of an environment to take over instead; not together with `requirements`",
        has="build",
        in_project=False,
        in_model=True,
    )
    strip: bool = setting(
        Flag(), "Remove debug information from libraries and programs.", has_set="build kubernetes-build"
    )

    # Where it goes, and how.
    format: ArchiveFormat | Literal[""] = setting(
        Choice(example="tar.gz", values=get_args(ArchiveFormat)),
        "Folder or archive.",
        otherwise="as now, else dir",
        explained='form of the environments: `"dir"`, `"tar.gz"` or `"tar"`. Default: the form that each model has '
        'now, else `"dir"`',
        has="build",
        in_model=True,
        default="",
    )
    exclude: tuple[str, ...] = setting(
        Texts(example="*.pyi", metavar="PATTERN"),
        "Leave these files out, by patterns as in .gitignore.",
        explained="patterns of files to leave out of every environment, as in `.gitignore`; [some are always left "
        "out](../explanation/archives.md). Those of a model add to those of the repository",
        has_set="build",
        in_model=True,
        adds=True,
    )
    include: tuple[str, ...] = setting(
        Texts(example="*.txt", metavar="PATTERN"),
        "Keep these files, which another pattern leaves out.",
        has_set="build",
        in_model=True,
        adds=True,
    )
    packer: PackerName = setting(
        Choice(example="conda-pack", values=get_args(PackerName)),
        "What makes archives: envpack, or conda-pack's library.",
        has_set="build",
        default="envpack",
    )
    link_mode: LinkMode = setting(
        Choice(example="copy", values=("auto", "clone", "hardlink", "copy")),
        "How environments get from the cache to the models: as clones, hard links or copies.",
        explained='how environments get from the cache to the models: `"clone"`, `"hardlink"` or `"copy"`; see '
        "[Clones, links and copies](../explanation/archives.md#clones-links-and-copies)",
        has_set="build layout",
        in_model=True,
        default="auto",
    )
    served_from: str = setting(
        OnServer(example="/models", metavar="PATH"),
        "Path of the model repository on the server.",
        otherwise="the repository's path here; /models in a container",
        explained="path of the repository on the server; [some files contain "
        "it](../explanation/archives.md#files-that-name-their-folder)",
        has="layout publish",
        has_set="build verify dev kubernetes-verify",
    )
    stub: StubPolicy = setting(
        Choice(example="always", values=get_args(StubPolicy)),
        "Put a stub beside the model.",
        otherwise="if needed",
        has="build kubernetes-build",
        default="auto",
        group=_MODEL,
    )
    layout: Layout | Literal[""] = setting(
        Choice(example="backend", values=get_args(Layout)),
        "Where stubs go: beside the model, or into a backend for its Python.",
        otherwise="what each model has now, else model",
        explained='place of stubs: `"model"` or `"backend"`; see [Several Pythons](../guides/several-pythons.md)',
        has_set="build dev",
        in_model=True,
        default="",
    )
    backends: Path | None = setting(
        Place(example="../backends", metavar="DIRECTORY"),
        "Folder of the backends for one Python each.",
        otherwise="backends beside the repository",
        explained="folder of the backends; relative paths start at this file. Default: `backends` beside the "
        "repository",
        has_set="build dev layout publish inspect verify",
    )
    copy_library: Path | None = setting(
        Place(example="/opt/tritonserver/backends/python", metavar="DIRECTORY"),
        "Folder of a server's own Python backend, whose library is copied into ours instead of linked.",
        has_set="build",
    )
    toolchain: ToolchainName = setting(
        Choice(example="zig", values=get_args(ToolchainName)),
        "C++ compiler for stubs: this machine's, or the one in the ziglang wheel.",
        otherwise="auto, the first that exists",
        explained='compiler for stubs: `"auto"`, `"system"` or `"zig"`',
        has="stub",
        has_set="build dev kubernetes-build",
        in_model=True,
        default="auto",
    )
    glibc: str = setting(
        Kind(example="2.28", metavar="VERSION"),
        "Oldest glibc that the stub runs with; zig only.",
        otherwise="2.28 with zig, else this machine's",
        has="stub",
        in_project=False,
    )
    start: Start | Literal[""] = setting(
        Choice(example="warm", values=get_args(Start)),
        "How instances start.",
        otherwise="as config.pbtxt says",
        explained='how the models\' instances start: `"warm"` or `"cold"`; see [Warm start](../guides/warm-start.md)',
        has="build",
        in_model=True,
        default="",
        group=_MODEL,
    )
    force: bool = setting(
        Flag(), "Rename what is not envpack's and in the way.", has="build stub", in_project=False, group=_MODEL
    )

    # The server.
    runtime: RuntimeName = setting(
        Choice(example="process", values=get_args(RuntimeName)),
        "Run a container or a process.",
        explained="where the server runs: in a container (`docker`, also podman through its socket), or as a `process` "
        "of this machine; `auto` is a container if a daemon is there and has the image",
        has="verify",
        default="auto",
    )
    image: str = setting(
        Kind(example="registry.example/tritonserver:24.10-py3", metavar="IMAGE"),
        "Container image.",
        otherwise="the release's",
        has="verify dev kubernetes-verify",
    )
    pull: bool = setting(Flag(), "Fetch the image if it is not there.", has_set="verify")
    server: Path | None = setting(
        Place(example="/opt/tritonserver", is_folder=False, metavar="PATH"),
        "The tritonserver to boot.",
        otherwise="found here",
        has="verify run test kubernetes-verify",
        in_project=False,
    )
    gpu: bool = setting(
        Flag(),
        "Serve with all GPUs; `verify` proves it.",
        has="verify test dev kubernetes-verify",
        in_project=False,
    )
    timeout: int = setting(
        Number(example="300", least=1, most=_WEEK, metavar="SECONDS"),
        "Time for a load, and for an answer.",
        explained="how long a model may take to load, and to answer a request, in seconds",
        has="verify run test dev kubernetes-verify",
        default=120,
    )
    port: int | None = setting(
        Number(example="8000", least=1, most=65535, metavar="PORT"),
        "HTTP port on 127.0.0.1.",
        otherwise="a free one",
        has="dev",
        has_set="verify",
    )
    shm_size: int = setting(
        Size(example="1g", metavar="SIZE"),
        "A container's /dev/shm.",
        otherwise="256m",
        has_set="verify dev kubernetes-verify",
        default=256 << 20,
    )
    memory: int | None = setting(
        Size(example="8g", metavar="SIZE"),
        "Memory limit of the container.",
        otherwise="no limit; 4g for a Job",
        has="kubernetes-build kubernetes-verify",
        has_set="verify dev",
    )
    env: tuple[str, ...] = setting(
        Texts(example="OMP_NUM_THREADS=1", metavar="NAME[=VALUE]"),
        "Variable for the server; without a value, that of this shell. Repeatable.",
        has="verify kubernetes-verify",
        has_set="run dev",
        group=_SERVER,
    )
    preload: tuple[str, ...] = setting(
        Texts(example="tcmalloc", metavar="NAME"),
        "tcmalloc, jemalloc or the path of a library for the server's LD_PRELOAD.",
        has_set="verify dev kubernetes-verify",
    )
    server_arg: tuple[str, ...] = setting(
        Texts(example="--backend-config=python,shm-default-byte-size=4194304", metavar="ARG"),
        "Argument for tritonserver; repeatable. Format, place and levels of its log stay as envpack reads it.",
        has_set="verify dev kubernetes-verify",
    )
    keep: bool = setting(
        Flag(), "Leave the server running, and name its address.", has="verify", in_project=False, group=_SERVER
    )
    requests: int = setting(
        Number(example="100", least=0, most=1_000_000, metavar="N"),
        "Requests to each model whose time is measured, within a second.",
        has_set="verify kubernetes-verify",
        default=20,
    )

    # Many machines.
    store: str = setting(
        Kind(example="s3://bucket/envpack", metavar="URL"),
        "Shared store: s3://, gs://, az://, file://, none.",
        explained="address of [a store that machines share](../guides/shared-store.md); `--store none` works without "
        "it",
        has=f"run stub {_RESOLVES.replace('dev ', '')}",
        group=_MANY,
    )
    push: bool = setting(
        Flag(),
        "Put into the store what it lacks.",
        explained="put what is made into that store",
        has_set="run stub lock build",
    )
    on: str = setting(
        Kind(example="tcp://scheduler:8786", metavar="CLUSTER"),
        "Dask cluster: local:2, tcp://… or tls://…",
        explained="work on the workers of a dask cluster: `local:2` for two on this machine, `tcp://host:8786` or "
        "`tls://host:8786` for those of a scheduler",
        has="lock build stub verify",
        group=_MANY,
    )
    store_only: bool = setting(
        Flag(),
        "With --on: leave what the workers make in the store, and place nothing here.",
        has_set="build",
        in_project=False,
    )
    group: int = setting(
        Number(example="4", least=1, most=10_000, metavar="N"),
        "With --on: how many models share a server.",
        has_set="verify",
        default=1,
    )

    def __post_init__(self) -> None:
        for name, field in FIELDS.items():
            value = getattr(self, name)
            if value not in (UNSAID, field.default):
                object.__setattr__(self, name, field.read_value(value))

    def __repr__(self) -> str:
        """What is said, without passwords in addresses and without the values of variables."""
        from envpack.support.redaction import redact  # `--help` does without it

        said = self.values() | ({"env": tuple(entry.partition("=")[0] for entry in self.env)} if self.env else {})
        return redact(f"Settings({', '.join(f'{name}={value!r}' for name, value in said.items())})")

    def values(self) -> dict[str, Any]:
        """What is said, by the names of the settings."""
        return {name: getattr(self, name) for name in FIELDS if getattr(self, name) is not UNSAID}

    def over(self, other: Settings) -> Settings:
        """What this says, and what the other says beside it."""
        mine, others = self.values(), other.values()
        added = {name: (*others[name], *mine[name]) for name in mine.keys() & others.keys() if FIELDS[name].adds}
        return Settings(**others | mine | added)

    def settled(self) -> Settings:
        """The same with the default of everything that is not said."""
        return Settings(**{name: field.default for name, field in FIELDS.items()} | self.values())

    def words(self, command: str) -> list[str]:
        """Words of a command line that say the same, for a command of these settings."""
        words: list[str] = []
        for name, field in FIELDS.items():
            value = getattr(self, name)
            if value in (UNSAID, None, "") or not field.concerns(command):
                continue
            option = command in field.has_option
            if value is True and option:
                words.append(field.flag)
                continue
            for one in value if isinstance(value, tuple) else (value,):
                text = str(one).lower() if isinstance(one, bool) else str(one)
                words += [field.flag, text] if option else ["--set", f"{name}={text}"]
        return words

    def only(self, *names: str) -> Settings:
        """What this says of some settings."""
        return Settings(**{name: getattr(self, name) for name in names})

    def saying(self, **more: Any) -> Self:
        """The same, and what is named."""
        return dataclasses.replace(self, **more)


FIELDS = fields_of(Settings)
