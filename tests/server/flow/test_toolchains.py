"""A machine without a compiler: the ziglang wheel builds a stub for an old glibc, and the real server runs it."""

import importlib.util
import json

import pytest

from envpack.conda.interpreters import available_interpreters

pytestmark = pytest.mark.thorough

SAMPLES = {"data": [{"X": [1.5, 2.5]}], "validation_data": [{"Y": [3.0, 5.0]}]}


def test_a_stub_compiled_by_zig_serves_a_model(doubler, envpack_json):
    if importlib.util.find_spec("ziglang") is None:
        pytest.skip("the ziglang wheel is not installed")
    interpreters = [found for found in available_interpreters() if found.library is not None]
    if not interpreters:
        pytest.skip("no interpreter with a shared libpython on this machine")
    python, repository = interpreters[-1].minor, doubler.parent
    (doubler / "envpack").mkdir()
    (doubler / "envpack/smoke.json").write_text(json.dumps(SAMPLES))

    build = ("build", "doubler", "--python", python, "--stub", "never", "--format", "tar.gz")
    code, document = envpack_json(*build, "--repository", repository)
    assert code == 0, document
    code, stub = envpack_json("stub", "--python", python, "--toolchain", "zig", "--output", doubler)
    assert code == 0, stub
    assert stub["facts"]["python"] == python
    assert [int(part) for part in stub["facts"]["glibc"].split(".")] <= [2, 28]
    code, document = envpack_json("verify", "--repository", repository)
    assert code == 0, document
    assert document["verdict"]["models"][0]["stub"]["version"]
    assert document["verdict"]["models"][0]["samples"]["right"] == 1
