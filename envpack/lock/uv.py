"""What uv says of pip requirements, as errors for the user."""

from __future__ import annotations

import errno
import os
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from envpack.requirements.import_names import package_of
from envpack.requirements.target import only_system
from envpack.support.connection_faults import ACCOUNT_HINT, network_hint, proxy_of, through
from envpack.support.errors import EnvironmentBuildError, StorageError
from envpack.support.processes import CompletedProcess, ErrorPattern, error_from_output
from envpack.support.redaction import public_url
from envpack.support.text import line_in_parentheses, normalise_name, one_line
from envpack.support.uv import pip_indexes

_NAME = r"[A-Za-z0-9][\w.-]*"
_VERSIONS = r"(?:[<>=!~]=?=?[^\s,]+(?:,[<>=!~]=?=?[^\s,]+)*)?"
_ALSO = rf"(?:\[[^\]]*\])?{_VERSIONS} and ({_NAME})(?=[^\s,]*(?:,[^\s,]+)*, we can)"
_REQUIRED = re.compile(rf"you require ({_NAME})(?:{_ALSO})?")
_NO_WHEEL = re.compile(rf"({_NAME}){_VERSIONS}(?: and [^\n]{{1,200}}? have| ha(?:s|ve)) no (?:usable )?wheels\b")
_WHEELS_REQUIRED = re.compile(rf"Wheels are required for `({_NAME})`")
_DEPENDS = re.compile(rf"({_NAME}){_VERSIONS} depends on ({_NAME}){_VERSIONS}")
_PLATFORMS = re.compile(r"Wheels are available for `[^`]+`[^\n]* on the following platforms?: ([^\n]+)")
_ABI_TAGS = re.compile(r"only found wheels for `[^`]+`[^\n]* with the following Python ABI tags?: ([^\n]+)")
_OTHER_PYTHON = re.compile(r"does not satisfy (Python[<>=!~][\w.<>=!~,]{0,100}\w)")
_UNKNOWN_VERSION = re.compile(rf"no version of ({_NAME})==(\S+?)\+(\S+?)[ ,.]")
_NO_FILE = re.compile(rf"Failed to download `{_NAME} @ .{{1,2000}}?HTTP status client error \((4\d\d [^)]{{1,40}})\)")
_FIRST_INDEX = re.compile(rf"`({_NAME})` was found on (\S{{1,2000}}?), but not at the requested version")
_COMPILER = re.compile(r"fatal error: [^\n]{1,300}|(?m:^)[ \t]*error: (?!Failed to build)[^\n]{1,300}")
_RAISED = re.compile(r"(?m:^)[ \t]*(?:[A-Za-z_]\w{0,60}\.){0,9}[A-Za-z_]\w{0,60}(?:Error|Exception|Exit): [^\n]{1,300}")
_UNKNOWN_PACKAGE = re.compile(rf"({_NAME}) was not found in the package registry")
_EMPTY_PAGE = re.compile(rf"there are no versions of ({_NAME})[ ,]")
_HINTS = {
    "has invalid metadata": "choose another version: uv refuses the metadata of this one, as pip does since 24.1",
    "because using pre-built wheels is disabled": "it has wheels alone: leave out --allow-source or --no-binary",
    "in the provided package locations": "no index is used: remove --no-index (PIP_NO_INDEX), or add --find-links DIR",
}
_NO_PACKAGES = {  # names in requirements files that are no packages of pip
    "python": "its version is said with --python, or by python in envpack.toml",
    "triton-python-backend-utils": "the stub has it",
}


def without_wheel(message: str) -> str:
    flat = _flat(message)
    match = _WHEELS_REQUIRED.search(flat) or _NO_WHEEL.search(flat)
    return normalise_name(match[1]) if match else ""


def chain(message: str, root: str, leaf: str) -> list[str]:
    """The names from a requirement to one of its dependencies, both included; only these two if the path is unknown."""
    parents: dict[str, str] = {}
    for parent, child in _DEPENDS.findall(_flat(message)):
        parents.setdefault(normalise_name(child), normalise_name(parent))
    found = [leaf]
    while found[0] != root and parents.get(found[0]) and parents[found[0]] not in found:
        found.insert(0, parents[found[0]])
    return found if found[0] == root else [root, leaf]


def wheel_hint(message: str, name: str, sources: Sequence[str] = (), of: str = "") -> str:
    """What to do about a package without a wheel for the target; ``of`` is the requirement that needs it."""
    if (proposed := package_of(name)) != name:
        return f"the package is called {proposed}"
    platforms = re.findall(r"`([^`]+)`", match[1]) if (match := _PLATFORMS.search(message)) else []
    system = only_system(name)
    if platforms and all(platform.startswith("win") for platform in platforms):
        system = "Windows"
    elif platforms and all(platform.startswith("macosx") for platform in platforms):
        system = "macOS"
    if system:
        if of not in ("", name):
            return f"only {system} has {name}: choose a version of {of} that does not need it, or remove {of}"
        marker = {"Windows": "win32", "macOS": "darwin"}[system]
        return f"only {system} has it: remove it, or write {name} ; sys_platform == {marker!r}"
    allowed = " ".join(f"--allow-source {package}" for package in (*sources, name))
    tags = None if re.search(rf"\b{name}[<>]", message) else _ABI_TAGS.search(message)  # names one version
    pythons = ", ".join(f"3.{minor}" for minor in re.findall(r"`cp3(\d+)\w?`", tags[1])) if tags else ""
    has = f" (this one has them for Python {pythons})" if pythons else ""
    return f"choose a version that has a wheel for this Python{has}, or build it from source: {allowed}"


def unresolvable_hint(message: str, requirements: Sequence[str], own: Mapping[str, str]) -> str:
    """What to do about requirements that no set of packages meets; ``own`` has packages with an index of their own."""
    flat = _flat(message)
    if absent := _NO_FILE.search(flat):
        return f"correct the address: the server answers {absent[1]}"
    if hint := _index_hint(flat):
        return hint
    if unknown := _UNKNOWN_PACKAGE.search(flat):
        return _unknown_hint(unknown[1], own.get(normalise_name(unknown[1]), ""))
    if len(requirements) > 1:
        unbuilt = without_wheel(message)
        source = f"; or build {unbuilt} from source: --allow-source {unbuilt}" if unbuilt else ""
        return f"change one of them: {' or '.join(requirements)}{source}"
    if other := _OTHER_PYTHON.search(flat):
        return f"it needs {other[1]}: name a version that fits this Python"
    return "check the version: the index has none that fits this Python"


def _index_hint(flat: str) -> str:
    """What to do about a version that the index does not have, or has in vain, ``""`` if uv does not say so."""
    if yanked := re.search(rf"({_NAME}==[^\s,]+) was yanked", flat):
        return f"its author has withdrawn it: choose another version, or write {yanked[1]} to install it nevertheless"
    if said := next((words for words in _HINTS if words in flat), ""):
        return _HINTS[said]
    if empty := _EMPTY_PAGE.search(flat):
        return f"the index lists no file of {empty[1]}: check its address; a login page may answer in its place"
    if local := _UNKNOWN_VERSION.search(flat):
        name, version, label = local.groups()
        index = f"https://download.pytorch.org/whl/{label}" if label.startswith(("cu", "cpu", "rocm")) else "URL"
        return (
            f"the index has no builds with +{label}: write {name}=={version}, or name the index that has them in a line"
            f" of its own: --extra-index-url {index}"
        )
    if first := _FIRST_INDEX.search(flat):
        return (
            f"{public_url(first[2])} has other versions of {first[1]}: choose one; or, if a later index has this one,"
            " leave that index out, or search all of them, as pip does, with UV_INDEX_STRATEGY=unsafe-best-match"
        )
    return ""


def _unknown_hint(name: str, own: str) -> str:
    """What to do about a package that no index has, or that its own one does not have or does not show."""
    if own:
        return f"{public_url(own)} does not have it, or not for this account: {ACCOUNT_HINT}"
    if package_of(name) != normalise_name(name):
        return f"the package is called {package_of(name)}"
    if name in _NO_PACKAGES or name in sys.stdlib_module_names:
        return f"remove it: {_NO_PACKAGES.get(name, 'it is a part of Python')}"
    return (
        f"check the name {name}; a private package needs the index that has it: --extra-index-url URL; and one of conda"
        " belongs under dependencies: of an environment.yml"
    )


def _flat(message: str) -> str:
    return " ".join(message.split())


NO_PLACES: Mapping[str, str] = {}
_GLIBC_OF_UV = {"2.17", "2.28", *(f"2.{minor}" for minor in range(31, 41))}
_REQUIREMENT_PATTERNS = (
    re.compile(r"you require ([A-Za-z0-9][\w.-]*)(?:\[[^\]]*\])?((?:[<>=!~]=?=?[\w.*]+,?)*)"),
    re.compile(r"(?:Failed to (?:download|build|fetch|parse)|Hash mismatch for)[:\s]+`?([A-Za-z0-9][\w.-]*)"),
)


def platform_name(machine: str, glibc: str) -> str:
    """The name in uv of a machine with this C library, for example ``x86_64-manylinux_2_35``."""
    known = glibc if glibc in _GLIBC_OF_UV else "2.28"
    return f"{machine}-manylinux_{known.replace('.', '_')}"


def uv_error(
    completed: CompletedProcess,
    requirements: Sequence[str],
    storage: Path,
    *,
    places: Mapping[str, str] = NO_PLACES,
    sources: Sequence[str] = (),
    own: Mapping[str, str] = NO_PLACES,
    constraints: Sequence[str] = (),
) -> EnvironmentBuildError | StorageError:
    output = completed.stderr
    lines = "\n".join(line for line in completed.last_lines().splitlines() if not line.startswith("Using "))
    failing = failing_requirement(output, requirements)
    required = _required(output, requirements) or ([failing] if failing else [])
    if required and "No solution found" in output:
        required += [constraint for constraint in constraints if _is_named(constraint, output.lower())]
    missing = without_wheel(output) if len(required) == 1 else ""
    at_address = " @ " in failing  # of a wheel; no index has a part in it
    proxy = proxy_of(index := _index(output), os.environ | pip_indexes())
    unresolvable = failing or "No solution found" in output
    patterns = (*_ERROR_PATTERNS, *([_WHEEL_MISSING] if missing else []), _UNRESOLVABLE if unresolvable else _UNKNOWN)
    lines_of = places if len(required) > 1 else NO_PLACES  # of one, the error has the line
    first = next(filter(None, map(places.get, required)), "")
    described = [f"{_without_hashes(one)!r}{line_in_parentheses(lines_of.get(one, ''), first)}" for one in required]
    error = error_from_output(
        patterns,
        output,
        storage=storage,
        details=output,
        about=f"pip requirement {_without_hashes(failing)!r}" if failing else "the pip requirements",
        requirements=_conflict(described, requirements),
        name=requirement_name(failing or requirements[0]),
        missing=_missing(output, required[0], missing) if missing else "",
        wheel_hint=f"name a wheel for this Python, or write {missing}==VERSION for one of an index"
        if at_address and missing == requirement_name(failing)
        else wheel_hint(output, missing, sources, requirement_name(failing)),
        unresolvable_hint=unresolvable_hint(output, described, own),
        index=_server(output, index, failing),
        cause=_cause(output),
        unbuilt=f": {unbuilt}" if (unbuilt := _why_unbuilt(output)) else "",
        build_hint=_build_hint(unbuilt),
        through=through(proxy),
        network_hint=network_hint(output, "the index", proxy),
        other_index="" if at_address else "; UV_DEFAULT_INDEX or PIP_INDEX_URL names another, unless the file does",
        reason=one_line(_reason(lines)),
        lines=lines,
    )
    if isinstance(error, EnvironmentBuildError) and not error.where:
        error.where = first if at_address or error.kind not in _OF_INDEX else _place_of_index(index, places)
    if error.kind in ("wheel-missing", "unresolvable") and (newest := os.environ.get("UV_EXCLUDE_NEWER")):
        error.hint += f"; or unset UV_EXCLUDE_NEWER={newest}, which hides what is newer"
    return error


_OF_FILES = (errno.EPERM, errno.EIO, errno.EACCES, errno.EROFS, errno.ENOLCK, errno.ESTALE)
_OF_INDEX = ("index-forbidden", "index-untrusted", "index-unreachable", "index-invalid")
_ERROR_PATTERNS = (
    ErrorPattern(
        kind="hash-mismatch",
        pattern=r"Hash mismatch|hashes? (?:do|does) not match",
        message="{about}: the downloaded file does not have the locked hash",
        hint="lock again if you trust the new file; otherwise report it to the owner of the index",
    ),
    ErrorPattern(
        kind="index-forbidden",
        pattern=r"\b40[13] (?:Unauthorized|Forbidden)",
        message="{index} requires credentials",
        hint=ACCOUNT_HINT,
    ),
    ErrorPattern(
        kind="not-in-cache",
        pattern=r"network was disabled|connectivity is disabled",
        message="{about}: it is not in the cache, and the network is disabled",
        hint="build once with the network, or unset UV_OFFLINE",
    ),
    ErrorPattern(
        kind="index-untrusted",
        pattern=r"invalid peer certificate|certificate verify failed|UnknownIssuer",
        message="the certificate of {index} is not trusted: {cause}",
        hint="{network_hint}",
    ),
    ErrorPattern(
        kind="index-unreachable",
        pattern=r"error sending request|Could not connect|dns error|Connection refused|timed out|\d+ retr|decoding"
        r"|Failed to fetch:? `?https?://\S{1,2000}/`?\s",  # the page of a package, with any other status
        message="{index} does not answer{through}: {cause}",
        hint="{network_hint}{other_index}",
    ),
    ErrorPattern(
        kind="index-invalid",
        pattern=r"(?:Unsupported|Missing) `Content-Type`|unexpected (?:JSON|HTML) from",
        message="{index} answers with something else than a list of files: {lines}",
        hint="check the address, which ends with /simple at most indexes: a login or a proxy may answer in its place",
    ),
    ErrorPattern(
        kind="pip-failed",
        pattern=rf"Failed to initialize cache|Could not acquire lock|\(os error (?:{'|'.join(map(str, _OF_FILES))})\)",
        message="uv cannot read or write a file:\n{lines}",
        hint="look at its permissions and its disk; UV_CACHE_DIR moves the cache of uv, TMPDIR temporary files",
    ),
    ErrorPattern(
        kind="pip-failed",
        pattern=r"Failed to parse environment variable|invalid value '.{0,200}' for '--"
        r"|[Ff]ailed to (?:open|parse|read)(?: from)?(?: file)?:? `?[^`\n]{0,4000}uv\.toml",
        message="uv rejects one of its own settings:\n{lines}",
        hint="correct it: the variable of that name, which begins with UV_, or the file uv.toml",
    ),
    ErrorPattern(
        kind="wheel-invalid",
        pattern=r"has an invalid package format|The wheel is invalid|Failed to extract archive|Failed to read from zip",
        message="{about}: its wheel is damaged or malformed: {reason}",
        hint="choose another version, or report it to its maker; if a login or a proxy answered in its place, or "
        "damaged it, run `uv cache clean` and repeat the command",
    ),
    ErrorPattern(
        kind="unresolvable",
        pattern="Unable to uninstall `",
        message="{about} cannot replace the conda package of that name, which does not record its files for pip",
        hint="remove it from the pip requirements, or the conda package from the others",
    ),
    ErrorPattern(
        kind="build-failed",
        pattern=r"Failed to build|The build backend returned an error|Call to `.*build_wheel` failed",
        message="{about}: it could not be built from source{unbuilt}",
        hint="{build_hint}",
    ),
)
_WHEEL_MISSING = ErrorPattern(
    kind="wheel-missing",
    pattern="",
    message="{requirements}: {missing} has no wheel for this Python and platform",
    hint="{wheel_hint}",
)
_UNRESOLVABLE = ErrorPattern(
    kind="unresolvable",
    pattern="",
    message="{requirements} cannot be resolved for this Python: {reason}",
    hint="{unresolvable_hint}",
)
_UNKNOWN = ErrorPattern(
    kind="pip-failed",
    pattern="",
    message="uv could not install the pip requirements:\n{lines}",
    hint="check the network and the index; UV_DEFAULT_INDEX or PIP_INDEX_URL names another",
)


def _required(output: str, requirements: Sequence[str]) -> list[str]:
    names = dict.fromkeys(normalise_name(name) for found in _REQUIRED.findall(_flat(output)) for name in found)
    return [requirement for name in names for requirement in requirements if requirement_name(requirement) == name]


def _conflict(described: Sequence[str], requirements: Sequence[str]) -> str:
    if not described and len(requirements) > 1:
        return "the pip requirements"
    described = described or [repr(_without_hashes(requirements[0]))]
    return f"pip requirement{'s' if len(described) > 1 else ''} {' and '.join(described)}"


def _without_hashes(requirement: str) -> str:
    return requirement.partition(" --hash=")[0]


def _missing(output: str, requirement: str, missing: str) -> str:
    """What to call a package without a wheel: with the chain of dependencies that leads to it."""
    names = chain(output, requirement_name(requirement), missing)
    return "it" if missing == requirement_name(requirement) else f"its dependency {missing} ({' → '.join(names)})"


def _index(output: str) -> str:
    """The address of the index that an error is about, without secrets; ``""`` if it names none."""
    match = re.search(
        r"(?:Failed to (?:fetch|download)[: ]+`?|for url \(|An index(?: URL)? \(|`Content-Type` \S+ for `"
        r"|unexpected (?:JSON|HTML) from `)"
        r"(?P<url>https?://[^\s`)]+)",
        output,
    )
    if not match:
        return ""
    url = match["url"]
    return url.rstrip("/").rpartition("/")[0] if url.endswith("/") else url


def _server(output: str, index: str, failing: str) -> str:
    """What to call the server that fails; while an index is read, no single requirement is the cause."""
    if "Failed to download" in output and failing:
        return f"the server of {_without_hashes(failing)!r}{f' ({index})' if index and index not in failing else ''}"
    return f"the package index {index}" if index else "the package index"


def _cause(output: str) -> str:
    causes = re.findall(r"(?:cause|Caused by):? (.+)", output)
    return one_line(causes[-1]) if causes else "no answer"


def _why_unbuilt(output: str) -> str:
    """What the compiler or the build tool, else the build script or uv reports last."""
    if found := _COMPILER.search(output) or next(reversed([*_RAISED.finditer(output)]), None):
        return one_line(found[0])
    return one_line(": ".join(re.findall(r"cause: (?!The build backend returned|Call to |exit status)(.+)", output)))


def _build_hint(reason: str) -> str:
    if "setuptools-scm" in reason or "setuptools_scm" in reason:  # the version is that of a tag
        return "build it in a clone with its history and tags; or build a wheel there, and name that"
    if not reason or reason.startswith(("fatal error: ", "error: command ")):
        return "install a compiler and what the package needs to build, or choose a version that has a wheel"
    return "correct it if it is yours, or choose a version that has a wheel, or build a wheel of it and name that"


def _place_of_index(index: str, places: Mapping[str, str]) -> str:
    """File and line of the option that names an index."""
    wanted = public_url(index).replace("***@", "")
    options = ((option.partition(" ")[2], place) for option, place in places.items() if option.startswith("--"))
    return next((place for address, place in options if wanted and public_url(address).rstrip("/") == wanted), "")


def _reason(lines: str) -> str:
    """The sentence with the reason on one line, without uv's frame around it and its hints below."""
    text = " ".join(lines.partition("\nhint:")[0].split())
    return text[max(0, text.find("Because")) :].rstrip(".")


def failing_requirement(message: str, requirements: Sequence[str]) -> str:
    """The requirement that a message of uv is about, as the user wrote it; ``""`` if none is recognised."""
    text = _flat(message)
    for pattern in _REQUIREMENT_PATTERNS:
        for match in reversed(list(pattern.finditer(text))):
            for requirement in requirements:
                if requirement_name(requirement) == normalise_name(match[1]):
                    return requirement
    return next((requirement for requirement in requirements if _is_named(requirement, text.lower())), "")


def _is_named(requirement: str, text: str) -> bool:
    return re.search(rf"(?<![\w.-]){re.escape(requirement_name(requirement))}(?![\w-])", text) is not None


def requirement_name(line: str) -> str:
    return normalise_name(re.split(r"[^A-Za-z0-9._-]", line.strip(), maxsplit=1)[0])
