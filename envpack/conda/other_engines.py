"""Match specs → exact conda packages, by conda, mamba or micromamba as the user has it installed.

These programs only resolve. The embedded engine installs the result from the lock, so an environment has the same
bytes whichever program resolved it.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from envpack.conda.engine import FORBIDDEN_PATTERN, UNTRUSTED_PATTERN
from envpack.conda.settings import Channels, CondaSettings
from envpack.conda.specs import describe_specs, named_specs
from envpack.requirements import CondaPackage, Target
from envpack.support.bounded_reading import parse_json
from envpack.support.error_patterns import ErrorPattern, error_from_output
from envpack.support.errors import EnvironmentBuildError, StorageError
from envpack.support.isolation import clean_environment
from envpack.support.processes import CompletedProcess, run
from envpack.support.redaction import public_url, redact
from envpack.support.temp_dirs import temp_dir
from envpack.support.text import one_line

_VARIABLES = {"conda": "CONDA_EXE", "mamba": "MAMBA_EXE", "micromamba": "MAMBA_EXE"}


def resolve_with_program(
    engine: str, specs: Sequence[str], channels: Channels, target: Target, *, settings: CondaSettings
) -> tuple[CondaPackage, ...]:
    """Resolve match specs with an installed program.

    The program gets the target's virtual packages in place of this machine's, and an empty package cache, because it
    reports hashes only for packages that it would download. Passwords and tokens of channels are not passed to it: a
    command line is visible to every user of the machine.
    """
    program = _program(engine)
    with temp_dir(engine) as folder:
        command: list[str | Path] = [program, "create", "--dry-run", "--json", "--yes", "--override-channels"]
        command += ["--prefix", folder / "prefix"]
        command += ["--no-default-packages"] if engine == "conda" else ["--platform", target.platform]
        for url in channels.urls:
            command += ["--channel", url]
        completed = run([*command, *specs], env=_environment(target, settings, folder), cwd=folder)
    report = _report(completed)
    if completed.returncode != 0 or report.get("success") is False or "error" in report or "actions" not in report:
        raise _program_error(engine, completed, report, specs, channels)
    try:
        return packages_of(report, engine)
    except (ArithmeticError, AttributeError, TypeError, ValueError, LookupError) as error:
        raise _unusable(engine, "its format is unknown to envpack") from error


def _program(engine: str) -> Path:
    named = os.environ.get(_VARIABLES[engine], "")
    if Path(named).name == engine and os.access(named, os.X_OK):
        return Path(named)
    found = shutil.which(engine)
    if not found:
        raise EnvironmentBuildError(
            f"{engine} is not installed: neither on PATH nor named by {_VARIABLES[engine]}",
            kind="engine-missing",
            hint=f"install {engine}, or omit --engine {engine}: the embedded engine reads the same channels",
        )
    return Path(found).absolute()


def _environment(target: Target, settings: CondaSettings, folder: Path) -> dict[str, str]:
    own = {name: os.environ[name] for name in ("CONDARC", "MAMBARC") if os.environ.get(name)}
    return {
        **clean_environment(),
        **settings.variables,
        **own,
        "CONDA_SUBDIR": target.platform,
        "CONDA_PKGS_DIRS": str(folder / "packages"),
        "CONDA_CHANNEL_PRIORITY": "strict",
        "CONDA_OVERRIDE_LINUX": "5.10",
        "CONDA_OVERRIDE_GLIBC": target.glibc,
        "CONDA_OVERRIDE_CUDA": target.cuda,
        "CONDA_OVERRIDE_ARCHSPEC": target.machine,
        "MAMBA_ROOT_PREFIX": os.environ.get("MAMBA_ROOT_PREFIX") or str(folder / "root"),
        "MAMBA_NO_BANNER": "1",
    }


def _report(completed: CompletedProcess) -> dict[str, Any]:
    """The JSON document in a program's output, which can begin with other text."""
    try:
        document = parse_json(completed.stdout[completed.stdout.index("{") :])
    except ValueError:
        return {}
    return document if isinstance(document, dict) else {}


def packages_of(report: Mapping[str, Any], engine: str) -> tuple[CondaPackage, ...]:
    """The packages of a program's report, sorted by name.

    conda describes packages that it would download (``FETCH``) and only names those that it would install (``LINK``);
    mamba and micromamba describe both.
    """
    plans = report["actions"] if isinstance(report["actions"], list) else [report["actions"]]
    records = {_identity(record): record for plan in plans for record in _full_records(plan)}
    linked = {_identity(record) for plan in plans for record in plan.get("LINK") or records.values()}
    missing = sorted(identity for identity in linked if identity not in records)
    if missing:
        raise _unusable(engine, f"no address and hash of {' '.join(missing[0])}")
    packages = (_package(records[identity], engine) for identity in linked)
    return tuple(sorted(packages, key=lambda package: package.name))


def _full_records(plan: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    for action in ("LINK", "FETCH"):
        for record in plan.get(action) or ():
            if record.get("url") and (record.get("sha256") or record.get("md5")):
                yield record


def _identity(record: Mapping[str, Any]) -> tuple[str, str, str]:
    build = record.get("build_string") or record.get("build")
    return str(record.get("name")), str(record.get("version")), str(build)


def _package(record: Mapping[str, Any], engine: str) -> CondaPackage:
    name, version, build = _identity(record)
    url = public_url(str(record["url"]))
    if not url.endswith((".conda", ".tar.bz2")) or url.count("/") < 4:
        raise _unusable(engine, f"{url} is not the address of a package")
    return CondaPackage(
        name=name,
        version=version,
        build=build,
        subdir=url.rsplit("/", 2)[1],
        url=url,
        sha256=str(record.get("sha256") or ""),
        md5=str(record.get("md5") or ""),
        size=int(record.get("size") or 0),
        license=str(record.get("license") or ""),
        depends=tuple(map(str, record.get("depends") or ())),
        constrains=tuple(map(str, record.get("constrains") or ())),
    )


def _unusable(engine: str, reason: str) -> EnvironmentBuildError | StorageError:
    return EnvironmentBuildError(
        f"the output of {engine} cannot be used: {reason}",
        kind="engine-failed",
        hint=f"install a newer {engine}, or omit --engine {engine}",
    )


def _program_error(
    engine: str, completed: CompletedProcess, report: Mapping[str, Any], specs: Sequence[str], channels: Channels
) -> EnvironmentBuildError | StorageError:
    texts = [str(report.get(key) or "") for key in ("exception_name", "message", "error")]
    problems = [str(problem) for problem in report.get("solver_problems") or ()]
    output = "\n".join([*texts, *problems, completed.stderr]).strip() or completed.last_lines()
    output = redact(output)
    reason = " ".join((texts[1] or texts[2] or " ".join(problems) or completed.last_lines(4)).split())
    reason = one_line(redact(reason)) if reason else f"it ended with status {completed.returncode}"
    return error_from_output(
        _ERROR_PATTERNS,
        f"solver_problems {output}" if problems else output,
        storage=Path(tempfile.gettempdir()),
        details=output,
        engine=engine,
        requirements=describe_specs(named_specs(output, specs[1:]), {}),
        channels=", ".join(channels.urls),
        reason=reason,
    )


_ERROR_PATTERNS = (
    ErrorPattern(
        kind="unresolvable",
        pattern=r"Unsatisfiable|NotFound|MatchSpec|solver_problems|nothing provides|Could not solve",
        message="{requirements}, by {engine}: {reason}",
        hint="check name and version, or name a channel that has it; PyPI packages belong under pip:",
    ),
    ErrorPattern(
        kind="channel-forbidden",
        pattern=FORBIDDEN_PATTERN,
        message="a channel requires credentials from {engine} ({channels})",
        hint="configure them in {engine} itself, see its documentation; envpack does not pass them on",
    ),
    ErrorPattern(
        kind="channel-untrusted",
        pattern=UNTRUSTED_PATTERN,
        message="{engine} does not trust the certificate of a channel ({channels}): {reason}",
        hint="configure ssl_verify in .condarc, with the file of the authority that signed it",
    ),
    ErrorPattern(
        kind="channel-unreachable",
        pattern=r"HTTP|Connection|UnavailableInvalidChannel|[Dd]ownload error|Could not (?:open|resolve|connect)",
        message="a channel does not answer ({channels}): {reason}",
        hint="check the address and the network; the channel 'local' needs neither",
    ),
    ErrorPattern(
        kind="engine-failed",
        pattern="",
        message="{engine} could not resolve the packages: {reason}",
        hint="run {engine} by hand for more details, or omit --engine {engine}",
    ),
)
