"""Catalogue of known faults: what shows them, and how to fix them.

Anything can stand in the text of a model's exception, and in what it prints. So words prove nothing: a fault is known
by an exception of the right type that begins as the system words it, by a message of the server or the stub, or by a
line of output that the loader or the shell writes.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from envpack.server.log import LIMIT, NO_MORE, UNHEALTHY
from envpack.server.stale_runs import HOME_PREFIX


@dataclass(frozen=True)
class Fault:
    """A known fault."""

    kind: str  # slug of its section in docs/reference/errors.md; "" for that of any load or request that fails
    fix: str  # how to fix it; it can use the named groups of the patterns, and the package of a module
    raised: str = ""  # pattern that matches an exception from its type on; an empty one shows nothing
    # Occurs in a message of the server or the stub that is not an exception of the model.
    reported: str = ""
    printed: str = ""  # matches a line of output from its beginning


def _system(types: str, number: int, text: str) -> str:
    """An exception that Python raises for a number of ``errno.h``."""
    return rf"(?:{types}): \[Errno {number}\] {text}"


_NO_MEMFD = r"(?:body to memory|memory file for [\w' ]{1,60}|with the model's process): (?:Function|Operation) not "
_CRASHED = r"was killed by signal (?:[4-8]|11|31)\b(?: \(\w{1,20}\))?"
_DTYPE = r"TritonModelException: NumPy dtype is not supported\. Tensor '(?P<tensor>[^'\n]{1,300})' has the dtype "
_NO_FILE = "No such file or directory: "
NO_ADDRESS = r"\[Errno (?:-[235]|101)\] "  # of a host's name, by `getaddrinfo`, or no way to it
UNRESOLVED = re.compile(rf"(?:NameResolutionError|Failed to resolve|{NO_ADDRESS})")
LOADER = r"\S{1,4096}: error while loading shared libraries: "
NOT_REACHED = "the server does not reach that host: correct it, or put what the model downloads into its version folder"
WRITE_ELSEWHERE = "write below /tmp, or to a folder named by a variable"
NOT_READY = r"(?:(?:Model|needs model) '[^'\n]{1,300}'(?:, which)? is not ready|unknown model: '[^'\n]{1,300}')"
# The stub leaves out what a configuration does not declare, unless it declares no output at all.
UNDECLARED = r"unexpected inference output '(?P<output>[^'\n]{1,300})' for model '"
# What the 24.10 server says of a string for a control of sequences, whatever it is.
STRING_ID = r"unexpected number of string elements 2 for inference input '(?P<control>[^'\n]{1,300})', expecting 1$"
NO_TENSOR = "AttributeError: 'NoneType' object has no attribute 'as_numpy'"
CALLS = "add the model that it calls to the repository, or correct what keeps that from being ready"

# Repetitions have a limit, so that a search takes no longer than the length of the text. The first match wins, so
# specific patterns come before general ones, and these before those of packages.
MODEL_FAULTS = (
    Fault(
        "no-gpu",
        "the server has no GPU: verify with --gpu on a machine that has one, or set KIND_CPU without gpus in"
        " instance_group",
        raised=r"(?:ImportError|OSError): libcuda\.so\.1: cannot open"
        r"|RuntimeError: (?:Found no NVIDIA driver|No CUDA GPUs are available|CUDA error: no CUDA-capable device)"
        r"|CUDARuntimeError: cudaErrorNoDevice",
        reported=r"kind KIND_GPU but no GPUs are available|libcuda\.so\.1: cannot open"
        r"|unsupported gpu id \d{1,9}\. GPUs with [^:\n]{1,200} are:[\s;]{0,20}$",
        printed=LOADER + r"libcuda\.so\.1",
    ),
    Fault(
        "bad-config",
        "the server can use these GPUs: {gpus}; name them in gpus of instance_group",
        reported=r"unsupported gpu id \d{1,9}\. GPUs with [^:\n]{1,200} are: (?P<gpus>\d[\d ,]{0,200})",
    ),
    Fault(
        "noexec-mount",
        "{library} is on a file system mounted noexec: mount it with exec, in a container with --tmpfs /tmp:exec",
        raised=r"(?:ImportError|OSError): (?P<library>[^\s:]{1,300}): failed to map segment from shared object",
        reported=r"(?P<library>[^\s:]{1,300}): failed to map segment from shared object",
        printed=LOADER + r"(?P<library>[^\s:]{1,300}): failed to map segment from shared object",
    ),
    Fault(
        "noexec-mount",
        "{stub} is on a file system mounted noexec: mount it with exec, or move the repository",
        printed=r"env: \W?(?P<stub>/\S{1,300}/triton_python_backend_stub)\W?: Permission denied$",
    ),
    Fault(
        "backend-missing",
        "this server has no Python backend: name an image that has it with --image, or a server with --server",
        reported=r"unable to find backend library for backend 'python'",
    ),
    Fault(
        "backend-missing",
        "correct backend in config.pbtxt, or name what has {backend}: --server FOLDER, or --set backends=DIRECTORY",
        reported=r"unable to find backend library for backend '(?P<backend>[^'\n]{1,300})'",
    ),
    Fault(
        "version-missing",
        "make the folder {model}/1, or of a version that its version_policy names, with what the backend loads; an "
        "ensemble needs an empty one",
        reported=r"at least one version must be available under the version policy of model '(?P<model>[^'\n]{1,300})'",
    ),
    Fault(
        "ensemble-mismatch",
        "compare the maps and types in config.pbtxt of {ensemble} with those of its member models",
        reported=r"in ensemble (?P<ensemble>[^,\s]{1,300}), ensemble tensor (?P<tensor>[^\s:]{1,300})",
    ),
    Fault(
        "interface-broken",
        "define a class TritonPythonModel in model.py with the method execute(self, requests), and where it needs them"
        " initialize(self, args) and finalize(self), and with @staticmethod auto_complete_config(config)",
        raised=r"AttributeError: module '[^'\n]{1,300}' has no attribute 'TritonPythonModel'"
        # Below Python 3.10 without the class, and then only if the server made the call, so that no trace follows.
        r"|TypeError: (?:TritonPythonModel\.|(?=.{1,300}\Z))(?:initialize|execute|finalize|auto_complete_config)\(\)"
        r" (?:takes|missing) ",
        reported=r"has no attribute 'TritonPythonModel'|does not implement `execute` method",
    ),
    Fault(
        "interface-broken",
        "return the configuration at the end of auto_complete_config",
        reported=r"must return a valid pb\.ModelConfig object",
    ),
    Fault(
        "interface-broken",
        "return None from execute, and send the responses to each request with its response sender",
        reported=r"is using the decoupled mode and the execute function must return None",
    ),
    Fault("bad-output", "declare the output {output} in config.pbtxt, or in auto_complete_config", reported=UNDECLARED),
    Fault(
        "bad-config",
        "this server does not pass the id of a sequence as a string: leave out the control {control}, and call"
        " request.correlation_id() in execute, or declare it as TYPE_UINT64",
        reported=STRING_ID,
    ),
    Fault("", CALLS, raised=rf"TritonModelException: .{{0,300}}{NOT_READY}"),
    Fault(
        "interface-broken",
        "send the responses to each request with its response sender, the last one with the final flag",
        reported=r"has returned from execute without a final response[^\n]{0,1000}the final flag",
    ),
    Fault(
        "interface-broken",
        "return a list with one InferenceResponse per request from execute, in the order of the requests",
        raised=r"RuntimeError: Task got bad yield: .{0,2}<c_python_backend_utils\.",  # of a release's own stub
        reported=r"objects do not match the number of InferenceRequest|in the execute function return list"
        r"|Expected a list in the execute return|has returned from execute without a final response",
    ),
    Fault(
        "interface-broken",
        "execute gets a list of requests, and inputs are those of one: for request in requests",
        raised=r"AttributeError: 'list' object has no attribute 'inputs'",
    ),
    # Without None, which what was sent can lead to.
    Fault(
        "interface-broken",
        "give pb_utils.Tensor a NumPy array (of a tensor of PyTorch its .cpu().numpy()), and InferenceResponse a list"
        " of tensors, or an error=pb_utils.TritonError(TEXT)",
        raised=r"TypeError: __init__\(\): incompatible constructor arguments\. [^\n]{0,100}\n\s{1,20}1\."
        r" c_python_backend_utils\.(?:Tensor|InferenceResponse)\([^\n]{1,300}\n\n"
        r"Invoked with: (?![^\n]{0,300}\bNone\b)",
    ),
    Fault(
        "",
        "no tensor has that name: compare the names that the model asks for with those in config.pbtxt; of a model that"
        " it calls, look at has_error() of the response before",
        raised=NO_TENSOR,
    ),
    Fault("", "remove breakpoint(), pdb and input(): a server has no terminal", raised=r"BdbQuit\b|EOFError: EOF when"),
    Fault(
        "",
        "set the variable {variable} where the server runs, which has none of your shell's; here, env = "
        '["{variable}"] in envpack.toml gives it yours',
        raised=r"KeyError: '(?P<variable>[^'\n]{1,100})'\n\nAt:\n  (?:<frozen os>|/\S{1,300}/os\.py)\(\d{1,6}\): __get",
    ),
    Fault(
        "syntax-error",
        "save model.py, and what it imports, as UTF-8 text; a file that has NUL bytes is UTF-16",
        raised=r"(?:ValueError|SyntaxError): source code string cannot contain null bytes"
        r"|SyntaxError: \(unicode error\) 'utf-8' codec can't decode",
    ),
    Fault(
        "syntax-error",
        "correct line {line} of {file}; the environment's Python must support its syntax",
        raised=r"(?:SyntaxError|IndentationError|TabError): "
        r".{0,200}\((?P<file>[^(),\n]{1,200}), line (?P<line>\d{1,9})\)",
    ),
    Fault(
        "out-of-memory",
        "give the server more memory, or reduce the model's: fewer instances, smaller weights",
        raised=r"_?(?:Array)?MemoryError\b|OutOfMemoryError\b|RuntimeError: CUDA out of memory|"
        + _system("OSError", 12, "Cannot allocate memory"),
        reported=r"std::bad_alloc|Cannot allocate memory",
        printed=r"terminate called after throwing an instance of 'std::bad_alloc'",
    ),
    # Before those that match what the system says of it, whatever that is.
    Fault(
        "shared-memory-full",
        "the server cannot write to its /dev/shm: mount a writable tmpfs there",
        reported=r"[Uu]nable to initialize shared memory key[^\n]{0,2000}"
        r"(?:Read-only file system|Permission denied|No such file or directory)",
    ),
    Fault(
        "shared-memory-full",
        "enlarge the server's /dev/shm: docker run --shm-size=1g, or envpack verify --set shm_size=1g",
        reported=r"[Uu]nable to initialize shared memory key",
    ),
    Fault(
        "too-many-files",
        "close files that the model no longer uses, or raise the server's limit: docker run --ulimit nofile=65536",
        raised=_system("OSError", 24, "Too many open files"),
        reported=r"Too many open files",
    ),
    Fault(
        "",
        LIMIT,
        raised=r"RuntimeError: can't start new thread",
        reported=rf"(?:thread cannot be created|process cannot be started)[^\n]{{0,1000}}{NO_MORE}",
    ),
    Fault(
        "stub-died",
        LIMIT,
        printed=rf"\s{{0,10}}what\(\):  {NO_MORE}|[^\n]{{0,300}}: fork: (?:retry: )?{NO_MORE}",
    ),
    Fault(
        "read-only",
        f"servers mount the repository read-only: {WRITE_ELSEWHERE}",
        raised=_system("OSError", 30, "Read-only file system"),
        reported=r"Read-only file system",
    ),
    Fault(
        "",
        "raise the limit for the size of files where the server is started: ulimit -f unlimited",
        raised=_system("OSError", 27, "File too large"),
        reported=r"cannot share memory with the model's process: File too large",
    ),
    Fault(
        "stub-died",
        "permit memfd_create where the server runs, as in the seccomp profile of its container",
        reported=_NO_MEMFD,
        printed=r"envpack stub: [^\n]{0,100}" + _NO_MEMFD,
    ),
    Fault(
        "not-for-everybody",
        "the server runs as another user: chmod -R a+rX on the model's folder, and on the files that it opens",
        raised=_system("PermissionError", 13, "Permission denied"),
        reported=r"Permission denied",
        printed=r"\S{0,4096}bash: (?:line \d{1,9}: )?\S{1,4096}: Permission denied$",
    ),
    Fault(
        "port-taken",
        "another model or program uses the port: let each instance use a free one, port 0",
        raised=_system("OSError", 98, "Address already in use"),
    ),
    Fault(
        "",
        "the home folder is another one on each server: put the file beside the model's code, in Path(__file__).parent",
        raised=rf"FileNotFoundError: [^\n]{{0,300}}/{HOME_PREFIX}\w{{1,30}}/",
    ),
    Fault(
        "",
        "name the encoding, as in open(path, encoding='utf-8'), or take envpack's stub: envpack build --stub always",
        raised=r"Unicode(?:De|En)codeError: 'ascii' codec ",
    ),
    Fault(
        "",
        "put the file there, as weights are often not under version control, or correct the path",
        raised=rf"FileNotFoundError: (?:(?:\[Errno 2\] )?{_NO_FILE}['\"]?|(?!\[Errno 2\])(?:[^/\n]{{0,300}}[ '\"])?)/"
        r"|NoSuchFile: \[ONNXRuntimeError\] : 3 : NO_SUCHFILE : Load model from /",
    ),
    Fault(
        "",
        "servers look for the relative path {path} in their working folder: begin it with Path(__file__).parent",
        raised=_system("FileNotFoundError", 2, rf"{_NO_FILE}'(?P<path>[^'\n]{{0,300}}[./][^'\n]{{1,300}})'"),
    ),
    Fault(
        "",
        "if {path} is a program, add the package that brings it to the environment; if a file, give its full path",
        raised=_system("FileNotFoundError", 2, rf"{_NO_FILE}'(?P<path>[^'\n]{{1,300}})'"),
    ),
    Fault(
        "bad-output",
        "give {tensor} its strings as an array of objects: .astype(object)",
        raised=_DTYPE + r"(?P<dtype><U\d{1,9})",
    ),
    Fault(
        "bad-output",
        "convert {tensor}: no type of Triton's tensors is the dtype {dtype}",
        raised=_DTYPE + r"(?P<dtype>[^\s,]{1,100}?)\.?(?=\s|$)",
    ),
)

SERVER_FAULTS = (
    Fault(
        "stub-not-executable", "run chmod 755 on the stub, as its owner", reported="Failed to give execute permission"
    ),
    Fault(
        "stub-missing",
        "the backend directory has no default stub; build one with envpack stub",
        reported=r"triton_python_backend_stub is not found",
    ),
    Fault(
        "environment-missing",
        "servers replace $$TRITON_MODEL_DIRECTORY, with two dollars, at the beginning of EXECUTION_ENV_PATH alone:"
        " write $$TRITON_MODEL_DIRECTORY{rest}",
        reported=r"canonical path for \$?\{?TRITON_MODEL_DIRECTORY\}?(?P<rest>/\S{1,4096}?)\.?(?:\s|$)",
    ),
    Fault(
        "environment-missing",
        "servers look for the relative path {path} in their working directory: write $$TRITON_MODEL_DIRECTORY/{path}",
        reported=r"Failed to get the canonical path for (?P<path>[^/\s]\S{0,4096}?)\.?(?:\s|$)",
    ),
    Fault(
        "environment-missing",
        "{path} does not exist for the server: start EXECUTION_ENV_PATH with $$TRITON_MODEL_DIRECTORY",
        reported=r"Failed to get the canonical path for (?P<path>\S{1,4096}?)\.?(?:\s|$)",
    ),
    Fault(
        "environment-missing",
        "EXECUTION_ENV_PATH does not name a usable environment; run envpack build",
        reported=r"bin/activate does not exist",
    ),
    Fault(
        "load-failed",
        "the server failed to unpack another model's environment, and unpacks none any more: correct that model; or"
        " make /tmp writable, where the server unpacks them",
        reported=r"Failed to create environment directory for",
    ),
    Fault(
        "archive-unsupported",
        "servers read plain and gzipped tar only: unpack it and name the folder, or envpack build --format tar.gz",
        reported=r"archive_read_open_filename\(\) failed",
    ),
    Fault(
        "shared-memory-full",
        "enlarge the server's /dev/shm: docker run --shm-size=1g, or envpack verify --set shm_size=1g",
        reported=r"Failed to increase the shared memory pool|[Uu]nable to create shared memory region",
    ),
    Fault(
        "disk-full",
        "free space in /tmp, where the server unpacks environments, or build with --format dir",
        raised=_system("OSError", 28, "No space left on device"),
        reported=r"archive_write_data_block\(\) failed|No space left on device",
    ),
    Fault(
        "environment-unusable",
        "NumPy is incomplete in the environment: rebuild it with envpack build",
        reported=r"NumPy, which every model needs, cannot be imported",
    ),
    Fault(
        "inference-timeout",
        "find what blocks in execute(), or allow more than the {seconds} seconds of ENVPACK_EXECUTE_TIMEOUT",
        reported=r"did not return within the (?P<seconds>[\d.e+-]{1,20}) seconds of ENVPACK_EXECUTE_TIMEOUT",
    ),
    Fault(
        "stub-died",
        "usually the kernel killed it because memory ran out: give the server more memory (in a container, raise its"
        " memory limit), or reduce the model's",
        reported=r"was killed by signal 9\b|\bended by SIGKILL",
        printed=r".{0,300}was killed by signal 9\b",
    ),
    Fault(
        "stub-died",
        "find what crashes in native code that {place} calls",
        reported=rf"{_CRASHED} at (?P<place>[^\s:]{{1,300}}:\d{{1,9}})",
        printed=rf".{{0,300}}{_CRASHED} at (?P<place>[^\s:]{{1,300}}:\d{{1,9}})",
    ),
    Fault(
        "stub-died",
        "find what crashes in native code that the last Python line shown calls",
        reported=rf"{_CRASHED}|\bended by SIG(?:ILL|TRAP|ABRT|BUS|FPE|SEGV|SYS)\b",
        printed=rf".{{0,300}}{_CRASHED}",
    ),
    Fault(
        "stub-died",
        "find what sends {signal}, as signal.alarm(), os.kill() and the limit of ulimit -t do, or handle it there",
        reported=r"\b(?:killed|ended) by (?P<signal>signal \d{1,3}|SIG\w{1,20})",
        printed=r".{0,300}was killed by (?P<signal>signal \d{1,3})",
    ),
    Fault(
        "stub-died",
        "find what ends the process with status {status}: os._exit or exit() in the model or its libraries",
        reported=r"(?:\bended with status|process (?:\d{1,10} )?exited with status) (?P<status>\d{1,9})",
    ),
    Fault(
        "load-failed",
        "correct the variable {variable} where the server is started",
        reported=r"(?P<variable>ENVPACK_[A-Z_]{1,40}) (?:is not|names Triton) ",
    ),
    Fault(
        "stub-died",
        "the model's process ended or is blocked: look for a crash in native code, os._exit, or too little memory",
        reported=UNHEALTHY.pattern,
    ),
    Fault(
        "bad-config",
        "remove {field} from config.pbtxt, or serve the model with a newer release",
        reported=r"has no field named \"(?P<field>\w{1,300})\"",
    ),
    Fault(
        "bad-config",
        "correct config.pbtxt",
        reported=r"failed to load model config|failed to parse|must specify 'dims'"
        r"|Invalid argument: (?:model|instance group)",
    ),
)
