"""What every release must do with a model, and what some cannot do yet, under its real server."""

import os
import shutil
import signal
import subprocess
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from envpack.server.kserve import RequestError
from envpack.server.tensors import Tensor
from envpack.settings.releases import find_release
from tests.newer_pythons import is_newer
from tests.waiting import soon


def test_it_is_the_server_of_the_release(served):
    assert served.client.server_version() == find_release(served.release).server


def test_the_model_runs_on_the_python_that_was_asked_for(served, record_property):
    version, numpy = served.run("import platform\nreturn [platform.python_version(), np.__version__]")
    record_property("python", version)  # for ci/compatibility.py
    record_property("numpy", numpy)
    assert version.rpartition(".")[0] == served.python


def test_only_the_model_that_cannot_be_loaded_is_refused(served):
    assert set(served.failures) == {"refuses"}
    assert "ValueError: no model without REFUSES" in served.failures["refuses"]
    assert soon(lambda: served.stubs("refuses") == [])


def test_the_code_completes_the_configuration(served):
    config = served.client.config("numbers")
    assert config["max_batch_size"] == 4
    assert [(x["name"], x["data_type"], [int(n) for n in x["dims"]]) for x in config["input"]] == [
        ("X", "TYPE_FP32", [3])
    ]
    assert [output["name"] for output in config["output"]] == ["Y", "TOGETHER"]


class TestTensors:
    @pytest.mark.parametrize("binary", [False, True])
    def test_rows_of_numbers(self, served, binary):
        rows = (0.5, -1.0, 2.0**100, 0.0, 2.0**-100, 7.25)
        doubled = served.infer("numbers", Tensor("X", "FP32", (2, 3), rows), binary=binary)["Y"]
        assert doubled == Tensor("Y", "FP32", (2, 3), tuple(2 * number for number in rows))

    def test_requests_that_come_together_get_each_its_own_answer(self, served):
        with ThreadPoolExecutor(4) as pool:
            rows = [Tensor("X", "FP32", (1, 3), (float(i), 0.0, 0.0)) for i in range(4)]
            answers = list(pool.map(lambda row: served.infer("together", row), rows))
        assert [answer["Y"].data[0] for answer in answers] == [0, 2, 4, 6]
        assert [answer["TOGETHER"].data[0] for answer in answers] == [4, 4, 4, 4]

    def test_words(self, served):
        words = (b"", b"abc", "Grüße".encode()[:-1], bytes(range(256)), b"x" * 100_000, b"\0")
        mirrored = served.infer("words", Tensor("WORDS", "BYTES", (2, 3), words), binary=True)["MIRRORED"]
        assert mirrored == Tensor("MIRRORED", "BYTES", (2, 3), tuple(word[::-1] for word in words))

    def test_more_than_the_region_holds_makes_it_grow(self, served):
        rows = tuple(float(i) for i in range(3_000_000))
        code = "x = pb_utils.get_input_tensor_by_name(request, 'X').as_numpy()\nreturn [x.size, float(x[-1])]"
        assert served.run(code, Tensor("X", "FP32", (3_000_000,), rows), binary=True) == [3_000_000, 2_999_999.0]
        assert len(served.run("return 'x' * 9_000_000", binary=True)) == 9_000_000


class TestDeaths:
    """A process that dies is replaced, and whoever waits for it gets an answer."""

    @pytest.fixture(autouse=True)
    def ours(self, served):
        if served.own_stub:
            pytest.skip("the stubs that come with the releases are not replaced")

    @pytest.mark.parametrize(
        ("code", "cause"),
        [
            ("import ctypes\nctypes.string_at(0)", "was killed by signal 11 (SIGSEGV) at model.py:"),
            ("pb_utils.Logger.log_info('x' * 9000)\nimport os\nos._exit(3)", "exited with status 3"),
            ("bls_call('other', 'return 1').exec()\nimport os\nos.kill(os.getpid(), 9)", "was killed by signal 9"),
        ],
        ids=["crash", "exit", "kill"],
    )
    def test_the_request_is_told_the_cause_and_the_next_one_is_answered(self, served, code, cause):
        assert cause in served.refusal(code).message
        assert served.run("return 6 * 7") == 42

    def test_a_request_to_another_model_is_in_flight(self, served, tmp_path):
        waiting, go_on = tmp_path / "waiting", tmp_path / "go_on"
        inner = (
            f"import pathlib, time\npathlib.Path({str(waiting)!r}).touch()\n"
            f"while not pathlib.Path({str(go_on)!r}).exists(): time.sleep(0.01)\nreturn 1"
        )
        with ThreadPoolExecutor(1) as pool:
            pid = served.run("import os\nreturn os.getpid()")
            refused = pool.submit(served.refusal, f"return fetch(bls_call('other', {inner!r}).exec())")
            assert soon(waiting.exists)
            os.kill(pid, signal.SIGKILL)
            assert "was killed by signal 9" in refused.result(20).message
            assert served.run("return 6 * 7") == 42
            go_on.touch()
        assert served.run("return fetch(bls_call('other', 'return 6 * 7').exec())") == 42

    def test_a_decoupled_model(self, served):
        answer = served.run(f"return [fetch(r) for r in bls_call('stream', {DIES!r}).exec(decoupled=True)]")
        assert answer[0] == 0
        assert "exited with status 7" in answer[-1]
        assert served.run(FETCHES.format(SENDS.format(2)))[:2] == [0, 1]


class TestRequest:
    def test_its_properties_arrive(self, served):
        code = (
            "return [request.correlation_id(), request.flags(), json.loads(request.parameters())['note'],"
            " list(request.requested_output_names()), request.timeout()]"
        )
        parameters = {"sequence_id": 7, "sequence_start": True, "note": "a note", "timeout": 9_000_000}
        correlation_id, flags, note, names, timeout = served.run(code, parameters=parameters)
        assert (correlation_id, flags, note, names) == (7, 1, "a note", ["OUT"])
        assert timeout == (9_000_000 if served.release >= "23.12" else 0)

    def test_an_input_that_is_not_given_is_none(self, served):
        assert served.run("return pb_utils.get_input_tensor_by_name(request, 'X') is None")


class TestErrors:
    def test_an_exception_of_execute(self, served):
        assert "ZeroDivisionError: division by zero" in served.refusal("return 1 / 0").message

    def test_an_error_in_a_response(self, served):
        code = "return reply(0, pb_utils.TritonError('not today'))"
        assert served.refusal(code).message == "not today"

    def test_the_code_of_an_error(self, served):
        error = served.refusal("return reply(0, pb_utils.TritonError('no such thing', pb_utils.TritonError.NOT_FOUND))")
        if served.own_stub and served.release < "23.09":
            assert "'c_python_backend_utils.TritonError' has no attribute 'NOT_FOUND'" in error.message
        else:
            assert (error.message, error.status) == ("no such thing", 404 if served.release >= "24.01" else 400)

    def test_the_model_goes_on_afterwards(self, served):
        served.refusal("return 1 / 0")
        assert served.run("return 'still here'") == "still here"


class TestBls:
    def test_one_response(self, served):
        assert served.run("return fetch(bls_call('other', 'return 6 * 7').exec())") == 42

    def test_all_properties_of_the_request_arrive(self, served):
        inner = "return [request.request_id(), request.correlation_id(), request.flags()]"
        code = f"return fetch(bls_call('other', {inner!r}, request_id='an id', correlation_id=7, flags=2).exec())"
        assert served.run(code) == ["an id", 7, 2]

    def test_awaited_together(self, served):
        code = (
            "import asyncio\n"
            "async def run_calls():\n"
            "    calls = [bls_call('other', 'return %d' % i).async_exec() for i in range(5)]\n"
            "    return [fetch(response) for response in await asyncio.gather(*calls)]\n"
            "return asyncio.new_event_loop().run_until_complete(run_calls())"
        )
        assert served.run(code) == [0, 1, 2, 3, 4]

    def test_large_tensors(self, served):
        code = "return len(fetch(bls_call('other', \"return 'x' * 5_000_000\").exec()))"
        assert served.run(code) == 5_000_000

    @pytest.mark.parametrize(
        ("call", "text"),
        [
            ("bls_call('nobody')", "'nobody'"),
            ("bls_call('other', 'return 1 / 0')", "ZeroDivisionError"),
            ("bls_call('other', 'return reply(0, pb_utils.TritonError(\"not today\"))')", "not today"),
        ],
    )
    def test_an_error(self, served, call, text):
        assert text in served.run(f"return fetch({call}.exec())")

    def test_again_and_again(self, served):
        times = 10 if served.release == "23.04" else 100  # see Served
        code = f"return sum(fetch(bls_call('other', 'return %d' % i).exec()) for i in range({times}))"
        assert served.run(code) == sum(range(times))


SENDS = (
    "sender = request.get_response_sender()\n"
    "for i in range({}):\n    sender.send(reply(i))\n"
    "sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)"
)
LATER = (
    "import threading\n"
    "sender = request.get_response_sender()\n"
    "threading.Timer(0.2, sender.send, [reply('later')], {'flags': 1}).start()"
)
DIES = "request.get_response_sender().send(reply(0))\nimport os\nos._exit(7)"
FETCHES = "return [fetch(response) for response in bls_call('stream', {!r}).exec(decoupled=True)]"


class TestStreams:
    @pytest.mark.parametrize("count", [0, 1, 100])
    def test_another_model_reads_them(self, served, count):
        replies = served.run(FETCHES.format(SENDS.format(count)))
        assert [value for value in replies if value is not None] == list(range(count))

    def test_two_at_the_same_time(self, served):
        code = (
            "streams = [bls_call('stream', {!r}).exec(decoupled=True) for _ in range(2)]\n"
            "return [[fetch(r) for r in stream if r.output_tensors()] for stream in streams]"
        )
        assert served.run(code.format(SENDS.format(20))) == [list(range(20)), list(range(20))]

    def test_they_may_end_after_execute(self, served):
        assert [value for value in served.run(FETCHES.format(LATER)) if value is not None] == ["later"]

    def test_an_error_in_them(self, served):
        inner = "sender = request.get_response_sender()\nsender.send(reply(0, pb_utils.TritonError('torn')), flags=1)"
        assert "torn" in served.run(FETCHES.format(inner))

    def test_clients_read_them(self, served):
        if served.release >= "23.10":
            assert served.stream(SENDS.format(3)) == [0, 1, 2]
        else:  # HTTP knows no streams yet
            with pytest.raises(RequestError) as caught:
                served.stream(SENDS.format(3))
            assert caught.value.status == 400


class TestLog:
    def test_every_level_reaches_the_log(self, served):
        served.run(
            "for level in ('info', 'warn', 'error', 'verbose'):\n"
            "    getattr(pb_utils.Logger, 'log_' + level)('said as ' + level)\n"
            "return 0"
        )
        for level in ("info", "warn", "error", "verbose"):
            assert soon(lambda text=f"said as {level}": text in served.server.log())


METRIC = "family = pb_utils.MetricFamily({!r}, 'for a test', pb_utils.MetricFamily.{})\n"
FINAL = SENDS.format(0)
RESCHEDULES = (
    "self.seen = getattr(self, 'seen', 0) + 1\n"
    "if self.seen == 3:\n    return self.seen\n"
    "request.set_release_flags(pb_utils.TRITONSERVER_REQUEST_RELEASE_RESCHEDULE)"
)
# What releases have gained: a name, the first release that has it, code that uses it, what that returns.
GAINED = {
    "counter": (
        "23.05",
        METRIC.format("counted", "COUNTER") + "metric = family.Metric(labels={'a': 'b'})\nmetric.increment(2.5)\n"
        "return metric.value()",
        2.5,
    ),
    "gauge": (
        "23.05",
        METRIC.format("gauged", "GAUGE") + "metric = family.Metric()\nmetric.set(7)\nmetric.increment(-9)\n"
        "return metric.value()",
        -2,
    ),
    "model readiness": ("23.07", "return [pb_utils.is_model_ready(name) for name in ('other', 'none')]", [True, False]),
    "cancel query": ("23.10", "return request.is_cancelled()", False),
    "rescheduling": ("23.11", RESCHEDULES, 3),
    "correlation id as text": (
        "24.04",
        "return fetch(bls_call('other', 'return request.correlation_id()', correlation_id='abc').exec())",
        "abc",
    ),
    "sender in default mode": ("24.06", "request.get_response_sender().send(reply('sent'), flags=1)", "sent"),
    "answer after execute": ("24.06", LATER, "later"),
    "histogram": (
        "24.08",
        METRIC.format("observed", "HISTOGRAM")
        + "metric = family.Metric(buckets=[1.0])\nmetric.observe(3)\nreturn 'yes'",
        "yes",
    ),
    "parameters of a response": (
        "25.02",
        "return pb_utils.InferenceResponse(reply('yes').output_tensors(), parameters={'a': 1})",
        "yes",
    ),
    "cancelling a stream": (
        "25.04",
        f"bls_call('stream', {FINAL!r}).exec(decoupled=True).cancel()\nreturn 'yes'",
        "yes",
    ),
}


@pytest.mark.parametrize("name", GAINED)
def test_what_releases_have_gained(served, name):
    """A release that lacks something says so, instead of a crash or a hang."""
    first, code, expected = GAINED[name]
    model = "reschedule" if name == "rescheduling" and served.release >= first else "script"
    if served.release >= first:
        assert served.run(code, model=model) == expected
    else:
        text = served.refusal(code).message
        if not served.own_stub:
            assert f"Triton {first}" in text


@pytest.mark.parametrize(
    "code",
    [
        "return 'x' * 10_000",
        "return fetch(bls_call('other', 'return 1').exec())",
        "return fetch(bls_call('other', 'return 1 / 0').exec())",
        FETCHES.format(SENDS.format(3)),
    ],
    ids=["answer", "question", "error", "stream"],
)
def test_the_region_is_as_empty_as_before(served, code):
    if served.own_stub and "stream" in code:
        pytest.skip("the stubs that come with the releases hang or crash in some of many streams")
    free = "import c_python_backend_utils as c\nreturn c.shared_memory.free_memory()"
    served.run(code)
    before = served.run(free)
    for _ in range(20):
        served.run(code)
    # The allocator adds what is too small for a block to the one before it.
    assert soon(lambda: before - served.run(free) <= 96), before - served.run(free)


class TestWhichReleaseTheServerIsOf:
    """A stub of its own, started by hand, with this server behind its fifth argument and nothing to talk in."""

    @pytest.fixture
    def says(self, served, stub, tmp_path):
        if served.own_stub:
            pytest.skip("the release's own stub knows one release only")
        placed = shutil.copy(stub, tmp_path)

        def run(*, release_file="", **variables):
            if release_file:
                Path(f"{placed}.release").write_text(release_file)
            # Regions have had names of this kind in other releases only.
            region = "other_1" if served.release >= "24.04" else f"other_{uuid.uuid4()}"
            words = ["/m/1/model.py", region, "1048576", "1048576", str(served.server.pid), "/nowhere", "336", "m_0"]
            beside = (
                ["nsenter", f"--target={served.server.pid}", "--mount", "--root"] if is_newer(served.python) else []
            )
            command = [*beside, placed, *words, *(["DEFAULT"] if served.release >= "23.07" else [])]
            done = subprocess.run(command, env=variables, capture_output=True, text=True, check=False, timeout=20)
            assert done.returncode == 1
            assert done.stderr.count("\n") == 1
            return done.stderr

        return run

    def test_its_program_alone_names_it(self, served, says):
        output = says()
        server = find_release(served.release).server.rpartition(".")[0]
        assert f"names Triton {server} ({served.release}), but the server that started this stub" in output
        assert "its regions are named like other_" in output

    def test_each_other_source_agrees_with_it(self, served, says):
        for variables in (
            {"ENVPACK_TRITON_RELEASE": served.release},
            {"NVIDIA_TRITON_SERVER_VERSION": served.release},
            {"TRITON_SERVER_VERSION": find_release(served.release).server},
            {"release_file": served.release},
        ):
            assert "its regions are named like other_" in says(**variables)

    def test_whoever_says_another_one_is_contradicted(self, served, says):
        other = find_release("24.10" if find_release(served.release).stub_abi != "24.10" else "24.09")
        for variables in (
            {"ENVPACK_TRITON_RELEASE": other.name},
            {"NVIDIA_TRITON_SERVER_VERSION": other.name},
            {"TRITON_SERVER_VERSION": other.server},
            {"release_file": other.name},
        ):
            output = says(**variables)
            assert "the wrong one would crash the server" in output
            assert f"({served.release})" in output


class TestEnd:
    """These come last, since they end what the others use."""

    def test_an_unloaded_model_is_finalized_and_leaves_nothing(self, served):
        before = len(served.regions())
        (pid,) = served.stubs("other")
        served.client.unload("other")
        assert soon(lambda: "finalized other" in served.server.log())
        assert soon(lambda: pid not in served.stubs("other"))
        assert soon(lambda: len(served.regions()) == before - 1)

    def test_it_can_be_loaded_again(self, served):
        served.client.load("other", timeout=30)
        assert served.run("return fetch(bls_call('other', 'return 1').exec())") == 1

    def test_the_server_leaves_nothing_behind(self, served):
        stopped = served.server.stop()
        assert (stopped.exit_code, stopped.forced, stopped.leftovers) == (0, False, ())
