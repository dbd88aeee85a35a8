"""Explains errors by the catalogue of known faults: what kind of fault it is, and how to fix it."""

from __future__ import annotations

import re
from collections.abc import Sequence

from envpack.requirements.import_names import package_with
from envpack.server.log import UNHEALTHY
from envpack.support.text import clipped
from envpack.verification import fault_catalogue as catalogue
from envpack.verification.answers import Responses
from envpack.verification.package_faults import PACKAGE_FAULTS

FAULTS = (*catalogue.MODEL_FAULTS, *PACKAGE_FAULTS, *catalogue.SERVER_FAULTS)
_MOST = 64 << 10  # characters of a message that are searched
_TRACE = "\n\nAt:\n"  # between an exception and its frames
_TYPE = re.compile(r"(?P<module>(?:[A-Za-z_]\w{0,100}\.){0,20})(?P<name>[A-Za-z_]\w{0,100})(?:: |\n|$)")
_TYPE_ENDINGS = ("Error", "Exception", "Exit", "Interrupt", "Iteration", "Warning", "NoSuchFile", "gaierror")
_OF_THE_SERVER = "TritonModelException: "  # what pb_utils raises for an error of the server
# How an answer begins that is not of the model's own making: its `pb_utils.TritonError` may have any text.
_FROM = re.compile(r"(?:in ensemble '[^'\n]{1,300}', )?(?:Failed to process the request\(s\)[^\n]{0,300}?, message: )?")
_ANSWER_OF_THE_SERVER = re.compile(
    rf"{UNHEALTHY.pattern}|{catalogue.UNDECLARED}|{catalogue.STRING_ID}"
    r"|(?:[Tt]he model's )?process (?:\d{1,10} )?(?:was|exited) "
    r"|it is not restarted|Failed to increase the shared memory pool|[Uu]nable to (?:create|initialize) shared memory"
    r"|Number of InferenceResponse objects|Expected (?:a list|an 'InferenceResponse' object|a None object)"
    r"|Python model (?:file )?.{1,4096}(?:does not implement|has returned from execute|is using the decoupled mode)"
)
# Errors that no other input would have spared: wrong code, a process that has ended, or steps that do not fit.
_WHATEVER_THE_INPUT = re.compile(
    r"(?:NameError|UnboundLocalError|ImportError|ModuleNotFoundError|SyntaxError|RecursionError|SystemExit)\b"
    r"|AttributeError: (?:(?:partially initialized )?module '|'TritonPythonModel' object|type object ')"
    r"|AttributeError: '(?:bytes|(?:numpy|c_python_backend_utils)\.\w{1,100})' object|BdbQuit\b|EOFError: EOF when"
    r"|RuntimeError: (?:asyncio\.run\(\) cannot be called|This event loop is already|There is no current event loop)"
    r"|TypeError: (?:\w{1,100}\.?\w{0,100}\(\) (?:missing|takes|got an unexpected)|Object of type |cannot use a str)"
    r"|in ensemble '[^'\n]{1,300}', .{0,300}(?:data-type is|expected \d{1,9} inputs but got)"
    rf"|(?:in ensemble '[^'\n]{{1,300}}', )?{UNHEALTHY.pattern}"
)

# How a text begins, or what JSON in it has, that is an error which code has caught.
_TRACEBACK = "Traceback (most recent call last):"
_CAUGHT = re.compile(r"\s{0,100}(?P<said>[\w.]{0,100}(?:Error|Exception): [^\n]{1,1000})")
_IN_JSON = re.compile(r"""["'](?:error|exception)["']: ?(["'])(?P<said>(?:\\.|(?!\1)[^\\\n]){1,1000})""")

# What a model that reports an error in its own words has passed on of the system or the server, and the fix.
_IN_ANY_WORDS = (
    (catalogue.UNRESOLVED, catalogue.NOT_REACHED),
    (re.compile(catalogue.NOT_READY), catalogue.CALLS),
    (
        re.compile(r"Request timeout expired\Z|Exceeds maximum queue size\Z"),
        "let requests wait: raise default_timeout_microseconds, or max_queue_size, of the queue policy in config.pbtxt",
    ),
)


def explain_answer(message: str, default_kind: str) -> tuple[str, str]:
    """As `explain`, for the error with which a loaded model answered a request."""
    said = _said(message)
    is_of_the_server = _ANSWER_OF_THE_SERVER.match(said) is not None
    if is_of_the_server or _exception(said):
        return explain(said, default_kind)
    return default_kind, next((fix for pattern, fix in _IN_ANY_WORDS if pattern.search(said)), "")


def explain(message: str, default_kind: str, *, output: Sequence[str] = ()) -> tuple[str, str]:
    """Kind and fix for an error; ``default_kind`` and no fix if the catalogue does not know it."""
    message = clipped(message, _MOST)
    exception = _exception(message)
    for fault in FAULTS:
        if match := _find(fault, message, exception, output):
            words = match.groupdict()
            package = package_with(words.get("module", ""))
            return fault.kind or default_kind, fault.fix.format(package=package, **words)
    return default_kind, ""


def may_be_refusal(message: str) -> bool:
    """Whether an error can be due to what was sent: the catalogue does not know it, and input can cause its type."""
    if explain_answer(message, "inference-failed")[0] != "inference-failed":
        return False
    return not _WHATEVER_THE_INPUT.match(_exception(_said(message)) or message)


def reported_error(answer: Responses) -> tuple[str, str]:
    """The output whose text reports an error, as that of code that catches every exception, and the error."""
    texts = ((tensor.name, value) for outputs in answer for tensor in outputs for value in tensor.data)
    found = ((name, _reported(value.decode("utf-8", "replace"))) for name, value in texts if isinstance(value, bytes))
    return next(((name, said) for name, said in found if said), ("", ""))


def _reported(text: str) -> str:
    text = clipped(text, _MOST)
    if _TRACEBACK in text:
        lines = text.rpartition(_TRACEBACK)[2].replace("\\n", "\n").splitlines()
        return next((line.rstrip('"}') for line in lines if line[:1].strip()), "")
    found = _CAUGHT.match(text) or _IN_JSON.search(text)
    return found["said"] if found else ""


def _said(message: str) -> str:
    """What was said of a request, without who passed it on."""
    found = _FROM.match(message)
    return message[found.end() :] if found else message


def _exception(message: str) -> str:
    """A model's exception from the last part of its type's name on; ``""`` if the message is the server's own."""
    found = _TYPE.match(message)
    if found is None or not (_TRACE in message or found["name"].endswith(_TYPE_ENDINGS)):
        return ""
    return message[found.start("name") :]


def _find(fault: catalogue.Fault, message: str, exception: str, output: Sequence[str]) -> re.Match[str] | None:
    found = None
    if exception and fault.raised:
        found = re.match(fault.raised, exception)
    if fault.reported and (not exception or exception.startswith(_OF_THE_SERVER)):
        found = found or re.search(fault.reported, message)
    if fault.printed:
        found = found or next((match for line in output if (match := re.match(fault.printed, line))), None)
    return found
