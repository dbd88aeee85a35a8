"""The Python that a model runs in, and the names that it finds there."""

import os
import re
import signal

import pytest

from tests.waiting import soon

LEVELS = {
    'logger.log("plain")': "I",
    'logger.log("as a warning", logger.WARNING)': "W",
    'logger.log_info("for information")': "I",
    'logger.log_warn("a warning")': "W",
    'logger.log_error("an error")': "E",
    'logger.log_verbose("in detail")': "I",
}


# Not the whole line: the server's HTTP side writes without the lock of its core, so lines may run into each other.
TIME_AND_PROCESS = r"\d{4} [\d:.]+ \d+"


def test_the_interpreter_looks_as_if_started_without_arguments(served):
    assert served.evaluate("[ARGV, __name__, hasattr(sys.modules['__main__'], '__file__')]") == [[""], "1.model", False]
    assert served.evaluate("sys.stdout.encoding.lower()") == "utf-8"


def test_the_folders_of_the_model_are_last_on_the_path(served):
    path = served.evaluate("PATH")
    model = served.repository / "script"
    assert path[0] == ""
    assert path[-3:-1] == [str(model / "1"), str(model)]
    assert path[-1].endswith("/python")
    assert any(entry.endswith(("site-packages", "dist-packages")) for entry in path[1:-3])  # Debian's Python has these


def test_the_model_knows_its_folder(served):
    assert served.evaluate("pb_utils.get_model_dir()") == str(served.repository / "script/1")


def test_initialize_is_given_seven_strings(served):
    args = served.evaluate("self.args")
    config = args.pop("model_config")
    assert '"name":"script"' in config.replace(" ", "")
    assert args == {
        "model_instance_device_id": "0",
        "model_instance_kind": "CPU",
        "model_instance_name": "script_0",
        "model_name": "script",
        "model_repository": str(served.repository / "script"),
        "model_version": "1",
    }


def test_classes_show_no_names_of_the_binding(served):
    classes = "[pb_utils.Tensor, pb_utils.InferenceRequest, pb_utils.TritonError, pb_utils.MetricFamily]"
    assert served.evaluate(f"[name for kind in {classes} for name in dir(kind) if 'pybind' in name]") == []


def test_calls_of_libraries_are_not_interrupted_by_the_signals_of_a_terminal(served):
    code = (
        "import ctypes, os, signal, threading, time\n"
        "ends, results = os.pipe(), []\n"
        "libc = ctypes.CDLL(None, use_errno=True)\n"
        "def later():\n"
        "    results.append(libc.read(ends[0], ctypes.create_string_buffer(8), 8))\n"
        "thread = threading.Thread(target=later)\n"
        "thread.start()\n"
        "for number in (signal.SIGINT, signal.SIGTERM) * 50:\n"
        "    signal.pthread_kill(thread.ident, number)\n"
        "    time.sleep(0.001)\n"
        "os.write(ends[1], b'data')\n"
        "thread.join()\n"
        "for end in ends: os.close(end)\n"
        "return [reply(results)]"
    )
    assert served.run_code(code) == [4]


def test_names_are_there_when_the_model_is_imported(served):
    assert served.evaluate("self.tensor_class is pb_utils.Tensor")
    assert served.evaluate("respond.__annotations__['return'].__name__") == "InferenceResponse"


def test_our_module_is_built_in(served):
    assert served.evaluate("['c_python_backend_utils' in sys.builtin_module_names, pb_utils.Tensor.__module__]") == [
        True,
        "c_python_backend_utils",
    ]
    assert served.evaluate("isinstance(c_python_backend_utils.shared_memory.free_memory(), int)")


def test_error_codes_are_read_only(served):
    names = ["UNKNOWN", "INTERNAL", "NOT_FOUND", "INVALID_ARG", "UNAVAILABLE", "UNSUPPORTED", "ALREADY_EXISTS"]
    expression = "[int(getattr(pb_utils.TritonError, name)) for name in {}]".format([*names, "CANCELLED"])
    assert served.evaluate(expression) == list(range(8))
    fields = "(lambda e: [e.message(), e.code() == e.INTERNAL])(pb_utils.TritonError('m'))"
    assert served.evaluate(fields) == ["m", True]
    assert served.evaluate("issubclass(pb_utils.TritonError, BaseException)") is False


@pytest.mark.parametrize(
    "call",
    [
        "pb_utils.Tensor('x', [1, 2])",
        "pb_utils.Tensor('x', None)",
        "pb_utils.Tensor(None, np.zeros(1))",
        "pb_utils.Tensor('', None)",
        "pb_utils.Tensor('x', np.float32(3))",
        "pb_utils.InferenceResponse(None)",
        "pb_utils.InferenceResponse([], 'text')",
        "pb_utils.InferenceResponse([1])",
        "pb_utils.TritonError(None)",
        "pb_utils.TritonError('m', None)",
        "pb_utils.TritonError('m', 1)",
        "pb_utils.Logger.log_info(None)",
        "pb_utils.Logger.log('m', 2)",
    ],
)
def test_a_wrong_argument_is_a_type_error(served, call):
    assert "message: TypeError: " in served.refusal(call).message


def test_no_tensor_among_the_outputs_is_refused(served):
    message = "TritonModelException: Output tensor for inference response should not be empty."
    assert message in served.refusal("pb_utils.InferenceResponse([None])").message


def test_an_array_is_kept_by_reference_until_it_is_sent(served):
    code = "x = np.zeros(2)\nt = pb_utils.Tensor('OUT', x)\nassert t.as_numpy() is x\nx[:] = 3\n"
    assert served.run(code + "return [pb_utils.InferenceResponse([t])]")["OUT"].data == (3.0, 3.0)


def test_a_tensor_describes_itself(served):
    expression = (
        "(lambda t: [t.name(), t.shape(), t.is_cpu(), t.triton_dtype()])(pb_utils.Tensor('n', np.zeros((2, 3))))"
    )
    assert served.evaluate(expression) == ["n", [2, 3], True, 12]


def test_log_lines_name_the_line_that_logs(served):
    served.run("self.log_at_all_levels()\nreturn [reply(0)]")
    source = (served.repository / "script/1/model.py").read_text().splitlines()
    for call, letter in LEVELS.items():
        line = next(number for number, text in enumerate(source, 1) if call in text)
        text = call.split('"')[1]
        _assert_logged(served, rf'{letter}{TIME_AND_PROCESS} model\.py:{line}\] "{text}"')
    _assert_logged(served, rf'I{TIME_AND_PROCESS} model\.py:\d+\] "from initialize"')


def test_a_log_line_may_be_long_and_of_any_language(served):
    served.run("pb_utils.Logger.log_info('größe ' + 'x' * 5000)\nreturn [reply(0)]")
    _assert_logged(served, r'\] "größe x{5000}"')


def test_log_lines_of_many_threads_all_arrive(served):
    code = (
        "import threading\n"
        "def write(thread):\n"
        "    for line in range(50):\n"
        "        pb_utils.Logger.log_info('thread %d line %d.' % (thread, line))\n"
        "threads = [threading.Thread(target=write, args=(number,)) for number in range(4)]\n"
        "[thread.start() for thread in threads]\n"
        "[thread.join() for thread in threads]\n"
        "return [reply(0)]"
    )
    served.run(code)
    _assert_logged(served, r"thread 3 line 49\.")
    for thread in range(4):
        lines = [int(n) for n in re.findall(rf'"thread {thread} line (\d+)\."', served.server.log())]
        assert lines == list(range(50))


def _assert_logged(served, pattern):
    """The server's log has, or soon gets, such a line: the stub does not wait until it is written."""
    found = soon(lambda: re.search(pattern, served.server.log()))
    assert found, f"no line {pattern} in:\n{served.server.log()[-3000:]}"


def test_auto_complete_fills_the_configuration(served):
    config = served.client.config("completed")
    assert [(i["name"], i["data_type"], i["dims"]) for i in config["input"]] == [("IN", "TYPE_INT32", [2])]
    assert [o["name"] for o in config["output"]] == ["OUT"]
    _assert_logged(served, rf"W{TIME_AND_PROCESS} \S+/completed/1/model\.py:\d+\]  completing\n")


def test_pythonpath_and_sitecustomize_are_honoured(served):
    assert served.evaluate("getattr(sys, 'customized', None)", model="customized") == "by PYTHONPATH"
    assert served.evaluate("getattr(sys, 'customized', None)") is None


def test_the_user_site_is_off_with_an_environment_unless_asked_for(served):
    expression = "[sys.flags.no_user_site, __import__('importlib.util').util.find_spec('from_user_site') is not None]"
    assert served.evaluate(expression) == [1, False]
    assert served.evaluate(expression, model="customized") == [0, True]


def test_programs_started_by_the_model_see_the_library_path_of_the_server(served):
    assert served.evaluate("os.environ.get('LD_LIBRARY_PATH', '')") == served.libraries


def test_the_process_survives_the_signals_of_a_terminal(served):
    (stub,), (worker,) = served.stubs("script"), served.workers("script")
    for pid in (stub, worker):
        for number in (signal.SIGINT, signal.SIGTERM):
            os.kill(pid, number)
    assert served.stubs("script") == [stub]
    assert served.evaluate("os.getpid()") == worker
