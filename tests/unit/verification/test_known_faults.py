"""What Python, the loader, the shell, the server and the stub write of each known fault, and the fix that users get."""

from envpack.verification.explanations import FAULTS, explain
from envpack.verification.loading import _RETRIES
from tests.tables import every_row
from tests.unit.verification.known_code_faults import OF_CODE
from tests.unit.verification.known_package_faults import LOADER, NOT_FOUND, OF_PACKAGES

TRACE = "\n\nAt:\n  /models/m/1/model.py(7): initialize\n"
KILLED = "9 (SIGKILL, which the kernel sends when memory runs out)"
CUDA = f"libcuda.so.1: {NOT_FOUND}"
MAPPED = "/env/lib/libpython3.10.so.1.0: failed to map segment from shared object"

# Kind, words of the fix that no other fix has, and what is raised by the model, reported by the server, or printed.
STUB = "/srv/m/triton_python_backend_stub"
KNOWN = [
    *OF_PACKAGES,
    *OF_CODE,
    (
        ("no-gpu", "set KIND_CPU without gpus in instance_group"),
        {
            "raised": [
                f"ImportError: {CUDA}",
                f"OSError: {CUDA}",
                "RuntimeError: Found no NVIDIA driver on your system.",
                "RuntimeError: No CUDA GPUs are available",
                "RuntimeError: CUDA error: no CUDA-capable device is detected",
                "cupy_backends.cuda.api.runtime.CUDARuntimeError: cudaErrorNoDevice: no CUDA-capable device",
            ],
            "reported": [
                "instance group m_0 of model m has kind KIND_GPU but no GPUs are available",
                f"dlopen: {CUDA}",
            ],
            "printed": [f"{LOADER}{CUDA}"],
        },
    ),
    (
        ("load-failed", "raise the limit for the size of files where the server is started: ulimit -f unlimited"),
        {
            "raised": ["OSError: [Errno 27] File too large"],
            "reported": ["cannot share memory with the model's process: File too large"],
        },
    ),
    (
        ("stub-died", "permit memfd_create"),
        {
            "reported": ["cannot share memory with the model's process: Function not implemented"],
            "printed": [
                "envpack stub: the stub cannot write its body to memory: Function not implemented",
                "envpack stub: cannot create a memory file for crash reports: Operation not permitted",
            ],
        },
    ),
    (
        ("noexec-mount", "/env/lib/libpython3.10.so.1.0 is on a file system mounted noexec"),
        {
            "raised": [f"ImportError: {MAPPED}", f"OSError: {MAPPED}"],
            "reported": [f"failed to load it: {MAPPED}"],
            "printed": [f"{LOADER}{MAPPED}"],
        },
    ),
    (
        (
            "noexec-mount",
            "/srv/m/triton_python_backend_stub is on a file system mounted noexec: mount it with exec, or",
        ),
        {"printed": [f"env: {quoted}: Permission denied" for quoted in (f"\u2018{STUB}\u2019", f"'{STUB}'")]},
    ),
    (
        ("backend-missing", "name what has pythn: --server FOLDER, or --set backends=DIRECTORY"),
        {"reported": ["unable to find backend library for backend 'pythn', try specifying runtime on the model"]},
    ),
    (
        ("backend-missing", "this server has no Python backend: name an image that has it"),
        {"reported": ["Invalid argument: unable to find backend library for backend 'python', try specifying runtime"]},
    ),
    (
        ("load-failed", "raise the limits of threads and memory where the server starts"),
        {
            "raised": ["RuntimeError: can't start new thread"],
            "reported": ["a thread cannot be created: Resource temporarily unavailable"],
        },
    ),
    (
        ("stub-died", "raise the limits of threads and memory where the server starts"),
        {"printed": [f"{what} Resource temporarily unavailable" for what in ("  what(): ", "bash: fork: retry:")]},
    ),
    (
        ("version-missing", "make the folder net/1, or of a version"),
        {"reported": ["at least one version must be available under the version policy of model 'net'"]},
    ),
    (
        ("ensemble-mismatch", "in config.pbtxt of both with those of its member models"),
        {"reported": ["in ensemble both, ensemble tensor OUT: inconsistent data type: TYPE_FP32 is inferred"]},
    ),
    (
        ("load-failed", "add the model that it calls to the repository"),
        {
            "raised": [
                "TritonModelException: Model 0 - Failed for execute the inference request. Model 'a' is not ready."
            ]
        },
    ),
    (
        ("bad-config", "leave out the control CORRID, and call request.correlation_id() in execute"),
        {"reported": ["unexpected number of string elements 2 for inference input 'CORRID', expecting 1"]},
    ),
    (
        ("load-failed", "set the variable HF_TOKEN where the server runs"),
        {
            "raised": [
                f"KeyError: 'HF_TOKEN'\n\nAt:\n  {module}: __getitem__\n  /models/m/1/model.py(7): initialize\n"
                for module in ("<frozen os>(679)", "/usr/lib/python3.10/os.py(680)")
            ]
        },
    ),
    (
        ("out-of-memory", "fewer instances, smaller weights"),
        {
            "raised": [
                "MemoryError",
                "numpy._core._exceptions._ArrayMemoryError: Unable to allocate 8.00 PiB",
                "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 GiB",
                "RuntimeError: CUDA out of memory. Tried to allocate 20.00 GiB",
                "OSError: [Errno 12] Cannot allocate memory",
            ],
            "reported": ["std::bad_alloc", "fork failed: Cannot allocate memory"],
            "printed": ["terminate called after throwing an instance of 'std::bad_alloc'"],
        },
    ),
    (
        ("too-many-files", "close files that the model no longer uses"),
        {
            "raised": ["OSError: [Errno 24] Too many open files: '/models/m/w'"],
            "reported": ["unable to open config.pbtxt: Too many open files"],
        },
    ),
    (
        ("read-only", "write below /tmp, or to a folder named by a variable"),
        {
            "raised": ["OSError: [Errno 30] Read-only file system: '/models/m/cache'"],
            "reported": ["unable to make a folder: Read-only file system"],
        },
    ),
    (
        ("not-for-everybody", "chmod -R a+rX on the model's folder"),
        {
            "raised": ["PermissionError: [Errno 13] Permission denied: '/models/m/w'"],
            "reported": ["unable to open config.pbtxt: Permission denied"],
            "printed": [
                "/bin/bash: line 1: /models/m/env/bin/activate: Permission denied",
                "bash: /models/m/env/bin/activate: Permission denied",
            ],
        },
    ),
    (
        ("port-taken", "let each instance use a free one, port 0"),
        {"raised": ["OSError: [Errno 98] Address already in use"]},
    ),
    (
        ("load-failed", "put the file there"),
        {
            "raised": [
                "FileNotFoundError: [Errno 2] No such file or directory: '/m/1/a b.bin'",
                'FileNotFoundError: No such file or directory: "/m/1/a b.bin"',  # of safetensors
                "FileNotFoundError: Model artifact not found: /m/1/a b.bin",
                "FileNotFoundError: /m/1/a b.csv not found.",  # of NumPy
                (
                    "NoSuchFile: [ONNXRuntimeError] : 3 : NO_SUCHFILE : Load model from /m/1/a b.bin failed:Load model"
                    " /m/1/a b.bin failed. File doesn't exist"
                ),
            ],
        },
    ),
    (
        ("load-failed", "or take envpack's stub: envpack build --stub always"),
        {
            "raised": [
                "UnicodeDecodeError: 'ascii' codec can't decode byte 0xc3 in position 1: ordinal not in range(128)"
            ]
        },
    ),
    (
        ("load-failed", "servers look for the relative path weights/a in their working folder"),
        {"raised": ["FileNotFoundError: [Errno 2] No such file or directory: 'weights/a'"]},
    ),
    (
        ("load-failed", "if ffmpeg is a program, add the package that brings it to the environment"),
        {"raised": ["FileNotFoundError: [Errno 2] No such file or directory: 'ffmpeg'"]},
    ),
    (
        ("stub-not-executable", "run chmod 755 on the stub"),
        {"reported": ["Failed to give execute permission to triton_python_backend_stub in /backends/python"]},
    ),
    (
        ("stub-missing", "build one with envpack stub"),
        {"reported": ["triton_python_backend_stub is not found. Searched paths: /models/m and /backends/python"]},
    ),
    (
        ("environment-missing", "/models/m/env.tar does not exist for the server"),
        {
            "reported": [
                "Failed to get the canonical path for /models/m/env.tar.",
                "Failed to get the canonical path for /models/m/env.tar",
                "Failed to get the canonical path for /models/m/env.tar. The model cannot be loaded",
            ]
        },
    ),
    (
        ("environment-missing", "EXECUTION_ENV_PATH does not name a usable environment"),
        {"reported": ["Path /models/m/env/bin/activate does not exist. The Python environment should contain it."]},
    ),
    (
        ("archive-unsupported", "servers read plain and gzipped tar only"),
        {"reported": ["archive_read_open_filename() failed with error code -30"]},
    ),
    (
        ("shared-memory-full", "--shm-size=1g"),
        {
            "reported": [
                "Failed to increase the shared memory pool size for key 'x' to 9 bytes",
                "Unable to create shared memory region",
                "it is unable to create shared memory region 'x'",
            ]
        },
    ),
    (
        ("disk-full", "or build with --format dir"),
        {
            "raised": ["OSError: [Errno 28] No space left on device"],
            "reported": ["archive_write_data_block() failed with error code -25", "write: No space left on device"],
        },
    ),
    (
        ("environment-unusable", "NumPy is incomplete in the environment"),
        {"reported": ["NumPy, which every model needs, cannot be imported from '/env': it has no file"]},
    ),
    (
        ("inference-timeout", "find what blocks in execute(), or allow more than the 2.5 seconds"),
        {
            "reported": [
                "process 7 was ended, since execute() did not return within the 2.5 seconds of ENVPACK_EXECUTE_TIMEOUT"
            ]
        },
    ),
    (
        ("stub-died", "usually the kernel killed it because memory ran out"),
        {
            "reported": [
                "Stub process 'm_0_0' is not healthy: it ended by SIGKILL",
                f"the model's process 7 was killed by signal {KILLED}",
                f"The model's process was killed by signal {KILLED} while initialize() was running. See its output",
            ],
            "printed": [
                f"envpack stub: 'm_0_0' is not restarted any more: the model's process 7 was killed by signal {KILLED}"
            ],
        },
    ),
    (
        ("stub-died", "find what crashes in native code that model.py:12 calls"),
        {
            "reported": [
                "the model's process 7 was killed by signal 11 (SIGSEGV) at model.py:12 in execute",
                "The model's process was killed by signal 6 (SIGABRT) at model.py:12 in <module> while the model was",
            ],
            "printed": ["it was killed by signal 11 (SIGSEGV) at model.py:12 in execute"],
        },
    ),
    (
        ("stub-died", "find what crashes in native code that the last Python line shown calls"),
        {
            "reported": [
                "Stub process 'm_0_0' is not healthy: it ended by SIGSEGV",
                "process 7 was killed by signal 11 (SIGSEGV)",
                "The model's process was killed by signal 11 (SIGSEGV) while initialize() was running.",
            ],
            "printed": ["it was killed by signal 7 (SIGBUS)"],
        },
    ),
    (
        ("stub-died", "find what sends signal 14, as signal.alarm(), os.kill()"),
        {
            "reported": [
                "the model's process 7 was killed by signal 14",
                "The model's process was killed by signal 14 while initialize() was running.",
            ],
            "printed": ["it was killed by signal 14"],
        },
    ),
    (
        ("stub-died", "find what sends SIGALRM, as signal.alarm(), os.kill()"),
        {"reported": ["Stub process 'm_0_0' is not healthy: it ended by SIGALRM"]},
    ),
    (
        ("stub-died", "find what ends the process with status 3: os._exit or exit()"),
        {
            "reported": [
                "Stub process 'm_0_0' is not healthy: it ended with status 3",
                "the model's process 7 exited with status 3",
                "The model's process exited with status 3 while initialize() was running. See its output",
            ]
        },
    ),
    (
        ("load-failed", "correct the variable ENVPACK_EXECUTE_TIMEOUT where the server is started"),
        {"reported": ["ENVPACK_EXECUTE_TIMEOUT is not a number of seconds: 'soon'"]},
    ),
    (
        ("load-failed", "correct the variable ENVPACK_RESTARTS where the server is started"),
        {"reported": ["ENVPACK_RESTARTS is not a number: 'never'. It says how often a model may die within a minute"]},
    ),
    (
        ("load-failed", "correct the variable ENVPACK_START where the server is started"),
        {"reported": ["ENVPACK_START is not 'warm' or 'cold': 'hot'"]},
    ),
    (
        ("load-failed", "correct the variable ENVPACK_TRITON_RELEASE where the server is started"),
        {
            "reported": [
                "Failed to preinitialize Python stub: ENVPACK_TRITON_RELEASE names Triton 23.04, but l.so names …"
            ]
        },
    ),
    (
        ("stub-died", "the model's process ended or is blocked"),
        {"reported": ["Stub process 'm_0_0' is not healthy."]},
    ),
    (
        ("bad-config", "remove model_x from config.pbtxt"),
        {"reported": ['3:1: Message type "inference.ModelConfig" has no field named "model_x".']},
    ),
    (
        ("bad-config", "correct config.pbtxt"),
        {
            "reported": [
                "failed to load model config: it is not a file",
                "failed to parse the text",
                "model output must specify 'dims' for m",
                "Invalid argument: model 'm' has no versions",
                "Invalid argument: instance group m_0 has no count",
            ]
        },
    ),
]


def cases(how):
    return [(text, *known) for known, written in KNOWN for text in written.get(how, ())]


@every_row(("text", "kind", "words"), cases("raised"))
@every_row("trace", [TRACE, ""])
def test_an_exception_of_the_model(text, kind, words, trace):
    found, fix = explain(text + trace, "load-failed")
    assert (found, words in fix) == (kind, True), fix


@every_row(("text", "kind", "words"), cases("reported"))
@every_row("before", ["", "c_python_backend_utils.TritonModelException: "])
def test_a_message_of_the_server_or_the_stub(text, kind, words, before):
    found, fix = explain(before + text, "load-failed")
    assert (found, words in fix) == (kind, True), fix


@every_row(("text", "kind", "words"), cases("printed"))
def test_a_line_that_the_loader_or_the_shell_prints(text, kind, words):
    found, fix = explain("the process ended", "stub-died", output=["before", text, "after"])
    assert (found, words in fix) == (kind, True), fix


def test_every_fault_is_among_these_in_every_way_in_which_it_shows():
    ways = {"raised", "reported", "printed"}
    faults = {(fault.kind or "load-failed", how) for fault in FAULTS for how in ways if getattr(fault, how)}
    assert faults == {(kind, how) for (kind, _), written in KNOWN for how in written}


@every_row(
    ("message", "kind"),
    [
        (f"mine.Problem: Too many open files{TRACE}", "load-failed"),  # frames show that it is an exception
        ("backend: Too many open files", "too-many-files"),  # a message with a colon is none
        ("mine.ProblemError: Too many open files", "load-failed"),
    ],
)
def test_what_is_an_exception_is_known_by_its_frames_or_its_name(message, kind):
    assert explain(message, "load-failed")[0] == kind


@every_row(
    "line",
    [
        "'[Errno -2] Name or service not known' thrown while requesting HEAD https://huggingface.co/a/b/c.json",
        (
            "WARNING:urllib3.connectionpool:Retrying (Retry(total=2, connect=None)) after connection broken by"
            " 'NewConnectionError(': Failed to establish: [Errno -3] Temporary failure in name resolution')': /x"
        ),
    ],
)
def test_a_host_that_is_tried_again_and_again_is_known_by_the_lines_of_the_library(line):
    assert _RETRIES.match(line)
    assert not _RETRIES.match(line.replace("[Errno -", "[Errno 1"))


@every_row("text", ["OSError: '/data/x' is broken", "OSError: /data/x' is broken", "OSError: ${x}' is broken"])
def test_a_path_in_an_error_of_another_library_is_no_name_on_the_hub(text):
    assert explain(text + TRACE, "load-failed") == ("load-failed", "")


@every_row(("trace", "expected"), [("", "interface-broken"), (TRACE, "load-failed")])
def test_a_call_that_names_no_class_is_the_servers_only_without_a_trace(trace, expected):
    """Below Python 3.10; with a trace it can be of any execute() that the model calls, as that of a database."""
    text = "TypeError: execute() missing 1 required positional argument: 'context'"
    assert explain(text + trace, "load-failed")[0] == expected
