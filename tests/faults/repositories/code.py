"""Code of models that cannot be loaded or unloaded: it hangs, crashes, refuses, or is in another model's way."""

import shutil
import socket

from tests.faults.repositories.broken import Broken, Site

LIMITED = ("--timeout", "8")
MODEL = """{}
import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        {}

    def execute(self, requests):
        {}
        answers = []
        for request in requests:
            data = pb_utils.get_input_tensor_by_name(request, "IN").as_numpy()
            answers.append(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", data * 2)]))
        return answers

    def finalize(self):
        {}
"""
CRASH = "__import__('ctypes').string_at(0)"
SLEEP = "__import__('time').sleep(1000)"


def written(imports="", initialize="pass", execute="pass", finalize="pass"):
    return lambda site: site.code(MODEL.format(imports, initialize, execute, finalize))


def _weights_in_a_container(site: Site):
    site.write("1/weights.bin", b"1")
    written(initialize=f"open('/srv/models/{site.model.name}/1/weights.bin')")(site)


def _utf16(site: Site):
    site.write("1/model.py", (site.model / "1/model.py").read_text().encode("utf-16"))


def _completes_without_return(site: Site):
    text = MODEL.format("", "pass", "pass", "pass")
    method = "    @staticmethod\n    def auto_complete_config(config):\n        config.set_max_batch_size(4)\n\n"
    site.code(text.replace("    def initialize", f"{method}    def initialize"))


def _port(site: Site):
    """Two models that use the same port; each by itself is all right."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    bind = f"self.socket = __import__('socket').create_server(('127.0.0.1', {port}))"
    written(initialize=bind)(site)
    shutil.copytree(site.model, site.model.with_name(f"{site.model.name}_second"))


def _lock(site: Site):
    """Two models that lock the same file; only the third start does not let go of it.

    What is counted, not what is timed, decides whether they meet: two that start at once may still be seconds apart.
    """
    take = f"import fcntl; file = open({str(site.repository.parent / 'lock')!r}, 'a')"
    lock = "fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)"
    keep = "file.write('x'); self.file = file if file.seek(0, 2) == 3 else file.close()"
    written(initialize=f"{take}; {lock}; {keep}")(site)
    shutil.copytree(site.model, site.model.with_name(f"{site.model.name}_second"))


def _once(site: Site):
    written(initialize=f"open({str(site.repository.parent / 'state')!r}, 'x')")(site)


def _answers_once(site: Site):
    state = repr(str(site.repository.parent / "state"))
    written(execute=f"self.opened = getattr(self, 'opened', None) or open({state}, 'x')")(site)


def by_verify(name, what, change, kind, reason, fix, **more):
    return Broken(name, what, change, kind, reason, fix, found_by="verify", **more)


ENTRIES = (
    by_verify(
        "import-missing",
        "the model imports what the environment does not have",
        written("import sklearn"),
        "module-missing",
        "ModuleNotFoundError: No module named 'sklearn'",
        "add scikit-learn to the model's requirements",
    ),
    by_verify(
        "import-syntax",
        "`model.py` is no Python",
        written("def :"),
        "syntax-error",
        "SyntaxError: invalid syntax (model.py, line 1)",
        "correct line 1 of model.py",
    ),
    by_verify(
        "import-crash",
        "the process crashes in an import",
        written(CRASH),
        "stub-died",
        "killed by signal 11 (SIGSEGV) at model.py:1 in <module> while the model was being imported."
        ' … /1/model.py", line 1',
        "find what crashes in native code that model.py:1 calls",
    ),
    by_verify(
        "import-exit",
        "`model.py` ends the process when it is imported",
        written("import sys; sys.exit(1)"),
        "load-failed",
        "SystemExit: 1",
        "correct the model's code at … /1/model.py:1",
    ),
    by_verify(
        "class-missing",
        "`model.py` has no `TritonPythonModel`",
        lambda s: s.code("class Model:\n    pass\n"),
        "interface-broken",
        "module '1.model' has no attribute 'TritonPythonModel'",
        "define a class TritonPythonModel in model.py",
    ),
    by_verify(
        "initialize-without-args",
        "`initialize` has other parameters than the server gives it",
        lambda s: s.code("class TritonPythonModel:\n    def initialize(self):\n        pass\n"),
        "interface-broken",
        "initialize() takes 1 positional argument but 2 were given",
        "initialize(self, args) and finalize(self)",
    ),
    by_verify(
        "initialize-raises",
        "`initialize` raises",
        written(initialize="raise RuntimeError('no weights')"),
        "load-failed",
        "RuntimeError: no weights … /1/model.py:8 in initialize",
        "correct the model's code at … /1/model.py:8",
    ),
    by_verify(
        "initialize-variable",
        "`initialize` reads a variable that only the user's shell has",
        written(initialize="__import__('os').environ['HF_TOKEN_OF_MINE']"),
        "load-failed",
        "KeyError: 'HF_TOKEN_OF_MINE' … /1/model.py:8 in initialize",
        "set the variable HF_TOKEN_OF_MINE where the server runs, which has none of your shell's",
    ),
    by_verify(
        "initialize-parameter",
        "`initialize` reads a parameter that `config.pbtxt` does not have",
        written(initialize="__import__('json').loads(args['model_config'])['parameters']['scale']"),
        "load-failed",
        "KeyError: 'scale' … /1/model.py:8 in initialize",
        "config.pbtxt has no parameter scale: add it, or correct the code",
    ),
    by_verify(
        "weights-absent",
        "the model opens a file of its folder that is not there",
        written("from pathlib import Path", "(Path(__file__).parent / 'weights.bin').read_bytes()"),
        "load-failed",
        "No such file or directory … /1/model.py:8 in initialize",
        "/1/model.py:8: put the file there",
    ),
    by_verify(
        "weights-in-a-container",
        "the model opens a file of its folder by the path that it has in a container",
        _weights_in_a_container,
        "load-failed",
        "No such file or directory: '/srv/models/ … /1/weights.bin' … /1/model.py:8 in initialize",
        "/1/weights.bin: begin its path with one of Path(__file__).parents; or serve the repository at /srv/models",
    ),
    by_verify(
        "weights-relative",
        "the model names a file as if it ran in its own folder",
        written(initialize="open('weights/a.bin')"),
        "load-failed",
        "No such file or directory … weights/a.bin … /1/model.py:8 in initialize",
        "/1/model.py:8: servers look for the relative path weights/a.bin in their working folder",
    ),
    by_verify(
        "initialize-exits",
        "`initialize` ends the process",
        written(initialize="__import__('os')._exit(3)"),
        "stub-died",
        "The model's process exited with status 3 while initialize() was running.",
        "find what ends the process with status 3: os._exit or exit()",
    ),
    by_verify(
        "initialize-crash",
        "the process crashes in `initialize`",
        written(initialize=CRASH),
        "stub-died",
        "was killed by signal 11 (SIGSEGV) at model.py:8 in initialize while initialize() was running."
        ' … /1/model.py", line 8 in initialize',
        "find what crashes in native code that model.py:8 calls",
    ),
    by_verify(
        "initialize-killed",
        "the kernel kills the process for its memory",
        written(initialize="__import__('os').kill(__import__('os').getpid(), 9)"),
        "stub-died",
        "was killed by signal 9 (SIGKILL, which the kernel sends when memory runs out) while initialize() was running.",
        "usually the kernel killed it because memory ran out: give the server more memory",
    ),
    by_verify(
        "complete-none",
        "`auto_complete_config` returns nothing",
        _completes_without_return,
        "interface-broken",
        "must return a valid pb.ModelConfig object",
        "return the configuration at the end of auto_complete_config",
    ),
    by_verify(
        "import-utf16",
        "`model.py` was saved as UTF-16",
        _utf16,
        "syntax-error",
        "source code string cannot contain null bytes",
        "save model.py, and what it imports, as UTF-8 text; a file that has NUL bytes is UTF-16",
    ),
    by_verify(
        "words-only",
        "the model raises an exception of its own with words of the system in it",
        written(initialize="raise ValueError('Permission denied: Too many open files in /dev/shm')"),
        "load-failed",
        "ValueError: Permission denied: Too many open files in /dev/shm … /1/model.py:8 in initialize",
        "correct the model's code at … /1/model.py:8",
    ),
    by_verify(
        "memory-limit",
        "the model asks for more memory than there is",
        written(initialize="self.weights = np.ones(1 << 50)"),
        "out-of-memory",
        "MemoryError: Unable to allocate 8.00 PiB",
        "give the server more memory, or reduce the model's",
    ),
    by_verify(
        "import-hangs",
        "an import never ends",
        written(SLEEP),
        "load-timeout",
        "not loaded after 8 s … /1/model.py:1 in <module>",
        "find what blocks in … /1/model.py:1 in <module>, or allow more time: --timeout",
        options=LIMITED,
    ),
    by_verify(
        "initialize-hangs",
        "`initialize` never ends",
        written(initialize=SLEEP),
        "load-timeout",
        "not loaded after 8 s … /1/model.py:8 in initialize",
        "find what blocks in … /1/model.py:8 in initialize, or allow more time: --timeout",
        options=LIMITED,
    ),
    by_verify(
        "finalize-hangs",
        "`finalize` never ends",
        written(finalize=SLEEP),
        "shutdown",
        "after unloading all models the server still has process",
        "check its finalize, and the threads and processes that it starts",
        alone=True,
        step="unload",
    ),
    by_verify(
        "same-port",
        "two models use the same port",
        _port,
        "port-taken",
        "Address already in use … /1/model.py:8 in initialize",
        "let each instance use a free one, port 0",
        alone=True,
    ),
    by_verify(
        "same-file",
        "two models are in each other's way while they start",
        _lock,
        "together",
        "loaded at the same time, … fails: … BlockingIOError",
        "each loads alone, so they compete for memory",
        alone=True,
        step="together",
    ),
    by_verify(
        "loads-once",
        "a file that the model makes keeps it from a second load",
        _once,
        "again",
        "loaded a second time, … fails: … FileExistsError",
        "look for what its first load leaves behind",
        alone=True,
        step="together",
    ),
    by_verify(
        "answers-once",
        "a file that the model makes keeps it from answers after a second load",
        _answers_once,
        "again",
        "loaded a second time, … answers with an error: FileExistsError",
        "look for what its first load leaves behind",
        alone=True,
        step="together",
    ),
)
