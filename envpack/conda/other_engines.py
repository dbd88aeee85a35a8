"""The conda part of a lock, chosen by a program that the user has: conda, mamba or micromamba.

Only the choice is theirs. What was chosen is installed by the embedded engine from the lock, as everything else is, so
an environment has the same bytes whoever chose.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from envpack.conda.engine import FORBIDDEN
from envpack.conda.settings import Channels, CondaSettings
from envpack.conda.solve import failing_spec
from envpack.requirements import CondaPackage, Target
from envpack.support.error_patterns import ErrorPattern, error_from_output
from envpack.support.errors import EnvironmentBuildError
from envpack.support.isolation import clean_environment
from envpack.support.processes import CompletedProcess, run
from envpack.support.temp_dirs import temp_dir
from envpack.support.text import one_line

_NAMED_BY = {"conda": "CONDA_EXE", "mamba": "MAMBA_EXE", "micromamba": "MAMBA_EXE"}
_SECRETS = re.compile(r"(?<=://)[^/\s\"@]+@|/t/[^/\s\"]+(?=/)")  # in addresses: accounts, and conda's tokens


def resolve_with_program(
    engine: str, specs: Sequence[str], channels: Channels, target: Target, *, settings: CondaSettings
) -> tuple[CondaPackage, ...]:
    """Have a program choose packages that fulfil match specs.

    It gets the target's virtual packages in place of this machine's, and an empty package cache, since it names the
    hashes of what it would download only. Passwords and tokens of channels are its own business: they are not put on
    a command line, where everybody could read them.

    Args:
        engine: ``"conda"``, ``"mamba"`` or ``"micromamba"``.
        specs: what is wanted, python first.
        channels: where to look, in order of preference.
        target: what the packages are for.
        settings: the user's, for proxies and certificates.

    Raises:
        EnvironmentBuildError: ``engine-missing``, ``unresolvable``, ``channel-unreachable``, ``channel-forbidden``,
            ``disk-full`` or ``engine-failed``.

    """
    program = _program(engine)
    with temp_dir(engine) as scratch:
        command: list[str | Path] = [program, "create", "--dry-run", "--json", "--yes", "--override-channels"]
        command += ["--prefix", scratch / "prefix"]
        command += ["--no-default-packages"] if engine == "conda" else ["--platform", target.platform]
        for url in channels.urls:
            command += ["--channel", url]
        ended = run([*command, *specs], env=_environment(target, settings, scratch), cwd=scratch)
    answer = _answer(ended)
    if ended.returncode != 0 or answer.get("success") is False or "error" in answer or "actions" not in answer:
        raise _explained(engine, ended, answer, specs, channels)
    try:
        return chosen_packages(answer, engine)
    except (AttributeError, TypeError, ValueError, LookupError) as error:
        raise _unusable(engine, "it is in a form that envpack does not know") from error


def _program(engine: str) -> Path:
    named = os.environ.get(_NAMED_BY[engine], "")
    if Path(named).name == engine and os.access(named, os.X_OK):
        return Path(named)
    found = shutil.which(engine)
    if not found:
        raise EnvironmentBuildError(
            f"{engine} is not on this machine: neither on PATH nor named by {_NAMED_BY[engine]}",
            kind="engine-missing",
            hint=f"install {engine}, or leave --engine {engine} out: the embedded engine reads the same channels",
        )
    return Path(found).absolute()


def _environment(target: Target, settings: CondaSettings, scratch: Path) -> dict[str, str]:
    own = {name: os.environ[name] for name in ("CONDARC", "MAMBARC") if os.environ.get(name)}
    return {
        **clean_environment(),
        **settings.variables,
        **own,
        "CONDA_SUBDIR": target.platform,
        "CONDA_PKGS_DIRS": str(scratch / "packages"),
        "CONDA_CHANNEL_PRIORITY": "strict",
        "CONDA_OVERRIDE_LINUX": "5.10",
        "CONDA_OVERRIDE_GLIBC": target.glibc,
        "CONDA_OVERRIDE_CUDA": target.cuda,
        "CONDA_OVERRIDE_ARCHSPEC": target.machine,
        "MAMBA_ROOT_PREFIX": os.environ.get("MAMBA_ROOT_PREFIX") or str(scratch / "root"),
        "MAMBA_NO_BANNER": "1",
    }


def _answer(ended: CompletedProcess) -> dict[str, Any]:
    """The JSON document that a program wrote, behind whatever else it may have said."""
    try:
        told = json.loads(ended.stdout[ended.stdout.index("{") :])
    except ValueError:
        return {}
    return told if isinstance(told, dict) else {}


def chosen_packages(answer: Mapping[str, Any], engine: str) -> tuple[CondaPackage, ...]:
    """The packages of an answer, sorted by name.

    conda describes what it would download (``FETCH``), and only names what it would install (``LINK``); mamba and
    micromamba describe both.

    Raises:
        EnvironmentBuildError: kind ``engine-failed``: a package has no address or no hash.

    """
    plans = answer["actions"] if isinstance(answer["actions"], list) else [answer["actions"]]
    described = {_name_of(one): one for plan in plans for one in _described(plan)}
    wanted = {_name_of(one) for plan in plans for one in plan.get("LINK") or described.values()}
    missing = sorted(name for name in wanted if name not in described)
    if missing:
        raise _unusable(engine, f"no address and hash of {' '.join(missing[0])}")
    found = (_package(described[name], engine) for name in wanted)
    return tuple(sorted(found, key=lambda one: one.name))


def _described(plan: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    for action in ("LINK", "FETCH"):
        for one in plan.get(action) or ():
            if one.get("url") and (one.get("sha256") or one.get("md5")):
                yield one


def _name_of(one: Mapping[str, Any]) -> tuple[str, str, str]:
    return str(one.get("name")), str(one.get("version")), str(one.get("build_string") or one.get("build"))


def _package(one: Mapping[str, Any], engine: str) -> CondaPackage:
    name, version, build = _name_of(one)
    url = _SECRETS.sub("", str(one["url"]))
    if not url.endswith((".conda", ".tar.bz2")) or url.count("/") < 4:
        raise _unusable(engine, f"{url} is no address of a package")
    return CondaPackage(
        name=name,
        version=version,
        build=build,
        subdir=url.rsplit("/", 2)[1],
        url=url,
        sha256=str(one.get("sha256") or ""),
        md5=str(one.get("md5") or ""),
        size=int(one.get("size") or 0),
        license=str(one.get("license") or ""),
        depends=tuple(map(str, one.get("depends") or ())),
        constrains=tuple(map(str, one.get("constrains") or ())),
    )


def _unusable(engine: str, reason: str) -> EnvironmentBuildError:
    return EnvironmentBuildError(
        f"the answer of {engine} cannot be used: {reason}",
        kind="engine-failed",
        hint=f"take a newer {engine}, or leave --engine {engine} out",
    )


def _explained(
    engine: str, ended: CompletedProcess, answer: Mapping[str, Any], specs: Sequence[str], channels: Channels
) -> EnvironmentBuildError:
    said = [str(answer.get(key) or "") for key in ("exception_name", "message", "error")]
    problems = answer.get("solver_problems") or ()
    whole = _SECRETS.sub("", "\n".join([*said, *map(str, problems), ended.stderr]).strip() or ended.last_lines())
    message = " ".join((said[1] or said[2] or " ".join(map(str, problems)) or ended.last_lines(4)).split())
    message = one_line(_SECRETS.sub("", message)) if message else f"it ended with status {ended.returncode}"
    return error_from_output(
        _CAUSES,
        f"solver_problems {whole}" if problems else whole,
        full=Path(tempfile.gettempdir()),
        details=whole,
        engine=engine,
        guilty=failing_spec(whole, specs),
        channels=", ".join(channels.urls),
        message=message,
    )


_CAUSES = (
    ErrorPattern(
        kind="unresolvable",
        pattern=r"Unsatisfiable|NotFound|MatchSpec|solver_problems|nothing provides|Could not solve",
        says="conda requirement {guilty!r} cannot be resolved by {engine}: {message}",
        hint="check name and version, or give a channel that has it; PyPI packages belong under pip:",
    ),
    ErrorPattern(
        kind="channel-forbidden",
        pattern=FORBIDDEN,
        says="a channel asks {engine} for credentials ({channels})",
        hint="give them to {engine} itself, as its documentation says; envpack does not pass them on",
    ),
    ErrorPattern(
        kind="channel-unreachable",
        pattern=r"HTTP|Connection|UnavailableInvalidChannel|[Dd]ownload error|Could not (?:open|resolve|connect)",
        says="no answer from a channel ({channels}): {message}",
        hint="check the address and the network; the channel 'local' needs neither",
    ),
    ErrorPattern(
        kind="engine-failed",
        pattern="",
        says="{engine} could not choose packages: {message}",
        hint="run {engine} by hand to see more, or leave --engine {engine} out",
    ),
)
