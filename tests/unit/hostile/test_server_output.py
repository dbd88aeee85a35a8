"""What models print, answer and are called: read within limits, whatever it is."""

import json

from hypothesis import given, strategies as st

from envpack.server.kserve import Client, RequestError, _error_text, read_events
from envpack.server.log import (
    configuration_error,
    last_lines,
    last_started_stub,
    plain_lines,
    read_abort_frames,
    read_model_error,
    start_error,
    stub_reports,
)
from envpack.server.made_objects import SHARED_MEMORY, read_made
from envpack.server.proc import split_stat, split_variables
from envpack.server.procfs import (
    all_processes,
    paths_in_maps,
    pids_in,
    proportional_bytes,
    read_processes,
)
from envpack.server.stale_runs import owner_is_gone, this_owner
from envpack.server.tensors import CODES, decode, encode
from envpack.verification.explanations import explain
from envpack.verification.measurements import read_phases
from envpack.verification.report import last_load, ticks
from envpack.verification.verdict import ModelVerdict
from tests.hostile import VALUES, damaged, hostile, trees
from tests.unit.server.test_log import LOAD_ERROR, LOG

LINES = st.lists(
    st.sampled_from(
        [
            *LOG.splitlines(),
            *LOAD_ERROR.splitlines(),
            "I1121 06:42:18.361830 41 x:3] TRITONBACKEND_ModelInstanceInitialize: m (GPU device 0)",
            "I1121 06:42:18.361830 41 x:3] TRITONBACKEND_ModelInstanceInitialize: instance initialization successful",
            "I9999 99:99:99.999999 1 x:1] Starting Python backend stub: a b c",
            'envpack-stub {"instance": "core_0_0", "import_seconds": 1e308, "initialize_seconds": -1.0, "numpy": "²"}',
            "envpack-stub " + "[" * 4000,
            "Python traceback:",
            '  File "/r/core/1/model.py", line 3 in execute',
            "\nUsage: tritonserver",
            "\x1b[2J\x1b]0;title\x07",
        ]
    )
    | st.text(max_size=40),
    max_size=12,
).map("\n".join)


@hostile
@given(LINES | damaged(LOG.encode()).map(lambda content: content.decode("utf-8", "replace")), LINES)
def test_logs(log, later):
    for read in (configuration_error, last_started_stub):
        assert isinstance(read(log), str)
    for read in (last_lines, plain_lines, start_error):
        assert all(isinstance(line, str) for line in read(log))
    read_abort_frames(log, "/r/core")
    for report in stub_reports(log).values():
        assert report.start in ("", "cold", "warm")
        assert report.import_seconds is None or 0 <= report.import_seconds <= 1e6
    phases = read_phases(f"{LOG}\n{log}", later)
    ticks(last_load([ModelVerdict(name="m", ok=True, load_seconds=0.0, phases=phases)]))


@hostile
@given(LINES | damaged(LOAD_ERROR.encode()).map(lambda content: content.decode("utf-8", "replace")), LINES)
def test_errors_of_models(text, output):
    error = read_model_error(text, "/repo/boom")
    assert "\n" not in error.reason
    kind, _ = explain(error.text, "load-failed", output=output.splitlines())
    assert kind


ANSWER = {
    "model_name": "m",
    "outputs": [
        {"name": "OUT", "datatype": "FP32", "shape": [2], "data": [1.0, 2.0]},
        {"name": "TEXT", "datatype": "BYTES", "shape": [1], "parameters": {"binary_data_size": 5}},
    ],
}


class Answer:
    """A response of `requests`."""

    status_code, ok = 200, True

    def __init__(self, content):
        self.content, self.headers = content, {}


def answered(content):
    client = Client("http://127.0.0.1:1")
    client._session.request = lambda *_, **__: Answer(content)
    return client


@hostile
@given(damaged(json.dumps(ANSWER).encode() + b"\1\0\0\0x") | trees.map(json.dumps).map(str.encode) | st.binary())
def test_answers(content):
    client = answered(content)
    _error_text(content)
    for ask in (
        lambda: client.infer("m", (), binary=True),
        lambda: read_events(200, [b"data:" + line for line in content.split(b"\n")], 1),
        lambda: read_events(400, [content], 1),
        client.index,
        lambda: client.config("m"),
        lambda: client.statistics("m"),
        client.server_version,
        client.live,
    ):
        try:
            ask()
        except RequestError as error:
            assert error.message  # noqa: PT017 - an answer is right as well


@hostile
@given(st.sampled_from([*CODES, "BF16", "BYTES"]), st.binary(max_size=40))
def test_binary_tensors(datatype, raw):
    try:
        data = decode(datatype, raw)
    except ValueError:
        return
    assert len(encode(datatype, data)) == len(raw)


PROCESSES = st.lists(
    st.tuples(
        st.integers(1, 9),
        st.text(alphabet=st.characters(exclude_characters="\0"), max_size=15),
        st.integers(0, 9),
        st.lists(st.text(alphabet=st.characters(exclude_characters="\0"), max_size=9), max_size=3),
    ),
    max_size=6,
    unique_by=lambda process: process[0],
)


@hostile
@given(PROCESSES)
def test_processes_of_a_container(processes):
    """A process chooses its name and its arguments; it can neither hide nor invent another one."""
    text = "".join(
        f"{pid} ({name}) S {parent} 0 0\0{len(words)}\0" + "".join(f"{word}\0" for word in words)
        for pid, name, parent, words in processes
    )
    for parent in range(10):
        found = {(process.pid, process.name, process.arguments) for process in read_processes(text, parent)}
        assert found == {(pid, name, tuple(words)) for pid, name, up, words in processes if up == parent}


@hostile
@given(st.lists(st.text(max_size=5) | st.sampled_from(["7 (a) S 1 0 0", "8 (b) S", "0", "1", "-1", "²", "9" * 30])))
def test_other_writers_to_the_list_of_processes(words):
    """A process of a model can write to the output of the shell that lists processes."""
    found = all_processes("\0".join(["7 (server) S 1 0 0", "0", *words]))
    assert 7 in {process.pid for process in found}


@hostile
@given(st.text(), st.binary())
def test_files_of_processes(text, raw):
    split_stat(text)
    assert all(pid > 0 for pid in pids_in(text))
    assert proportional_bytes(text) >= 0
    assert all(path.startswith("/") for path in paths_in_maps(text))
    assert all("\0" not in name for name in split_variables(raw))


@hostile
@given(st.text() | st.lists(st.sampled_from([*this_owner().split("/"), "", "²", "9" * 30]), max_size=6).map("/".join))
def test_owners_of_servers(owner):
    assert owner_is_gone(owner) in (True, False)


@hostile
@given(st.lists(trees | st.tuples(st.sampled_from([f"{SHARED_MEMORY}/x", "/etc/passwd"]), *[VALUES] * 3), max_size=4))
def test_records_of_made_objects(tmp_path, rows):
    (tmp_path / "made").write_text("".join(f"{json.dumps(row)}\n" for row in rows) + "[" * 5000)
    assert all(path.startswith((f"{SHARED_MEMORY}/", "/tmp/python_env_")) for path in read_made(str(tmp_path / "made")))
