"""Messages are explained in a time that grows with their length only."""

import pytest

from envpack.server.log import last_lines, plain_lines, read_model_error, stub_reports
from envpack.verification.explanations import FAULTS, explain, explain_answer, may_be_refusal
from tests.tables import every_row
from tests.unit.verification.known_code_faults import WRONG_ARGUMENTS

MEGABYTE = 1 << 20
# What makes a pattern with unlimited repetitions look at the same characters again and again.
HARD = [
    "x" * MEGABYTE,
    "SyntaxError: " + "(" * MEGABYTE,
    "SyntaxError: (" * (MEGABYTE // 14),
    "TabError: (a, line " * (MEGABYTE // 19),
    "libx.so" * (MEGABYTE // 7),
    "a.so.so.so" * (MEGABYTE // 10),
    "in ensemble " * (MEGABYTE // 12),
    "canonical path for " * (MEGABYTE // 19),
    "No module named '" * (MEGABYTE // 17),
    "version `GLIBC_2." * (MEGABYTE // 17),
    "error while loading shared libraries: " * (MEGABYTE // 38),
    "At:\n  /models/m/1/model.py(" * (MEGABYTE // 27),
    "(1" * (MEGABYTE // 2),
    "Poll failed for model directory '" * (MEGABYTE // 33),
]


@pytest.mark.timeout(60)
@pytest.mark.parametrize("text", HARD, ids=lambda text: text[:20])
def test_long_messages_are_explained_at_once(text):
    for message in (text, f"ImportError: {text}", f"a.MyError: {text}"):
        explain(message, "load-failed", output=[text])
    read_model_error(f"load failed for model 'm': {text}\n\nAt:\n{text}", "/models/m")
    assert all(len(line) < 5000 for line in (*last_lines(text), *plain_lines(text)))


def test_both_ends_of_a_long_message_are_searched():
    for text in ("std::bad_alloc" + "x" * MEGABYTE, "x" * MEGABYTE + " std::bad_alloc"):
        assert explain(text, "load-failed")[0] == "out-of-memory"


TRACE = "\n\nAt:\n  /models/m/1/model.py(7): initialize\n"
# What Python, NumPy and the loader raise, and the same words in an exception of the model's own.
RAISED = [
    ("MemoryError: Unable to allocate 8.00 PiB", "ValueError: MemoryError: Unable to allocate", "out-of-memory"),
    ("numpy._core._exceptions._ArrayMemoryError: Unable to allocate", "ValueError: _ArrayMemoryError", "out-of-memory"),
    ("torch.OutOfMemoryError: CUDA out of memory", "ValueError: CUDA out of memory", "out-of-memory"),
    ("MemoryError", "MemoryErrorLike: of mine", "out-of-memory"),
    ("OSError: [Errno 12] Cannot allocate memory", "ValueError: Cannot allocate memory", "out-of-memory"),
    ("OSError: [Errno 24] Too many open files: 'a'", "ValueError: Too many open files", "too-many-files"),
    ("OSError: [Errno 30] Read-only file system: 'a'", "ValueError: Read-only file system", "read-only"),
    ("PermissionError: [Errno 13] Permission denied: 'a'", "PermissionError: your token", "not-for-everybody"),
    ("PermissionError: [Errno 13] Permission denied", "ValueError: Permission denied", "not-for-everybody"),
    ("OSError: [Errno 98] Address already in use", "ValueError: Address already in use", "port-taken"),
    ("OSError: [Errno 28] No space left on device", "ValueError: No space left on device", "disk-full"),
    ("ModuleNotFoundError: No module named 'a'", "ValueError: No module named 'a'", "module-missing"),
    ("ImportError: cannot import b.c: No module named 'a'", "ValueError: b.c: No module named 'a'", "module-missing"),
    ("ImportError: liba.so.1: cannot open shared object file", "KeyError: liba.so: cannot open", "library-missing"),
    ("ImportError: a.so: failed to map segment from shared object", "KeyError: a: failed to map", "noexec-mount"),
    ("ImportError: /a.so: version `GLIBC_2.38' not found", "KeyError: version `GLIBC_2.38' not", "library-too-old"),
    ("SyntaxError: invalid syntax (model.py, line 1)", "KeyError: SyntaxError: a (model.py, line 1)", "syntax-error"),
    ("RuntimeError: Found no NVIDIA driver", "ValueError: Found no NVIDIA driver", "no-gpu"),
]


@every_row(("raised", "written", "kind"), RAISED)
def test_an_exception_is_known_by_its_type_and_beginning_not_by_words_in_it(raised, written, kind):
    assert explain(raised + TRACE, "load-failed")[0] == kind
    assert explain(raised, "load-failed")[0] == kind
    assert explain(written + TRACE, "load-failed") == ("load-failed", "")
    assert explain(f"mine.MyError: {raised}", "load-failed") == ("load-failed", "")


@every_row(
    ("path", "advice"),
    [
        ("$TRITON_MODEL_DIRECTORY/env.tar.gz", "write $$TRITON_MODEL_DIRECTORY/env.tar.gz"),
        ("${TRITON_MODEL_DIRECTORY}/env", "write $$TRITON_MODEL_DIRECTORY/env"),
        ("env.tar.gz", "write $$TRITON_MODEL_DIRECTORY/env.tar.gz"),
        ("/opt/env", "start EXECUTION_ENV_PATH with $$TRITON_MODEL_DIRECTORY"),
    ],
)
def test_a_path_that_the_server_does_not_find_is_corrected(path, advice):
    kind, fix = explain(f"Failed to get the canonical path for {path}.", "load-failed")
    assert (kind, fix.endswith(advice)) == ("environment-missing", True)


def test_a_server_that_unpacks_no_environment_any_more_is_explained():
    message = "Failed to create environment directory for '/tmp/python_env_a/1'."
    assert explain(message, "load-failed")[1].startswith("the server failed to unpack another model's environment")


def test_words_of_the_server_in_an_exception_of_the_model_prove_nothing():
    for words in ("Failed to increase the shared memory pool", "/dev/shm is full", "it is not healthy"):
        assert explain(f"ValueError: {words}{TRACE}", "load-failed") == ("load-failed", "")
    full = "Failed to increase the shared memory pool size for key 'x' to 9 bytes"
    assert explain(full, "x")[0] == explain(f"c_python_backend_utils.TritonModelException: {full}{TRACE}", "x")[0]
    assert explain(full, "x")[0] == "shared-memory-full"


def test_what_the_loader_prints_is_evidence_and_what_the_model_prints_is_not():
    line = "/models/m/stub: error while loading shared libraries: libpython3.8.so.1.0: cannot open shared object file"
    kind, fix = explain("Stub process is not healthy.", "x", output=["loading", line])
    assert kind == "libpython-missing"
    assert "libpython3.8.so.1.0" in fix
    for printed in (f"saw {line}", "Permission denied", "MemoryError", "No space left on device"):
        assert explain("", "stub-died", output=[printed]) == ("stub-died", "")


def test_a_message_of_the_stub_with_frames_is_no_exception_of_the_model():
    reason = "NumPy, which every model needs, cannot be imported from '/e': ImportError: liba.so.1: cannot open shared"
    assert explain(f"{reason} object file{TRACE}", "x")[0] == "library-missing"


def test_unknown_faults_have_no_fix():
    assert explain("who knows", "x") == ("x", "")


PATTERNS = [(fault.raised, fault.reported, fault.printed) for fault in FAULTS]


@every_row("pattern", [found for patterns in PATTERNS for found in patterns if found])
def test_no_pattern_repeats_without_a_limit(pattern):
    import re._parser as parser  # the same that compiles it

    def repeats(tree):
        for operator, value in tree:
            if operator in (parser.MAX_REPEAT, parser.MIN_REPEAT):
                _, most, inner = value
                yield most
                yield from repeats(inner)
            elif operator is parser.SUBPATTERN:
                yield from repeats(value[-1])
            elif operator is parser.BRANCH:
                for branch in value[1]:
                    yield from repeats(branch)

    assert all(most <= 4096 for most in repeats(parser.parse(pattern)))


def test_a_model_that_prints_what_looks_like_a_report_is_harmless():
    log = "envpack-stub " + "[" * 100_000 + '\nenvpack-stub {"instance": ' + "[" * 100_000 + "\n"
    assert stub_reports(log) == {}


@every_row(
    ("words", "fix"),
    [
        ("Read-only file system", "mount a writable tmpfs there"),
        ("Permission denied", "mount a writable tmpfs there"),
        ("No such file or directory", "mount a writable tmpfs there"),
        ("No space left on device", "--shm-size=1g"),
    ],
)
def test_shared_memory_that_cannot_be_made_is_a_fault_of_dev_shm(words, fix):
    """What the system says of it are the words of other faults, too."""
    message = f"Unable to initialize shared memory key 'envpack_x' to requested size (1048576 bytes). Error: {words}"
    kind, told = explain(message, "load-failed")
    assert kind == "shared-memory-full"
    assert fix in told


@pytest.mark.parametrize(
    "text",
    [
        "upstream 'tokenizer' is not healthy",
        "Permission denied: the request has no API key",
        "cannot parse: failed to parse the document",
        "tenant 1: No space left on device quota",
        "the job 7 was killed by signal 9",
    ],
)
def test_what_a_model_answers_by_itself_proves_nothing(text):
    """A `pb_utils.TritonError` has any text; a model may refuse what was made up with it."""
    assert explain_answer(text, "inference-failed") == ("inference-failed", "")
    assert may_be_refusal(text)


@pytest.mark.parametrize(
    "text",
    [
        "Stub process 'm_0_0' is not healthy.",
        "unexpected inference output 'Y' for model 'm'",
        "unexpected number of string elements 2 for inference input 'CORRID', expecting 1",
        "in ensemble 'e', Stub process 'm_0_0' is not healthy: it ended by SIGKILL",
        "the model's process 7 was killed by signal 11 (SIGSEGV) at model.py:12 in execute",
        "it is not restarted any more: the model's process 7 exited with status 7",
        "it is not restarted any more: The model's process exited with status 127 while initialize() was running.",
        "process 7 was ended, since execute() did not return within the 2.5 seconds of ENVPACK_EXECUTE_TIMEOUT",
        "Failed to increase the shared memory pool size for key '/x' to 9 bytes",
        "Expected a list in the execute return, found type '<class 'tuple'>'.",
        "Number of InferenceResponse objects do not match the number of InferenceRequest objects.",
        "Expected an 'InferenceResponse' object in the execute function return list, found type 'int'.",
        "Python model 'm_0_0' has returned from execute without a final response, which is sent with the final flag",
        "in ensemble 'e', Failed to process the request(s) for 'm', message: OSError: [Errno 30] Read-only file system",
        "PermissionError: [Errno 13] Permission denied: '/srv/x'\n\nAt:\n  /m/1/model.py(3): execute\n",
    ],
)
def test_what_a_server_or_a_stub_answers_is_explained(text):
    kind, _ = explain_answer(text, "inference-failed")
    assert kind != "inference-failed"
    assert not may_be_refusal(text)


@every_row(
    "text",
    [
        "bdb.BdbQuit: <EMPTY MESSAGE>",
        "EOFError: EOF when reading a line",
        "AttributeError: 'c_python_backend_utils.Tensor' object has no attribute 'numpy'",
        "AttributeError: 'numpy.ndarray' object has no attribute 'predict'",
        "AttributeError: 'bytes' object has no attribute 'format'",
        "TypeError: Object of type bytes is not JSON serializable",
        "TypeError: cannot use a string pattern on a bytes-like object",
        "RuntimeError: asyncio.run() cannot be called from a running event loop",
        "RuntimeError: This event loop is already running",
        "RuntimeError: There is no current event loop in thread 'pool_0'.",
        WRONG_ARGUMENTS.format("'Y', [1.0]"),
    ],
)
def test_an_error_that_no_other_input_spares_is_no_refusal(text):
    assert not may_be_refusal(text + TRACE)


@every_row("text", [WRONG_ARGUMENTS.format("'Y', None"), "AttributeError: 'dict' object has no attribute 'lower'"])
def test_an_error_that_another_input_can_spare_may_be_a_refusal(text):
    assert may_be_refusal(text + TRACE)
