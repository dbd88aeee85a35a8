"""Replaces in golden outputs what differs between machines, days and versions: the one place that does."""

import re

import envpack
from envpack.server.launch import install_server_command
from envpack.support.installation import this_installation

_SO_FAR = re.compile(r"^  .* … .*\d+ s so far\n", re.MULTILINE)  # of steps that take long on a busy machine
_SECONDS = re.compile(r"^(  .* … .*) \d+\.\d s$", re.MULTILINE)  # of steps that take a tenth of one there
_COMMAND = re.escape(this_installation().add("EXTRAS")).replace("EXTRAS", r"([a-z,-]+)")
_SERVER = re.escape(install_server_command())  # Python 3.13 has another
_ALWAYS = (
    (re.compile(_COMMAND), r"<install \1>"),
    (re.compile(_SERVER), "<install server>"),
    (re.compile(rf"(?<![\w.]){re.escape(envpack.__version__)}(?![\w.]*\d)"), "<version>"),
    (re.compile(r"envpack-build-[0-9a-f]{12}-[0-9a-f]{8}"), "envpack-build-<key>"),
    (re.compile(r"-[0-9a-f]{12}\.tar\.gz\b"), "-<digest>.tar.gz"),
    (re.compile(r"\b[0-9a-f]{16}\.json\b"), "<digest>.json"),
    (re.compile(r"\b[0-9a-f]{64}\b|\b[0-9a-f]{32}\b"), "<digest>"),
)
# Numbers in JSON documents that no two runs or machines have in common, by key.
_MEASURED = {"size", "used"}

# The same of commands that work with this machine's interpreter, compiler and server.
_REAL = (
    (re.compile(r"\b127\.0\.0\.1:\d+\b"), "127.0.0.1:<port>"),
    (re.compile(r"\b(3\.\d{1,2})\.\d+\b"), r"\1.<patch>"),
    (re.compile(r"(?<=local_)[0-9a-f]{16}\b|(?<=x86_64-)[0-9a-f]{16}\b|\b[0-9a-f]{8}(?= Python)"), "<digest>"),
    (re.compile(r"https?://\S+/(?=[^/\s]+\.whl)"), "<index>/"),
    (re.compile(r"\b\d+(\.\d+)? (s|ms|MB|MiB|GiB)\b"), r"<number> \2"),
)
_MEASURED_HERE = _MEASURED | {
    *("bytes", "checked", "files", "latency", "left_out", "load_seconds", "p50", "p95", "peak_memory", "per_second"),
    *("pid", "requests", "seconds", "start", "unpack_seconds", "unpacked", "verdict_seconds", "verified"),
}
# Texts that say how this machine is, and lists whose length depends on it.
_HERE = {"compiler", "evidence", "glibc", "log", "memory", "needs", "phases", "started"}


def normal_text(text, paths, *, real=False):
    """The text with the names of its paths, longest path first, and without digests, versions and slow steps' lines."""
    text = _SO_FAR.sub("", text)
    text = text if real else _SECONDS.sub(r"\1", text)
    for path in sorted(paths, key=len, reverse=True):
        text = text.replace(path, paths[path])
    for pattern, name in (*(_REAL if real else ()), *_ALWAYS):
        text = pattern.sub(name, text)
    return text


def normal_document(value, paths, key="", *, real=False):
    """The same for all texts of a JSON document; measured numbers become ``<number>``."""
    if real and key in _HERE and isinstance(value, str | list):
        return f"<{key}>"
    match value:
        case dict():
            return {
                normal_text(name, paths, real=real): normal_document(item, paths, name, real=real)
                for name, item in value.items()
            }
        case list():
            return [normal_document(item, paths, key, real=real) for item in value]
        case str():
            return normal_text(value, paths, real=real)
        case int() | float() if not isinstance(value, bool) and key in (_MEASURED_HERE if real else _MEASURED):
            return "<number>"
    return value
