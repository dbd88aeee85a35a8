"""What strangers may have written: strategies for Hypothesis, and the only two things that a reader may do with it.

The profile `fuzz` (`--hypothesis-profile fuzz`) searches longer; `ci/fuzz.py` runs it parser by parser.
"""

import contextlib

from hypothesis import HealthCheck, settings, strategies as st

from envpack.cli.main import _failure

hostile = settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)

_NAMES = ["data", "validation_data", "envpack", "content", "shape", "b64", "outputs", "rtol", "FP16", "INT8", "STRING"]
_NAMES += ["files", "schema", "key", "python", "packages", "sha256", "size", "mtime_ns", "channels", "proxy_servers"]
_NAMES += ["custom_channels", "custom_multichannels", "default_channels", "ssl_verify", "channel_alias", "defaults"]
_NAMES += ["name", "version", "paths_data", "paths", "_path", "url", "build", "error", "actions", "LINK", "FETCH"]
NAMES = tuple(_NAMES)
VALUES = st.one_of(
    *(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=8), st.sampled_from(NAMES)),
    st.sampled_from([1 << 64, -(1 << 63), 10**400, 1e300, "~nobody-here", "\udcff", "http://[", "://", "%zz", "\0"]),
    st.sampled_from(["²", "9" * 5000, "2001-99-99", "2024-01-01", "/dev/zero", "../../x", "\ud800", "\x1b[2J"]),
)
trees = st.recursive(
    VALUES,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=5),
    max_leaves=20,
)


@st.composite
def damaged(draw, seed):
    """A good file with pieces removed, doubled, exchanged and replaced."""
    content = bytes(seed)
    for _ in range(draw(st.integers(1, 4))):
        begin, end = sorted(draw(st.tuples(*[st.integers(0, len(content))] * 2)))
        piece = draw(
            st.sampled_from([b"", content[begin:end] * 2, b"[" * 3000, b"{" * 3000, b"9" * 5000, b"\xff", b"\0", b"-"])
            | st.binary(max_size=6)
        )
        content = content[:begin] + piece + content[draw(st.sampled_from([begin, end, begin + 1])) :]
    return content


def with_one_value_replaced(good, values=trees):
    """A good tree of JSON with one of its values replaced."""
    where = st.sampled_from([path for path in _places(good, ()) if path])
    return st.builds(lambda path, new: replaced(good, path, new), where, values)


def _places(value, path):
    yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield from _places(inner, (*path, key))


def replaced(value, path, new):
    """A tree of JSON with another value at a path of keys and positions."""
    if not path:
        return new
    copy = dict(value) if isinstance(value, dict) else list(value)
    copy[path[0]] = replaced(value[path[0]], path[1:], new)
    return copy


@contextlib.contextmanager
def read_or_refused():
    """Allow the errors that the command line shows in one line, and no bug."""
    try:
        yield
    except Exception as error:
        if _failure(error).kind == "bug":
            raise
