"""Inspects the files of a repository: folder names, modes, git-lfs pointers and execution environments."""

from __future__ import annotations

import os
import re
import stat
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from envpack.archive.comparison import system_of
from envpack.archive.inspection import inspect_environment, is_rejected
from envpack.archive.reading import is_archive, other_format
from envpack.repository.code import missing_models, named_and_left_out, paths_elsewhere
from envpack.repository.folders import file_in, looks_like_model, missing_version, odd_version, version_folders
from envpack.repository.imports import hidden_modules
from envpack.repository.model import Model
from envpack.repository.placement import UTILITIES, linked_path_fault
from envpack.requirements.format import find_requirements
from envpack.settings.releases import Release
from envpack.support.bounded_reading import is_pointer, opened, pointer_finding, read_source
from envpack.support.errors import Finding, InputError, Severity, caution, fault, finding_of_error
from envpack.support.folders import path_in_shell, real_path, shell_fault
from envpack.support.placed_files import CONFIG_NAME, LOCK_NAME, STUB_NAME
from envpack.support.text import printable_line

_LARGEST_CODE = 1 << 20  # bytes; a server takes more, which would take long here
ACTIVATE = "bin/activate"
_KEYWORD = "$$TRITON_MODEL_DIRECTORY"
_SHOWN_PROGRAMS = 3


def folder_findings(repository: Path) -> Iterator[Finding]:
    """Folders that a server loads as models although they are not models, and links that keep it from looking."""
    for entry in sorted(repository.iterdir()):
        if entry.is_symlink() and not entry.exists():
            what = (
                f"the link's target does not exist: {entry.readlink()}, and a server that finds it here loads no model"
            )
            yield fault("broken-link", entry, what, "fix or remove the link")
        if not entry.is_dir():
            continue
        is_model = looks_like_model(entry) or os.path.islink(entry / CONFIG_NAME)  # noqa: PTH114 - is_symlink() may raise
        is_hidden = entry.name.startswith(".")
        if is_hidden or not is_model:
            what = "a server loads every folder here as a model, and exits because it cannot load this one"
            fix = "move it elsewhere, or serve the folder that `envpack layout --output` writes"
            configs = [] if is_hidden else sorted(entry.glob(f"[1-9]*/{CONFIG_NAME}"))
            if configs:
                version = configs[0].parent.name
                what = f"a server finds no {CONFIG_NAME} here, since it lies in {version}"
                fix = f"move {version}/{CONFIG_NAME} to {entry.name}/{CONFIG_NAME}; or, if this is no model, {fix}"
            elif not is_hidden and (template := _template_in(entry)):
                what = f"a server finds no {CONFIG_NAME} here, and does not read {template}"
                fix = f"fill in {template} as {CONFIG_NAME}; or, if this is no model, {fix}"
            yield fault("stray-folder", entry, what, fix)


def template_findings(folder: Path) -> Iterator[Finding]:
    """A template that nothing has filled in yet, although the model may do without a configuration."""
    if not (folder / CONFIG_NAME).exists() and (template := _template_in(folder)):
        what = f"servers do not read this file, and the model has no {CONFIG_NAME}"
        fix = f"fill it in as {CONFIG_NAME} before `envpack build`, which edits that file"
        yield caution("template-unfilled", folder / template, what, fix)


def _template_in(folder: Path) -> str:
    """The name of a file such as ``config.pbtxt.j2``; ``""`` if there is none."""
    return next((file.name for file in sorted(folder.glob("*config*pbtxt*")) if file.is_file()), "")


def version_findings(model: Model) -> Iterator[Finding]:
    """What is missing in the folder of an ensemble or of a model of another backend."""
    if not version_folders(model.folder):
        yield version_missing(model)
    file = model.default_file
    for number in model.served_versions():
        version = model.folder / str(number)
        if file and (odd := odd_version(model.folder, number)):
            yield finding_of_error(odd, model.folder)
        elif file and not file_in(version, file).exists():
            what = f"the backend {model.backend} loads {file} from each version, and this one has none"
            fix = _fetch_by_dvc(version / file) or f"add {file}, or name the file in default_model_filename"
            yield fault("model-file-missing", version, what, fix)


def content_findings(model: Model) -> Iterator[Finding]:
    """Files that a model's backend needs and lacks, git-lfs pointers, and an environment that no server reads."""
    if model.is_foreign:
        yield from (finding for finding in version_findings(model) if finding.severity == "error")
    yield from pointer_findings(model.folder, None)
    unsupported = find_unsupported_archive(model) if model.has_stub else None
    yield from [unsupported] if unsupported else []


def _fetch_by_dvc(path: Path) -> str:
    """How to get a file or a folder for which DVC left its record in git; ``""`` without a record."""
    record = path.with_name(f"{path.name}.dvc")
    return f"fetch it: `dvc pull {path_in_shell(record)}`" if record.is_file() else ""


def version_missing(model: Model) -> Finding:
    what, version = "it has no version folder, so no server loads it", missing_version(model.folder, model.config)
    place = f"{model.folder.name}/{version}"
    if model.backend:
        what += "; many repositories keep such files out of git"
        fix = _fetch_by_dvc(model.folder / version) or f"put {model.default_file or 'its files'} in {place}"
        return fault("version-missing", model.folder, what, fix)
    what += "; git keeps no empty folders"
    kept = "with a file .gitkeep in it for git"
    fix = f"mkdir {model.folder}/{version}, {kept}; `envpack layout` and `publish` make {place}"
    return fault("version-missing", model.folder, what, fix)


def code_findings(model: Model, python: str) -> Iterator[Finding]:
    """Syntax that a model's Python refuses for certain, as far as this Python knows it; ``""`` is an unknown one."""
    known = re.fullmatch(r"3\.(\d{1,3})", python)
    for number in model.served_versions():
        file = file_in(model.folder / str(number), model.config.default_model_filename or "model.py")
        error = _syntax_error(file)
        if isinstance(error, IndentationError) or (error and known and 7 <= int(known[1]) <= sys.version_info.minor):
            where = file.with_name(f"{file.name}:{error.lineno or 1}")
            fix = "correct this line, or the one before it; the environment's Python must support its syntax"
            yield fault("syntax-error", where, f"{type(error).__name__}: {error.msg}", fix)


def module_findings(model: Model) -> dict[str, Finding]:
    """By name, modules of a model that are not imported, or in place of the server's, because others have that name."""
    found = dict[str, Finding]()
    for name, (file, place) in hidden_modules(model.folder, model.code_file, model.environment).items():
        own = file.relative_to(model.folder.parent)
        what = f"it imports {name}, and gets the module of that name of its Python, or of a package, not {own}"
        found[name] = caution("module-hidden", place, what, f"give {own} another name, and import that")
    for folder in (model.folder, *version_folders(model.folder)):
        if os.path.isfile(file := folder / UTILITIES):  # noqa: PTH113 - a folder that this user may not enter has none
            what = "servers import this file in place of their own module, of which they need more than models do"
            found[file.stem] = caution("module-hidden", file, what, "move it to where only your tests find it")
    return found


def _syntax_error(file: Path) -> SyntaxError | None:
    try:
        text = read_source(file, most=_LARGEST_CODE)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            compile(text, file.name, "exec", dont_inherit=True)
    except SyntaxError as error:
        return error
    except (OSError, ValueError, RecursionError, MemoryError):  # what is wrong with it is said by those who load it
        return None
    return None


def outside_findings(model: Model, *, has_links: bool = True) -> Iterator[Finding]:
    """Models that a model calls, and files that it names or links to, which a deployment of its repository lacks."""
    for name in missing_models(model.folder):
        what = f"it sends requests to {name}, which is not in the repository"
        yield caution("call-missing", model.folder, what, "add that model, or correct the name")
    if found := [*paths_elsewhere(model.folder, model.config, has_links=has_links)]:
        more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
        what = f"it names, or links to, {found[0]}{more}, a path that another server may not have"
        fix = "put it beside the model's code, which finds it from Path(__file__).parent, or deploy it at the same path"
        yield caution("outside-repository", model.folder, what, fix)
    for path in named_and_left_out(model.folder, model.config):
        what = f"it names {path}, which `envpack layout` and `publish` leave out"
        fix = "move it into the model's version folder, under a name without a dot before it"
        yield caution("left-out", model.folder, what, fix)


def pointer_findings(model: Path, environment: Path | None) -> Iterator[Finding]:
    """Files that are git-lfs pointers, because their content was not fetched; among them the model's environment."""
    inside = [path for path in _entries(model) if is_pointer(path)]
    outside = [environment] if environment and environment not in inside and is_pointer(environment) else []
    if pointers := [*inside, *outside]:
        yield pointer_finding(pointers[0], f" (and {len(pointers) - 1} more)" if len(pointers) > 1 else "")


def mode_findings(model: Path, *, served: bool = False) -> Iterator[Finding]:
    """Files of a model that only some users can read; the server's user is not known.

    A server that has it loaded may have changed the mode of its stub to 0100.
    """
    private = [] if _for_everybody(model.stat().st_mode) else [model]
    for path in _entries(model):
        if not path.exists():
            yield fault(
                "broken-link", path, f"the link's target does not exist: {path.readlink()}", "fix or remove the link"
            )
        elif path.is_symlink() and real_path(path.parent).is_relative_to(real_path(path)):
            what = "this is a link to a folder that contains it: servers walk it many times, and it cannot be deployed"
            yield caution("endless-link", path, what, "remove the link, or let it name only what the model needs")
        elif not (_for_everybody(path.stat().st_mode) or (served and path == model / STUB_NAME)):
            private.append(path)
    if private:
        more = f" (and {len(private) - 1} more)" if len(private) > 1 else ""
        what = f"only its owner or group can read it{more}, and a server in a container often runs as another user"
        yield caution("not-for-everybody", private[0], what, f"chmod -R a+rX {model}")


def _entries(model: Path) -> Iterator[Path]:
    for folder, folders, files in os.walk(model):
        yield from (Path(folder, name) for name in sorted((*folders, *files)))
        # Of execution environments only the folders: they are large. Their links may lead in circles.
        environments = [name for name in folders if Path(folder, name, "bin").is_dir()]
        for name in environments:
            for inside, deeper, _ in os.walk(Path(folder, name)):
                yield from (Path(inside, below) for below in deeper if not Path(inside, below).is_symlink())
        folders[:] = [name for name in folders if name not in environments]


def _for_everybody(mode: int) -> bool:
    required = 0o005 if stat.S_ISDIR(mode) else 0o004
    return mode & required == required


def environment_findings(model: Model, release: Release, *, served_here: bool = True) -> Iterator[Finding]:
    """Problems that prevent a server from finding or unpacking a model's execution environment, which is only read.

    A server that does not serve the repository from its path here finds other real paths behind links.
    """
    path = model.environment
    if path is None:
        return
    if unusable := list(environment_path_findings(model)):
        yield from unusable
    elif path.is_dir():
        if served_here and (linked := linked_path_fault(path, str(real_path(path)))):
            yield finding_of_error(linked, model.folder)
        yield from _of_folder(model, path, release)
        yield from _of_programs(path, own_stub=(model.folder / STUB_NAME).is_file())
    elif path.is_file():
        yield from _of_archive(model, path, release)
    else:
        yield _environment_missing(model)


def find_missing_environment(model: Model) -> Finding | None:
    """Whether no server finds the model's execution environment, since it is not in the model's folder."""
    path, written = model.environment, PurePosixPath(model.written_environment)
    own = written.parts[:1] == (_KEYWORD,) and ".." not in written.parts and not [*environment_path_findings(model)]
    return _environment_missing(model) if path and own and not os.path.lexists(path) else None


def _environment_missing(model: Model) -> Finding:
    what = f"EXECUTION_ENV_PATH names {model.written_environment}, which does not exist"
    return fault("environment-missing", model.folder / CONFIG_NAME, what, f"run `envpack build {model.folder.name}`")


def environment_path_findings(model: Model) -> Iterator[Finding]:
    """What keeps a server from following EXECUTION_ENV_PATH, whatever is there."""
    config, written = model.folder / CONFIG_NAME, model.written_environment
    if not written.startswith(("/", _KEYWORD)):
        what = f"EXECUTION_ENV_PATH {written!r} is relative: servers look for it in their working directory"
        yield fault("bad-environment-path", config, what, f"write {_KEYWORD}/NAME, or an absolute path")
    elif not (rest := written.removeprefix(_KEYWORD)).startswith("/") or _KEYWORD in rest:
        what = f"a server cannot resolve EXECUTION_ENV_PATH {written!r}: {_KEYWORD} counts at its beginning, before a /"
        yield fault("bad-environment-path", config, what, f"write {_KEYWORD}/NAME, or an absolute path")
    elif (unfit := shell_fault(rest)) and not (model.environment and model.environment.is_file()):
        # No shell sees the path of an archive.
        what = f"EXECUTION_ENV_PATH {written!r} {unfit}"
        yield fault("bad-path", config, what, "give the environment a name of letters, digits, '_', '-' and '.'")


def _of_folder(model: Model, folder: Path, release: Release) -> Iterator[Finding]:
    if not release.takes_folders:
        what = f"Triton {release.name} does not support folders as execution environments"
        yield fault("folder-unsupported", folder, what, "build an archive: `envpack build --format tar.gz`")
    if made_on := system_of(f"lib/{file.name}" for file in (folder / "lib").glob("libpython3*")):
        what = f"it is of {made_on}, and servers run on Linux"
        yield fault("environment-unusable", folder, what, rebuild_fix(model))
    elif not (folder / ACTIVATE).is_file():
        what = f"it has no {ACTIVATE}, which every server requires"
        yield fault("environment-unusable", folder, what, rebuild_fix(model))
    elif not any((folder / "lib").glob("libpython3.*.so.1.0")):
        what = "it has no libpython, so the stub loads the libpython of the server's system, if there is one"
        fix = "build one with `envpack build`, or use a Python built with --enable-shared"
        yield caution("libpython-missing", folder, what, fix)


def _of_programs(folder: Path, *, own_stub: bool) -> Iterator[Finding]:
    """Programs without executable bits, as from object storage; only a release's own stub needs ``bin/python3``."""
    programs = sorted(file.name for file in (folder / "bin").glob("*") if _is_program(file))
    lost = [name for name in programs if not (folder / "bin" / name).stat().st_mode & 0o111]
    if not lost:
        return
    more = f" and {len(lost) - _SHOWN_PROGRAMS} more" if len(lost) > _SHOWN_PROGRAMS else ""
    what = f"programs are not executable: {', '.join(lost[:_SHOWN_PROGRAMS])}{more}"
    fix = f"chmod a+x {folder}/bin/*; or build an archive, which keeps them: `envpack build --format tar.gz`"
    if "python3" in lost and not own_stub:
        yield fault("modes-lost", folder / "bin", f"{what}; the server's own stub needs bin/python3", fix)
    else:
        yield caution("modes-lost", folder / "bin", f"{what}; a model that starts one of them fails", fix)


def _is_program(file: Path) -> bool:
    if not file.is_file() or not os.access(file, os.R_OK):
        return False
    with opened(file) as content:
        return content.read(4).startswith((b"#!", b"\x7fELF"))


def rebuild_fix(model: Model, options: str = "") -> str:
    """How to replace an environment that no server can use; without requirements, a build keeps what a model has."""
    try:
        known = find_requirements(model.folder) or (model.folder / LOCK_NAME).exists()
    except InputError:  # of several files, which a build reports
        known = True
    first = "" if known else "list the model's packages in its requirements.txt, and "
    return f"{first}build it with `envpack build{options} {model.folder.name}`"


def find_unsupported_archive(model: Model) -> Finding | None:
    """Whether the file that a model names as its environment is none that servers read."""
    file = model.environment
    if file is None or not file.is_file() or is_pointer(file) or not os.access(file, os.R_OK):
        return None
    other = other_format(file)
    if is_archive(file) and not other:
        return None
    is_what = f"compressed with {other}" if other else "not an archive"
    what = f"it is {is_what}, and servers only read tar and tar.gz"
    return fault("archive-unsupported", file, what, rebuild_fix(model, " --format tar.gz"))


def _of_archive(model: Model, file: Path, release: Release) -> Iterator[Finding]:
    if unsupported := find_unsupported_archive(model):
        yield unsupported
        return
    try:
        found = inspect_environment(file)
    except InputError as error:
        yield finding_of_error(error, file)
        return
    for finding in found.findings:
        what = printable_line(f"{finding.path}: {finding.reason}" if finding.path else finding.reason)
        if finding.kind == "refused":
            severity: Severity = "error" if is_rejected(finding, strict=release.strict_archives) else "warning"
            yield Finding("archive-refused", what, rebuild_fix(model), file, severity)
        elif finding.kind == "secret":
            yield caution("secret-inside", file, what, f"{rebuild_fix(model)}; and replace what was in it")
        elif finding.kind != "unproven":
            yield fault("environment-changed", file, what, "build it again, or copy the original again")
