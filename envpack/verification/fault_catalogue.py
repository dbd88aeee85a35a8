"""Catalogue of known faults: the message of the server or the stub, and how to fix it."""

from __future__ import annotations

import re
from dataclasses import dataclass

from envpack.support.text import clipped


@dataclass(frozen=True)
class Fault:
    """A known fault.

    Attributes:
        kind: slug of its section in ``docs/reference/errors.md``.
        pattern: matches the message of the server or the stub; ``fix`` can use its named groups.
        fix: how to fix it.

    """

    kind: str
    pattern: re.Pattern[str]
    fix: str


def _fault(kind: str, pattern: str, fix: str) -> Fault:
    return Fault(kind, re.compile(pattern), fix)


_MOST = 64 << 10  # characters of a message that are searched

# Repetitions have a limit, so that a search takes no longer than the length of the text. The first match wins, so
# specific patterns come before general ones.
FAULTS = (
    _fault(
        "no-gpu",
        r"kind KIND_GPU but no GPUs are available|libcuda\.so\.1: cannot open|Found no NVIDIA driver"
        r"|no CUDA-capable device",
        "the server has no GPU: verify with --gpu on a machine that has one, or set KIND_CPU in instance_group",
    ),
    _fault(
        "noexec-mount",
        r"(?P<library>[^\s:]{1,300}): failed to map segment from shared object",
        "{library} is on a file system mounted noexec: mount it with exec, in a container with --tmpfs /tmp:exec",
    ),
    _fault(
        "backend-missing",
        r"unable to find backend library for backend '(?P<backend>[^'\n]{1,300})'",
        "correct backend in config.pbtxt, or name the folder that contains the backend {backend} with --backends",
    ),
    _fault(
        "ensemble-mismatch",
        r"in ensemble (?P<ensemble>[^,\s]{1,300}), ensemble tensor (?P<tensor>[^\s:]{1,300})",
        "compare the maps and types in config.pbtxt of {ensemble} with those of its member models",
    ),
    _fault(
        "interface-broken",
        r"has no attribute 'TritonPythonModel'",
        "define a class TritonPythonModel in model.py",
    ),
    _fault(
        "interface-broken",
        r"does not implement `execute` method",
        "add the method execute(self, requests) to TritonPythonModel",
    ),
    _fault(
        "interface-broken",
        r"objects do not match the number of InferenceRequest|in the execute function return list",
        "return a list with one InferenceResponse per request from execute, in the order of the requests",
    ),
    _fault(
        "syntax-error",
        r"(?:SyntaxError|IndentationError|TabError): .{0,200}\((?P<file>[^(),\n]{1,200}), line (?P<line>\d{1,9})\)",
        "correct line {line} of {file}; the environment's Python must support its syntax",
    ),
    _fault(
        "out-of-memory",
        r"MemoryError|std::bad_alloc|CUDA out of memory|Cannot allocate memory",
        "give the server more memory, or reduce the model's: fewer instances, smaller weights",
    ),
    _fault(
        "too-many-files",
        r"Too many open files",
        "close files that the model no longer uses, or raise the server's limit: docker run --ulimit nofile=65536",
    ),
    _fault(
        "read-only",
        r"Read-only file system",
        "servers mount the repository read-only: write below /tmp, or to a folder named by a variable",
    ),
    _fault(
        "not-for-everybody",
        r"PermissionError|Permission denied",
        "the server runs as another user: chmod -R a+rX on the model's folder, and on the files that it opens",
    ),
    _fault(
        "port-taken",
        r"Address already in use",
        "another model or program uses the port: let each instance use a free one, port 0",
    ),
    _fault(
        "backend-shadows-model",
        r"No module named 'model'",
        "the stub in the backend directory imports model.py from there (Triton 23.10 and later); use envpack's stub",
    ),
    _fault(
        "environment-unusable",
        r"No module named 'numpy\.\w{1,40}\._multiarray_umath'",
        "NumPy was installed for another Python, without libraries for this one: run envpack build",
    ),
    _fault(
        "module-missing", r"No module named '(?P<module>[^'\n]{1,300})'", "add {module} to the model's requirements"
    ),
    _fault(
        "numpy-mismatch",
        r"compiled using NumPy 1\.x|numpy\.core\.multiarray failed to import|numpy\.dtype size changed",
        "a package was built for another NumPy: add the version that it needs, often numpy<2, to the requirements",
    ),
    _fault(
        "libpython-missing",
        r"error while loading shared libraries: (?P<library>libpython[\w.]{1,100})",
        "the stub needs {library}, which is not in the environment: build stub and environment for the same Python",
    ),
    _fault(
        "library-missing",
        r"error while loading shared libraries: (?P<library>[^:\s]{1,300})",
        "add the package that contains {library} to the environment",
    ),
    _fault(
        "library-missing",
        r"(?P<library>[^\s:/'\"]{1,200}\.so[\w.]{0,40}): cannot open shared object file",
        "add the package that contains {library} to the environment, or rebuild the environment if it has the package",
    ),
    _fault(
        "library-too-old",
        r"version [`'](?P<version>GLIBC(?:XX)?_[\d.]{1,20})' not found",
        "a library was built for a newer system: it needs {version}",
    ),
    _fault("stub-not-executable", r"Failed to give execute permission", "run chmod 755 on the stub, as its owner"),
    _fault(
        "stub-missing",
        r"triton_python_backend_stub is not found",
        "the backend directory has no default stub; build one with envpack stub",
    ),
    _fault(
        "environment-missing",
        r"Failed to get the canonical path for (?P<path>\S{1,4096}?)\.?(?:\s|$)",
        "{path} does not exist for the server: start EXECUTION_ENV_PATH with $$TRITON_MODEL_DIRECTORY",
    ),
    _fault(
        "environment-missing",
        r"bin/activate does not exist|archive_read_open_filename\(\) failed",
        "EXECUTION_ENV_PATH does not name a usable environment; run envpack build",
    ),
    _fault(
        "environment-unusable",
        r"init_fs_encoding|No module named 'encodings'|Could not find platform independent libraries"
        r"|Python could not start|codec of the filesystem encoding",
        "Python did not find its standard library: the environment is incomplete or its activate script is wrong",
    ),
    _fault(
        "shared-memory-full",
        r"Failed to increase the shared memory pool|[Uu]nable to create shared memory region|/dev/shm",
        "enlarge the server's /dev/shm: --shm-size 1g, also an option of docker run",
    ),
    _fault(
        "disk-full",
        r"No space left on device|archive_write_data_block\(\) failed",
        "free space in /tmp, where the server unpacks environments, or build with --format dir",
    ),
    _fault(
        "environment-unusable",
        r"NumPy, which every model needs, cannot be imported",
        "NumPy is incomplete in the environment: rebuild it with envpack build",
    ),
    _fault(
        "stub-died",
        r"was killed by signal \d{1,3} \((?P<signal>\w{1,20})\)",
        "find what ends it: SIGKILL means too little memory, other signals mean a crash in native code",
    ),
    _fault(
        "stub-died",
        r"it was ended by SIGKILL",
        "usually the kernel killed it because memory ran out: give the server more memory, or reduce the model's",
    ),
    _fault(
        "stub-died",
        r"it was ended by (?P<signal>\w{1,20})",
        "find what crashes in native code that the last Python line shown calls",
    ),
    _fault(
        "stub-died",
        r"it ended with exit status (?P<status>\d{1,9})",
        "find what ends the process with status {status}: os._exit or exit() in the model or its libraries",
    ),
    _fault(
        "stub-died",
        r"is not healthy",
        "the model's process ended or is blocked: look for a crash in native code, os._exit, or too little memory",
    ),
    _fault(
        "bad-config",
        r"has no field named \"(?P<field>\w{1,300})\"",
        "remove {field} from config.pbtxt, or serve the model with a newer release",
    ),
    _fault(
        "bad-config",
        r"failed to load model config|failed to parse|must specify 'dims'|Invalid argument: (?:model|instance group)",
        "correct config.pbtxt",
    ),
)


def explain(text: str, default_kind: str) -> tuple[str, str]:
    """Kind and fix for an error message; ``default_kind`` and no fix if the catalogue has no match."""
    text = clipped(text, _MOST)
    for fault in FAULTS:
        match = fault.pattern.search(text)
        if match:
            return fault.kind, fault.fix.format(**match.groupdict())
    return default_kind, ""
