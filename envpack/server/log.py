"""Reads the output of a server and its stubs, with a limit, and parses it: log lines, plain lines, model errors."""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Iterator
from dataclasses import KW_ONLY, dataclass

from envpack.support.bounded_reading import parse_json
from envpack.support.text import clipped, one_line

STUB_REPORT = "envpack-stub "  # begins the line in which a stub says what it runs
# What the server says of a stub that does not respond: with an instance's name in a request, without it in a load.
UNHEALTHY = re.compile(r"Stub process (?:'[^'\n]{1,300}' )?is not healthy")
_LONGEST_REPORT = 4096  # characters of what a stub reports; a real one has 300
_LONGEST_DURATION = 1e6  # seconds
_STARTS = ("cold", "warm")
_LAST = 8  # lines
_NO_REASON = "no reason given"
_LONGEST_ERROR = 64 << 10  # characters of an error that are read
_SERVER_LINE = re.compile(r"[IWEF]\d{4} \d\d:\d\d:\d\d\.\d+ \d+ [\w.]*:\d+\] ?")
_FAILURE = re.compile(r"\"?Failed to process the request\(s\) for model '(?P<instance>[^']+)', message: ")
_RESTART = re.compile(r"'(?P<instance>[^']+)' was restarted \(\d+, process \d+\): (?P<reason>[^\n]+)")
_UNLOADING = re.compile(r"\b([\w.-]+) v\d+: UNLOADING\b")
_UNLOADED = re.compile(r"'([^'\n]+)' (crashed when it was unloaded: [^\n]+|ends although its atexit functions [^\n]+)")
_CRASH_FRAME = re.compile(r" ?\d{1,3}# ")  # of the stack that a server prints after its signal
_FRAME = re.compile(r"\s*(?P<file>/.+)\((?P<line>\d+)\): (?P<function>.+)")
_LOAD_PREFIX = re.compile(
    r"^load failed for model '[^']*': (version \d+ is at UNAVAILABLE state: )?(\w+: )?"
    r"|^Failed to process the request\(s\) for model '[^']*', message: "
)
_NEXT_VERSION = re.compile(r";version \d+ is at UNAVAILABLE state: ")
# The model's folder can contain an environment as well.
_NOT_OF_THE_MODEL = re.compile(r"/lib/python3\.\d+/")
_STANDING = "Python traceback:"
_STANDING_AT = re.compile(r'\s*File "(?P<file>[^"]+)", line (?P<line>\d+) in (?P<function>.+)')
_OF_AN_EVENT_LOOP = re.compile(r"/lib/python3\.\d+/(?:asyncio|concurrent/futures)/")
_PARSING = re.compile(r"Error parsing text-format inference\.ModelConfig: (?P<line>\d+):(?P<column>\d+): (?P<what>.+)")
_POLLING = re.compile(r"Poll failed for model directory '[^']*': (?P<what>.+?)\"?$", re.MULTILINE)
_FIRST_LOAD = re.compile(r"^I\d{4} .*\bmodel_lifecycle\.cc:\d+\] \"?loading: ", re.MULTILINE)
_NOT_POLLED = re.compile(r"failed to load '.+', failed to poll from model repository")
_NOT_CALLED = re.compile(r"TypeError: (?:TritonPythonModel\.)?finalize\(\) ")  # which takes other parameters than none
_LAUNCH = re.compile(r"Starting Python backend stub")


@dataclass(frozen=True)
class StubReport:
    """What an envpack stub reports about itself at its start, and again when its model is initialized."""

    instance: str  # name of the model instance
    python: str = ""  # version of its Python, ``""`` if unknown
    numpy: str = ""  # version of NumPy, ``""`` without NumPy
    version: str = ""  # version of envpack's stub, ``""`` if unknown
    _: KW_ONLY
    start: str = ""  # ``"warm"`` if the process was forked from a template, ``"cold"`` if not, ``""`` if unknown
    # Duration of the model's import in seconds, None before it is done; that of the template after a warm start.
    import_seconds: float | None = None
    initialize_seconds: float | None = None  # duration of the model's initialization in seconds, None before it is done


@dataclass(frozen=True)
class ModelError:
    """A model's exception, from the server's error message."""

    reason: str  # the exception in one line, for example "ValueError: boom"
    frames: tuple[str, ...]  # `file:line in function`, only files in the model's folder, innermost last
    text: str  # the complete message


def stated(error: str) -> str:
    """The text of an error, which a model can leave empty: then it reads like none. A recursion has each frame once."""
    lines, frames = list[str](), set[str]()
    for line in error.split("\n"):
        if line not in frames:
            lines.append(line)
        if _FRAME.match(line):
            frames.add(line)
    return "\n".join(lines) if error.strip() else _NO_REASON


def read_model_error(text: str, model_folder: str) -> ModelError:
    """Parse the error message of a failed load or inference request; of a load of several versions, of the first."""
    first = _NEXT_VERSION.split(clipped(stated(text), _LONGEST_ERROR), maxsplit=1)[0]
    body = _LOAD_PREFIX.sub("", first).strip().rstrip(";").strip()
    head, _, trace = body.partition("\n\nAt:\n")
    frames = []
    for line in trace.splitlines():
        match = _FRAME.match(line)
        if match and _is_of_the_model(match["file"], model_folder):
            frames.append(f"{match['file']}:{match['line']} in {match['function']}")
    lines = [line.strip() for line in head.splitlines() if line.strip()] or [_NO_REASON]
    reason = one_line(" ".join(lines)) if lines[0].endswith(":") else lines[0]
    return ModelError(clipped(reason), tuple(clipped(frame) for frame in reversed(frames)), body)


def read_abort_frames(log: str, model_folder: str) -> tuple[str, ...]:
    """The Python stack that envpack's stub writes on SIGABRT: ``file:line in function``, innermost first."""
    lines = log.partition(_STANDING)[2].splitlines()
    matches = [match for match in map(_STANDING_AT.match, lines) if match]
    own = [match for match in matches if _is_of_the_model(match["file"], model_folder)]
    if not own and any(map(_OF_AN_EVENT_LOOP.search, lines)):
        return ()  # a coroutine that waits is on no stack
    return tuple(dict.fromkeys(f"{match['file']}:{match['line']} in {match['function']}" for match in own or matches))


def _is_of_the_model(file: str, model_folder: str) -> bool:
    return file.startswith(f"{model_folder}/") and not _NOT_OF_THE_MODEL.search(file)


def is_poll_failure(message: str) -> bool:
    """Whether the server cannot read the configuration of a model; the exception of a model has more around it."""
    return _NOT_POLLED.fullmatch(message.strip()) is not None


def configuration_error(log: str) -> str:
    """Why the server rejected a model's configuration, from its log; ``""`` if the log has no such message."""
    if parsing := _PARSING.search(log):
        return f"config.pbtxt:{parsing['line']}:{parsing['column']}: {parsing['what']}"
    polling = _POLLING.search(log)
    return polling["what"] if polling else ""


def before_loads(log: str) -> str:
    """What a log has before the first load; after that, the output of models is in it, which can say anything."""
    first = _FIRST_LOAD.search(log)
    return log[: first.start()] if first else log


def last_lines(log: str, count: int = _LAST) -> tuple[str, ...]:
    """The last lines, without tables, blank lines and the stack of a crash, which follows its reason."""
    lines = [line for line in log.splitlines() if line.strip() and line[0] not in "+|" and not _CRASH_FRAME.match(line)]
    return tuple(clipped(line) for line in lines[-count:])


# What the system says where a process or a thread would be one too many, and what to do then.
NO_MORE = "Resource temporarily unavailable"
LIMIT = "raise the limits of threads and memory where the server starts: ulimit -u and -v, or docker run --pids-limit"
_NO_THREAD = re.compile(
    rf"^terminate called after throwing an instance of 'std::system_error'\n +what\(\): +{NO_MORE}$", re.MULTILINE
)
_NO_FILES = re.compile(r"^\[(?:warn|err)\] [^\n]{1,1000}: Too many open files$", re.MULTILINE)
FILES_LIMIT = "raise the limit of open files where the server starts: ulimit -n, or docker run --ulimit nofile=65536"


def files_limit(log: str) -> str:
    """What helps a server that ended because it could open no further file; ``""`` for another end."""
    return FILES_LIMIT if _NO_FILES.search(log) else ""


def threads_limit(log: str) -> str:
    """What helps a server that ended because it could start no further thread; ``""`` for another end."""
    return LIMIT if _NO_THREAD.search(log) else ""


def start_error(log: str) -> tuple[str, ...]:
    complaint, usage, _ = log.partition("\nUsage: ")
    return last_lines(complaint if usage else log)


def plain_lines(log: str) -> tuple[str, ...]:
    """The last lines not written by the server's logger: standard output and error of stubs and models."""
    found: list[str] = []
    in_dump = False
    for line in log.splitlines():
        if _SERVER_LINE.match(line):
            in_dump = line.endswith(('config: "', "] "))
        elif not in_dump and line.strip() and line[0] not in "+|":
            found.append(line)
    return tuple(clipped(line) for line in found[-_LAST:])


def request_failures(log: str) -> dict[str, str]:
    """The last error, or restart, of each instance by its name; in one line unless ENVPACK_LOG_FAILURES=1."""
    found: dict[str, str] = {}
    for severity, text in _messages(log):
        failure = _FAILURE.match(text) if severity == "E" else None
        restart = _RESTART.match(text) if severity == "W" else None
        if restart:  # nothing is logged of the requests that its process had
            found[restart["instance"]] = restart["reason"]
        if failure:
            found[failure["instance"]] = text
    return found


def failures_to_finalize(log: str) -> tuple[str, ...]:
    """The messages in which ``finalize`` raised an exception, for `read_model_error`; no client receives them."""
    return tuple(text for _, text in _messages(log) if "): finalize" in text or _NOT_CALLED.match(text))


def not_unloaded(log: str) -> tuple[str, ...]:
    """Models that were still there when the server's time to stop was over."""
    before, over, _ = log.rpartition("Exit timeout expired")
    _, _, counted = before.rpartition(" live models ")  # once a second, with their names
    return tuple(dict.fromkeys(_UNLOADING.findall(counted))) if over else ()


def restarts(log: str) -> dict[str, str]:
    """How the process of each instance ended that envpack's stub started again."""
    found = (_RESTART.match(text) for severity, text in _messages(log) if severity == "W")
    return {restart["instance"]: restart["reason"] for restart in found if restart}


def faults_of_unloaded(log: str) -> tuple[str, ...]:
    """How processes of instances ended that crashed in ``finalize`` or after it, or hung, as envpack's stub says."""
    return tuple(f"{instance} {what}" for instance, what in dict(_UNLOADED.findall(log)).items())


def _messages(log: str) -> Iterator[tuple[str, str]]:
    severity = text = ""
    is_whole = False
    for line in log.splitlines():
        head = _SERVER_LINE.search(line)  # what a model printed without the end of a line can precede it
        if head:
            if severity:
                yield severity, text
            written = line[head.end() :]
            severity, text = head.group()[0], unquoted(written)
            is_whole = text != written
        elif not is_whole:  # servers before 24.03 write a message of several lines as it is
            text += f"\n{line}"
    if severity:
        yield severity, text


def unquoted(text: str) -> str:
    """A message of a log as it was written; newer servers quote it as JSON does."""
    with contextlib.suppress(ValueError):
        if text.startswith('"'):
            return str(parse_json(text))
    return text


def last_started_stub(log: str) -> str:
    """Name in the last launch: the model's while its configuration is completed, else the instance's; or ``""``."""
    for line in reversed(log.splitlines()):
        if _LAUNCH.search(line):
            words = line.rstrip('"').replace("'", "").split()
            return words[-2] if len(words) > 2 else ""
    return ""


def stub_reports(log: str) -> dict[str, StubReport]:
    """The reports of envpack's stubs in a log, by model instance; later reports win."""
    found: dict[str, StubReport] = {}
    for line in log.splitlines():
        _, marker, rest = line.partition(STUB_REPORT)
        unescaped = rest.replace('\\"', '"').replace("\\\\", "\\")
        entry = _first_object(rest) or _first_object(unescaped) if marker else None
        if entry is not None and isinstance(entry.get("instance"), str):
            report = _read_report(entry)
            found[report.instance] = report
    return found


def _read_report(entry: dict[str, object]) -> StubReport:
    return StubReport(
        str(entry["instance"]),
        python=str(entry.get("python") or ""),
        numpy=str(entry.get("numpy") or ""),
        version=str(entry.get("stub") or ""),
        start=_start(entry.get("start")),
        import_seconds=_duration(entry.get("import_seconds")),
        initialize_seconds=_duration(entry.get("initialize_seconds")),
    )


def _start(value: object) -> str:
    return value if isinstance(value, str) and value in _STARTS else ""


def _duration(value: object) -> float | None:
    return value if isinstance(value, float) and 0 <= value <= _LONGEST_DURATION else None


def _first_object(text: str) -> dict[str, object] | None:
    try:
        value, _ = json.JSONDecoder().raw_decode(text[:_LONGEST_REPORT].lstrip())
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


_HEAD, _TAIL = 1 << 20, 3 << 20  # bytes of an excerpt


def excerpt(handle: int, since: int = 0, until: int | None = None) -> str:
    """The output from a position on: all of it, or its beginning and its end."""
    size = os.fstat(handle).st_size if until is None else until
    if size - since <= _HEAD + _TAIL:
        return _read(handle, since, size - since)
    left_out = size - since - _HEAD - _TAIL
    return f"{_read(handle, since, _HEAD)}\n… {left_out} bytes are left out …\n{_read(handle, size - _TAIL, _TAIL)}"


def _read(handle: int, start: int, count: int) -> str:
    pieces = []
    while count > 0 and (piece := os.pread(handle, count, start)):
        pieces.append(piece)
        start, count = start + len(piece), count - len(piece)
    return b"".join(pieces).decode("utf-8", "replace")
