"""Reads what a server and its stubs write: log lines, plain lines, errors of models."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

MARKER = "envpack-stub "
_SERVER_LINE = re.compile(r"[IWEF]\d{4} \d\d:\d\d:\d\d\.\d+ \d+ [\w.]+:\d+\] ?")
_FRAME = re.compile(r"\s*(?P<file>/.+)\((?P<line>\d+)\): (?P<function>.+)")
_LOAD_PREFIX = re.compile(
    r"^load failed for model '[^']*': (version \d+ is at UNAVAILABLE state: )?(\w+: )?"
    r"|^Failed to process the request\(s\) for model '[^']*', message: "
)
# In the model's folder there may be an environment as well.
_NOT_OF_THE_MODEL = re.compile(r"/lib/python3\.\d+/")
_STANDING = "Where Python was:"
_STANDING_AT = re.compile(r'\s*File "(?P<file>[^"]+)", line (?P<line>\d+) in (?P<function>.+)')
_PARSING = re.compile(r"Error parsing text-format inference\.ModelConfig: (?P<line>\d+):(?P<column>\d+): (?P<what>.+)")
_POLLING = re.compile(r"Poll failed for model directory '[^']*': (?P<what>.+?)\"?$", re.MULTILINE)
_LAUNCH = re.compile(r"Starting Python backend stub")


@dataclass(frozen=True)
class ModelError:
    """An error that a model raised, as the server tells it.

    Attributes:
        reason: the exception in one line, for example ``"ValueError: boom"``.
        frames: ``file:line in function``, only those in the model's own folder, innermost last.
        text: all that the server said.

    """

    reason: str
    frames: tuple[str, ...]
    text: str


def read_model_error(text: str, model_folder: str) -> ModelError:
    """Take the error text of a failed load or inference apart.

    Args:
        text: the ``error`` of the server's answer.
        model_folder: absolute path of the model; frames elsewhere are left out.

    """
    body = _LOAD_PREFIX.sub("", text).strip().rstrip(";").strip()
    head, _, trace = body.partition("\n\nAt:\n")
    frames = []
    for line in trace.splitlines():
        match = _FRAME.match(line)
        if match and _is_of_the_model(match["file"], model_folder):
            frames.append(f"{match['file']}:{match['line']} in {match['function']}")
    reason = next((line.strip() for line in head.splitlines() if line.strip()), "no reason given")
    return ModelError(reason, tuple(reversed(frames)), body)


def read_abort_frames(log: str, model_folder: str) -> tuple[str, ...]:
    """Where a model's Python was when its process was aborted: ``file:line in function``, innermost first.

    Args:
        log: what was written since.
        model_folder: absolute path of the model; frames elsewhere are left out, unless there are no others.

    """
    lines = log.partition(_STANDING)[2].splitlines()
    matches = [match for match in map(_STANDING_AT.match, lines) if match]
    own = [match for match in matches if _is_of_the_model(match["file"], model_folder)]
    return tuple(f"{match['file']}:{match['line']} in {match['function']}" for match in own or matches)


def _is_of_the_model(file: str, model_folder: str) -> bool:
    return file.startswith(f"{model_folder}/") and not _NOT_OF_THE_MODEL.search(file)


def configuration_error(log: str) -> str:
    """Why a server did not take a model's configuration, which it only writes to its log; ``""`` if it did not say."""
    parsing = _PARSING.search(log)
    if parsing:
        return f"config.pbtxt:{parsing['line']}:{parsing['column']}: {parsing['what']}"
    polling = _POLLING.search(log)
    return polling["what"] if polling else ""


def last_lines(log: str, count: int = 8) -> tuple[str, ...]:
    """The last lines that say something, tables and blank lines left out."""
    lines = [line for line in log.splitlines() if line.strip() and line[0] not in "+|"]
    return tuple(lines[-count:])


def start_error(log: str) -> tuple[str, ...]:
    """Why a server did not start: its last lines, but of one that did not understand its arguments the first."""
    complaint, usage, _ = log.partition("\nUsage: ")
    return last_lines(complaint if usage else log)


def plain_lines(log: str, count: int = 8) -> tuple[str, ...]:
    """The last lines that did not come from the server's logger: standard output and error of stubs and models."""
    found: list[str] = []
    in_dump = False
    for line in log.splitlines():
        if _SERVER_LINE.match(line):
            in_dump = line.endswith(('config: "', "] "))
        elif not in_dump and line.strip() and line[0] not in "+|":
            found.append(line)
    return tuple(found[-count:])


def last_started_stub(log: str) -> str:
    """The name (model while its configuration is completed, else instance) of the stub started last, or ``""``."""
    for line in reversed(log.splitlines()):
        if _LAUNCH.search(line):
            words = line.rstrip('"').replace("'", "").split()
            return words[-2] if len(words) > 2 else ""
    return ""


def stub_reports(log: str) -> dict[str, dict[str, object]]:
    """What envpack's own stubs said of themselves at start, by instance; later lines win."""
    found: dict[str, dict[str, object]] = {}
    for line in log.splitlines():
        _, marker, rest = line.partition(MARKER)
        report = _first_object(rest) or _first_object(_unescaped(rest)) if marker else None
        if report is not None and isinstance(report.get("instance"), str):
            found[str(report["instance"])] = report
    return found


def _first_object(text: str) -> dict[str, object] | None:
    try:
        value, _ = json.JSONDecoder().raw_decode(text.lstrip())
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def _unescaped(text: str) -> str:
    """The server writes messages as JSON-like literals, with a backslash before each quote."""
    return text.replace('\\"', '"').replace("\\\\", "\\")
