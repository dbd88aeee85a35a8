"""What other programs print, and channels of others: used, or refused in one line."""

import json
from pathlib import Path

from hypothesis import given, strategies as st

from envpack.conda.channels import read_channel
from envpack.conda.engine import EngineError
from envpack.conda.interpreters import _interpreter, _is_usable
from envpack.conda.probe import _are_facts
from envpack.conda.resolve import _resolve_error
from envpack.conda.settings import Channels
from envpack.lock.uv import uv_error
from envpack.support.errors import EnvpackError
from envpack.support.processes import CompletedProcess
from tests.hostile import VALUES, damaged, hostile, read_or_refused, trees, with_one_value_replaced
from tests.unit.lock.test_lock import LOCK

INDEX = {
    "info": {"subdir": "linux-64"},
    "packages": {"x-1-0.tar.bz2": {"name": "x", "version": "1", "build": "0", "size": 1}},
    "packages.conda": {"y-1.2-0.conda": {"name": "y", "version": "1.2", "build": "0", "sha256": "0"}},
}
FACTS = {
    "version": "3.10.1",
    "prefix": "/usr",
    "library": None,
    "include": "/i",
    "stdlib": "/s",
    "release": True,
    "implementation": "cpython",
    "patched": False,
    "free_threaded": False,
}
OUTPUT = st.lists(
    st.sampled_from(
        [
            "No solution found when resolving dependencies:",
            "╰─▶ Because numpy was not found in the package registry and you require numpy>=99, we can conclude",
            "hint: `numpy` was found on https://me:word@host/simple",
            "error: Failed to download `numpy==1`",
            "Hash mismatch for `numpy==1`",
            "No space left on device",
            "{reason} {0} {requirement.__class__}",
        ]
    )
    | st.text(max_size=30),
    max_size=6,
).map("\n".join)


def check(error):
    assert isinstance(error, EnvpackError)
    assert error.hint
    assert "word@" not in f"{error} {error.details}"


@hostile
@given(OUTPUT, st.sampled_from(["SolverError", "GatewayError", "InvalidMatchSpecError", "PanicException"]))
def test_errors_of_the_embedded_engine(tmp_path, text, kind):
    check(
        _resolve_error(EngineError(kind, text), ["numpy >1"], {}, Channels(("https://host/c",)), LOCK.target, tmp_path)
    )


@hostile
@given(OUTPUT)
def test_output_of_uv(tmp_path, text):
    check(uv_error(CompletedProcess(2, "", text.replace("me:word@", "")), ["numpy>=99", "./x.whl"], tmp_path))


@hostile
@given(with_one_value_replaced(FACTS, VALUES | trees) | trees)
def test_output_of_interpreters(facts):
    if _are_facts(facts) and _is_usable(facts, "3.10"):
        assert _interpreter(Path("/usr/bin/python3.10"), facts).minor == "3.10"


@hostile
@given(
    with_one_value_replaced(INDEX, VALUES | trees).map(json.dumps).map(str.encode) | damaged(json.dumps(INDEX).encode())
)
def test_indexes_of_channels(tmp_path, content):
    (tmp_path / "linux-64").mkdir(exist_ok=True)
    (tmp_path / "linux-64/repodata.json").write_bytes(content)
    with read_or_refused():
        for package in read_channel(tmp_path):
            assert package.size >= 0 or package.name
