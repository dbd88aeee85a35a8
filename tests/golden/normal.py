"""Replaces in golden outputs what differs between machines, days and versions: the one place that does."""

import re

import envpack
from envpack.support.installation import this_installation

_COMMAND = re.escape(this_installation().add("EXTRAS")).replace("EXTRAS", r"([a-z,-]+)")
_ALWAYS = (
    (re.compile(_COMMAND), r"<install \1>"),
    (re.compile(rf"(?<![\w.]){re.escape(envpack.__version__)}(?![\w.]*\d)"), "<version>"),
    (re.compile(r"envpack-build-[0-9a-f]{12}-[0-9a-f]{8}"), "envpack-build-<key>"),
    (re.compile(r"-[0-9a-f]{12}\.tar\.gz\b"), "-<digest>.tar.gz"),
    (re.compile(r"\b[0-9a-f]{16}\.json\b"), "<digest>.json"),
    (re.compile(r"\b[0-9a-f]{64}\b|\b[0-9a-f]{32}\b"), "<digest>"),
)
# Values of JSON documents that no two runs or machines have in common, by key.
_MEASURED = {"size", "used"}


def normal_text(text, paths):
    """The text with the names of its paths, longest path first, and without digests and what depends on a version."""
    for path in sorted(paths, key=len, reverse=True):
        text = text.replace(path, paths[path])
    for pattern, name in _ALWAYS:
        text = pattern.sub(name, text)
    return text


def normal_document(value, paths, key=""):
    """The same for all texts of a JSON document; measured numbers become ``<number>``."""
    if isinstance(value, dict):
        return {normal_text(name, paths): normal_document(item, paths, name) for name, item in value.items()}
    if isinstance(value, list):
        return [normal_document(item, paths, key) for item in value]
    if isinstance(value, str):
        return normal_text(value, paths)
    if isinstance(value, int | float) and not isinstance(value, bool) and key in _MEASURED:
        return "<number>"
    return value
