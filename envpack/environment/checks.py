"""What an execution environment must fulfil before it enters the store, and what it requires of a system.

Parsing a library takes longer than reading it, and most packages are part of several environments, so what the files of
a package require is cached.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import operator
import re
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from importlib.metadata import Distribution, distributions
from pathlib import Path

from packaging.requirements import Requirement

from envpack.conda.engine import PREFIX_PLACEHOLDER
from envpack.environment.inventory import Entry, Owners, Package
from envpack.requirements.pip_requirement import reduced_marker
from envpack.requirements.target import Target
from envpack.support.bounded_reading import parse_json, read_json, read_text
from envpack.support.elf import AbiRequirements, is_elf, newest_abi, required_abi
from envpack.support.entry_locks import mark_used
from envpack.support.errors import EnvironmentBuildError
from envpack.support.folders import real_path
from envpack.support.memory import remember, remembered
from envpack.support.platforms import libpython_name
from envpack.support.processes import CompletedProcess, bare_environment, how_ended, is_no_program, run
from envpack.support.text import normalise_name
from envpack.support.uv import run_uv

_STARTING = 120.0  # seconds that a Python may take to start and end
_MARK = "\nenvpack-started: "  # before what a program prints for envpack


@contextlib.contextmanager
def ended_in_time() -> Iterator[None]:
    """Turn the time limit of a program that starts the environment's Python into an error."""
    try:
        yield
    except subprocess.TimeoutExpired as error:
        what = f"the environment's Python does not end within {error.timeout:.0f} s, although it has nothing to do"
        fix = "look for a .pth file or a sitecustomize.py in its packages that waits for something"
        raise EnvironmentBuildError("environment-broken", what, fix) from None


def python_output(python: Path, program: str) -> CompletedProcess:
    """Run a short program with the environment's Python, in isolation but with its packages, as a stub does."""
    try:
        with ended_in_time():
            return run([python, "-I", "-B", "-c", program], env=bare_environment(), timeout=_STARTING)
    except OSError as error:
        if not is_no_program(error):
            raise
        raise _broken(f"bin/{python.name} cannot be run: {error.strerror}") from error


def started_version(prefix: Path, minor: str) -> str:
    facts = "['%d.%d.%d' % sys.version_info[:3], sys.prefix, sys.base_prefix, *sys.path]"
    # Packages may print, too, when Python starts.
    program = f"import json, sys; print({_MARK!r} + json.dumps({facts}))"
    result = python_output(prefix / "bin" / "python3", program)
    version, root, base, *path = _facts(result)
    site = prefix / "lib" / f"python{minor}" / "site-packages"
    if real_path(Path(root)) != real_path(prefix) or real_path(site) not in {
        real_path(Path(folder)) for folder in path
    }:
        wrong = f"its prefix is {root}, and its path {':'.join(path)}" if version else result.last_lines(4)
        raise _broken(wrong or f"it ended {how_ended(result.returncode)} before it ran a program")
    for folder in path:
        if folder.startswith("/") and _leads_out(Path(folder), prefix) and _leads_out(Path(folder), Path(base)):
            what = f"a .pth file or sitecustomize.py puts {folder} on sys.path, which is outside of the environment"
            raise _error(what, folder)
    return version


def _facts(result: CompletedProcess) -> list[str]:
    """What `started_version` has the environment's Python print; empty if it did not, or the program failed."""
    try:
        version, root, base, *path = parse_json(result.stdout.rpartition(_MARK)[2].partition("\n")[0])
        return [str(fact) for fact in (version, root, base, *path)] if result.returncode == 0 else [""] * 3
    except (ValueError, TypeError):
        return [""] * 3


def _broken(reason: str) -> EnvironmentBuildError:
    what = f"the environment's Python does not start by itself: {reason}"
    fix = (
        "look for a requirement that replaces parts of Python or ends it in a .pth file, or use another interpreter of "
        "this version"
    )
    return EnvironmentBuildError("environment-broken", what, fix)


def refuse_external_references(prefix: Path, minor: str, owners: Owners) -> None:
    """Reject Python packages that are only a reference to another folder."""
    site = prefix / "lib" / f"python{minor}" / "site-packages"
    for origin in sorted(site.glob("*.dist-info/direct_url.json")):
        with contextlib.suppress(ValueError, AttributeError):
            direct_url = read_json(origin)
            if direct_url.get("dir_info", {}).get("editable"):
                name = origin.parent.name.partition("-")[0]
                raise _error(f"{name} is an editable installation; its code is in {direct_url.get('url')}", name)
    for file in sorted(site.glob("*.pth")):
        for line in _paths(file):
            if _leads_out(site / line, prefix):
                name = owners.of.get(str(file.relative_to(prefix)), "")
                of = f" of {name}" if name else ""
                raise _error(f"{file.name}{of} points to {line}, outside of the environment", name or line)


def require_library(prefix: Path, minor: str) -> None:
    library = prefix / "lib" / libpython_name(minor)
    if not library.is_file():
        what = f"the Python package has no {library.name}, which Triton's stub requires"
        fix = "use a channel whose Python is built with --enable-shared, or the channel 'local'"
        raise EnvironmentBuildError("static-interpreter", what, fix)


def check_consistency(prefix: Path, python: Path) -> None:
    with ended_in_time():
        ended = run_uv(["pip", "check", "--python", python], timeout=_STARTING)
    wrong = [line.strip() for line in ended.stderr.splitlines() if re.match(r"The package .* requires ", line)]
    if wrong:
        fix = "install both with conda or both with pip, or require a compatible version"
        raise EnvironmentBuildError("inconsistent", "\n".join(["packages are incompatible", *wrong]), fix, str(prefix))
    # Other failures are no error: uv also reports incomplete records, which some conda packages have.
    if ended.returncode and (refused := ended.refused_by_system(prefix)):
        raise refused


def refuse_lost_extras(prefix: Path, target: Target) -> None:
    """Refuse a package of pip that requires a conda package with an extra, if what the extra needs is not there.

    pip's packages are resolved without those that conda provides, and `uv pip check` does not look at extras.
    """
    site = prefix / "lib" / f"python{target.minor}" / "site-packages"
    found = {name: one for one in distributions(path=[str(site)]) if (name := _name(one))}
    of_pip = {name for name, one in found.items() if (one.read_text("INSTALLER") or "").strip() == "uv"}
    for name in sorted(of_pip):
        for wanted in _required(found[name], target):
            other = normalise_name(wanted.name)
            extras = sorted(wanted.extras) if other in found and other not in of_pip else ()
            for needed in (needed.name for extra in extras for needed in _required(found[other], target, extra)):
                if normalise_name(needed) not in found:
                    what = f"{name} requires {wanted.name}[{','.join(extras)}], and conda has it without {needed}"
                    fix = f"add {needed} to the requirements, of pip or of conda"
                    raise EnvironmentBuildError("inconsistent", what, fix, str(prefix))


def _name(package: Distribution) -> str:
    try:
        return normalise_name(package.name) if "Name" in package.metadata else ""
    except (OSError, ValueError):  # its metadata is missing, or not UTF-8
        return ""


def _required(package: Distribution, target: Target, extra: str = "") -> Iterator[Requirement]:
    """What a package requires on a target; of an extra, only what it adds."""
    for text in package.requires or ():
        with contextlib.suppress(ValueError):
            requirement = Requirement(text)
            without, with_extra = (reduced_marker(str(requirement.marker or ""), target, [one]) for one in ("", extra))
            if with_extra == "" and (not extra or without is None):
                yield requirement


def _paths(file: Path) -> Iterator[str]:
    if not file.is_file():
        return
    for line in read_text(file, errors="replace").splitlines():
        if line.strip() and not line.startswith(("import ", "import\t", "#")):
            yield line.strip()


def _leads_out(path: Path, prefix: Path) -> bool:
    """Whether a path leads out of the environment; what is no possible path leads nowhere, and Python ignores it."""
    try:
        return not any(real_path(path).is_relative_to(real_path(root)) for root in (prefix, Path(PREFIX_PLACEHOLDER)))
    except (OSError, RuntimeError, ValueError):
        return False


def _error(message: str, package: str) -> EnvironmentBuildError:
    fix = f"require {package} as a folder or a wheel; envpack builds a wheel from a folder and installs that"
    return EnvironmentBuildError("points-outside", message, fix)


_CUDA = re.compile(
    r"(?:^|/)(lib(?:cudart|cublas|cublasLt|cudnn\w*|cufft\w*|curand|cusolver\w*|cusparse|cupti|nccl|nvinfer\w*|nvrtc\w*"
    r"|nvToolsExt|nvJitLink)\.so(?:\.[\d.]+)?)$"
)
# Libraries that the server or its image also contains. The stub finds those in the environment's `lib` first.
_SYSTEM = re.compile(r"^lib/(lib(?:crypto|ssl|curl|gcc_s|stdc\+\+|tinfo|z|cudart|nccl)\.so(?:\.[\d.]+)?)$")
_RECIPE = 1  # raised when the way of reading files changes
_NEEDS = "needs"


def environment_needs(prefix: Path, entries: Iterable[Entry], cache: Path) -> AbiRequirements:
    """The newest symbol versions that any file of an environment requires."""
    by_package = operator.attrgetter("package")
    packages = itertools.groupby(sorted(entries, key=by_package), key=by_package)
    return newest_abi(_package_needs(prefix, list(package), cache) for _, package in packages)


def _package_needs(prefix: Path, entries: Sequence[Entry], cache: Path) -> AbiRequirements:
    key_parts = [_RECIPE, [[entry.path, entry.sha256] for entry in entries]]
    path = cache / f"{hashlib.sha256(json.dumps(key_parts).encode()).hexdigest()[:32]}.json"
    if kept := remembered(path).get(_NEEDS):
        mark_used(path)
        glibc, glibcxx, file = kept
        return AbiRequirements(glibc, glibcxx, prefix / file if file else None)
    files = (prefix / entry.path for entry in entries if entry.kind in ("file", "program"))
    needs = required_abi(file for file in files if is_elf(file))
    file = needs.file.relative_to(prefix).as_posix() if needs.file else ""
    remember(path, {_NEEDS: [needs.glibc, needs.glibcxx, file]})
    return needs


def numpy_abi(packages: Iterable[Package]) -> str:
    return next((package.version.partition(".")[0] for package in packages if package.name == "numpy"), "")


def cuda_libraries(entries: Sequence[Entry]) -> list[str]:
    """File names of the CUDA libraries in an environment, in any folder."""
    return sorted({match[1] for entry in entries if (match := _CUDA.search(entry.path))})


def hidden_libraries(entries: Sequence[Entry]) -> list[str]:
    """File names of system libraries that an environment has in ``lib``, where the loader looks first."""
    return sorted({match[1] for entry in entries if (match := _SYSTEM.search(entry.path))})
