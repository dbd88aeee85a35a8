import json

import pytest

from envpack.server.log import (
    excerpt,
    last_started_stub,
    not_unloaded,
    plain_lines,
    read_abort_frames,
    read_model_error,
    request_failures,
    stated,
    stub_reports,
)

LOAD_ERROR = (
    "load failed for model 'boom': version 1 is at UNAVAILABLE state: Internal: ValueError: boom\n\nAt:\n"
    "  /env/lib/python3.10/json/decoder.py(354): raw_decode\n  /repo/boom/1/model.py(6): helper\n"
    "  /repo/boom/1/model.py(4): initialize\n;\n"
)
LOG = r"""I1121 06:42:18.361830 41 stub_launcher.cc:385] "Starting Python backend stub: source /e/bin/activate && exec env LD_LIBRARY_PATH=/e/lib:$LD_LIBRARY_PATH /b/stub /r/core/1/model.py shm_1 1048576 1048576 41 /b/python 336 core DEFAULT"
I1121 06:42:20.071326 41 model_config_utils.cc:716] "Server side auto-completed config: "
name: "core"

I1121 06:42:20.008458 41 pb_stub.cc:5] "envpack-stub {\"instance\": \"core_0_0\", \"pid\": 7, \"python\": \"3.10.13\", \"numpy\": null, \"stub\": \"0.1.0\"}"
printed by the model
I1121 06:42:21.361830 41 stub_launcher.cc:385] "Starting Python backend stub with custom environment: '/b/stub' '/r/core/1/model.py' 'shm_1' '1' '1' '41' '/b/python' '336' 'core_0_0' 'DEFAULT'"
envpack-stub {"instance": "other_0", "python": "3.8.18"} and more
envpack-stub {broken
"""  # noqa: E501


def test_a_traceback_is_trimmed_to_the_model():
    error = read_model_error(LOAD_ERROR, "/repo/boom")
    assert error.reason == "ValueError: boom"
    assert error.frames == ("/repo/boom/1/model.py:4 in initialize", "/repo/boom/1/model.py:6 in helper")


def test_each_line_of_a_recursion_is_named_once():
    trace = "  /repo/boom/1/model.py(9): even\n  /repo/boom/1/model.py(6): odd\n" * 400
    text = f"RecursionError: maximum recursion depth exceeded\n\nAt:\n{trace}  /repo/boom/1/model.py(4): execute\n"
    assert read_model_error(text, "/repo/boom").frames == (
        "/repo/boom/1/model.py:4 in execute",
        "/repo/boom/1/model.py:6 in odd",
        "/repo/boom/1/model.py:9 in even",
    )
    assert [line.strip() for line in stated(text).splitlines()[2:]] == [
        "At:",
        "/repo/boom/1/model.py(9): even",
        "/repo/boom/1/model.py(6): odd",
        "/repo/boom/1/model.py(4): execute",
    ]


def test_a_load_of_several_versions_is_explained_by_the_first_that_fails():
    other = (
        "version 2 is at UNAVAILABLE state: Internal: KeyError: 'x'\n\nAt:\n  /repo/boom/2/model.py(9): initialize\n;\n"
    )
    assert read_model_error(LOAD_ERROR.rstrip() + other, "/repo/boom") == read_model_error(LOAD_ERROR, "/repo/boom")


def test_an_error_without_a_traceback_stays():
    error = read_model_error("something else", "/repo/boom")
    assert (error.reason, error.frames) == ("something else", ())


def test_the_reason_of_a_message_that_begins_a_list_has_the_list():
    text = "ValueError: one of these is missing:\n(1) a file\n(2) a package\n\nAt:\n  /repo/boom/1/model.py(4): f\n"
    assert (
        read_model_error(text, "/repo/boom").reason == "ValueError: one of these is missing: (1) a file (2) a package"
    )
    assert read_model_error("KeyError: 'a'\nmore", "/repo/boom").reason == "KeyError: 'a'"


def test_an_error_without_text():
    assert read_model_error("", "/repo/boom").reason == "no reason given"


def test_reports_of_stubs_are_found_escaped_or_not():
    reports = stub_reports(LOG)
    assert reports["core_0_0"].python == "3.10.13"
    assert reports["core_0_0"].numpy == ""
    assert reports["other_0"].python == "3.8.18"
    assert len(reports) == 2


@pytest.mark.parametrize(
    ("value", "start"), [('"warm"', "warm"), ('"cold"', "cold"), ('"hot"', ""), ("[]", ""), ("null", "")]
)
def test_a_report_says_how_an_instance_started(value, start):
    assert stub_reports(f'envpack-stub {{"instance": "m_0", "start": {value}}}')["m_0"].start == start


def test_a_report_without_a_start_says_nothing_of_it():
    assert stub_reports(LOG)["core_0_0"].start == ""


MESSAGE = """Failed to process the request(s) for model 'core_0_0', message: KeyError: 'a "b" \\ c'

At:
  /models/core/1/model.py(6): execute
"""


@pytest.mark.parametrize("printed", ["", "\r 50%\r100%"])
@pytest.mark.parametrize("is_quoted", [True, False], ids=["as newer servers write it", "as it is"])
def test_the_last_failure_of_each_instance_is_found(is_quoted, printed):
    head, end = "E1124 13:06:24.127303 28553 :0] ", "I1124 13:06:24.127303 28553 server.cc:631] no failure"
    entry = json.dumps(MESSAGE) if is_quoted else MESSAGE
    log = "\n".join(
        [head + entry.replace("KeyError", "ValueError"), printed + head + entry, end, head.replace("E", "I") + entry]
    )
    assert {name: text.strip() for name, text in request_failures(log).items()} == {"core_0_0": MESSAGE.strip()}


@pytest.mark.parametrize("is_quoted", [True, False], ids=["as newer servers write it", "as it is"])
def test_the_end_of_a_models_process_is_a_failure_of_its_instance(is_quoted):
    head, text = (
        "1124 13:06:24.127303 28553 model.py:0] ",
        "'core_0_0' was restarted (2, process 9): killed",
    )
    entry = json.dumps(text) if is_quoted else text
    assert request_failures(f"W{head}{entry}\nloading the weights\n") == {"core_0_0": "killed"}
    assert request_failures(f"I{head}{entry}\n") == {}


def test_the_last_started_stub_names_its_instance():
    assert last_started_stub(LOG) == "core_0_0"
    assert last_started_stub("\n".join(LOG.splitlines()[:3])) == "core"
    assert last_started_stub("") == ""


def test_plain_lines_are_those_of_stubs_and_models():
    assert plain_lines(LOG)[0] == "printed by the model"
    assert not any("name:" in line for line in plain_lines(LOG))


@pytest.fixture
def log(tmp_path):
    with (tmp_path / "log").open("w+b", buffering=0) as file:
        yield file


def test_output_is_read_from_a_position_on(log):
    log.write("first line\nsecond – line\n".encode() + b"\xff\n")
    assert excerpt(log.fileno()) == "first line\nsecond – line\n�\n"
    assert excerpt(log.fileno(), 11) == "second – line\n�\n"
    assert excerpt(log.fileno(), 1000) == ""
    assert excerpt(log.fileno(), 6, 17) == "line\nsecond"


def test_of_long_output_beginning_and_end_are_kept(log):
    log.write(b"begins here\n" + b"x" * (40 << 20) + b"\nends here\n")
    for since, beginning in ((0, "begins here\n"), (7, "here\n")):
        text = excerpt(log.fileno(), since)
        assert text.startswith(beginning)
        assert text.endswith("\nends here\n")
        assert len(text) < 5 << 20
        assert f"… {(36 << 20) + 23 - since} bytes are left out …" in text


def test_a_coroutine_that_waits_is_in_no_stack_and_no_line_of_the_event_loop_is_blamed():
    loop = ["selectors.py", "asyncio/base_events.py"]
    waits = ["threading.py", "concurrent/futures/_base.py"]
    for files in (loop, waits):
        lines = [f'  File "/env/lib/python3.10/{file}", line 7 in f' for file in files]
        log = "\n".join(["Python traceback:", *lines])
        assert read_abort_frames(log, "/models/m") == ()
        log += '\n  File "/models/m/1/model.py", line 3 in execute'
        assert read_abort_frames(log, "/models/m") == ("/models/m/1/model.py:3 in execute",)
    library = 'Python traceback:\n  File "/env/lib/python3.10/site-packages/served.py", line 9 in execute\n'
    assert read_abort_frames(library, "/models/m") == ("/env/lib/python3.10/site-packages/served.py:9 in execute",)


STOPPED = """I1129 15:50:14.181382 7 server.cc:345] "Timeout 1: Found 2 live models and 0 in-flight requests"
I1129 15:50:14.181415 7 server.cc:351] "slow-end v1: UNLOADING"
I1129 15:50:14.181416 7 server.cc:351] "other v2: UNLOADING"
I1129 15:50:15.182742 7 server.cc:345] "Timeout 0: Found 1 live models and 0 in-flight requests"
I1129 15:50:15.182777 7 server.cc:351] "slow-end v1: UNLOADING"
"""


def test_a_model_that_is_there_when_the_time_to_stop_is_over_is_named():
    over = 'E1129 15:50:15.182791 7 main.cc:535] "failed to stop server: Internal - Exit timeout expired. Exiting."\n'
    assert not_unloaded(f"{STOPPED}{over}") == ("slow-end",)
    assert not_unloaded(STOPPED) == ()
    assert not_unloaded("") == ()
