"""Code of models that hangs, crashes, refuses, or answers something else than was promised."""

import shutil
import socket

from tests.faults.repositories.broken import Broken, Site

_LIMITED = ("--timeout", "8")
_IMPORT = """{}
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
_CRASH = "__import__('ctypes').string_at(0)"
_SLEEP = "__import__('time').sleep(1000)"


def written(imports="", initialize="pass", execute="pass", finalize="pass"):
    return lambda site: site.code(_IMPORT.format(imports, initialize, execute, finalize))


def _answers(new, old="data * 2"):
    def change(site: Site):
        text = _IMPORT.format("", "pass", "pass", "pass")
        assert old in text
        site.code(text.replace(old, new))

    return change


def _with_sample(change):
    """With a sample: what a model refuses that was made up says nothing about the model."""

    def changed(site: Site):
        change(site)
        site.write("envpack/smoke.json", '{"data": [{"IN": [1]}]}')

    return changed


def _weights_in_a_container(site: Site):
    site.write("1/weights.bin", b"1")
    written(initialize=f"open('/srv/models/{site.model.name}/1/weights.bin')")(site)


def _utf16(site: Site):
    site.write("1/model.py", (site.model / "1/model.py").read_text().encode("utf-16"))


def _generator(site: Site):
    """The requests are answered one by one, as if the model were decoupled."""
    text = _IMPORT.format("", "pass", "pass", "pass")
    site.code(text.replace("answers.append(", "yield (").replace("        return answers\n", ""))


def _completes_without_return(site: Site):
    text = _IMPORT.format("", "pass", "pass", "pass")
    method = "    @staticmethod\n    def auto_complete_config(config):\n        config.set_max_batch_size(4)\n\n"
    site.code(text.replace("    def initialize", f"{method}    def initialize"))


def _no_final_flag(site: Site):
    """A decoupled model that keeps its response senders, and ends no stream."""
    sends = (
        "sender = request.get_response_sender()\n            self.senders = [*getattr(self, 'senders', ()), sender]\n"
    )
    text = _IMPORT.format("", "pass", "pass", "pass")
    text = text.replace("answers.append(", f"{sends}            sender.send(").replace("        return answers\n", "")
    site.code(text)
    site.append("model_transaction_policy { decoupled: true }\n")


def _old_version(site: Site):
    site.write("2/model.py", (site.model / "1/model.py").read_text())
    written(execute="raise ValueError('of old')")(site)
    site.append("version_policy: { all { } }\n")


def _port(site: Site):
    """Two models that use the same port; each by itself is all right."""

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    bind = f"self.socket = __import__('socket').create_server(('127.0.0.1', {port}))"
    written(initialize=bind)(site)
    shutil.copytree(site.model, site.model.with_name(f"{site.model.name}_second"))


def _lock(site: Site):
    """Two models that lock the same file; each lets go of it when it starts by itself, the first two times.

    What is counted, not what is timed, decides whether they meet: two that start at once may still be seconds apart.
    """
    take = f"import fcntl; file = open({str(site.repository.parent / 'lock')!r}, 'a')"
    lock = "fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)"
    keep = "file.write('x'); self.file = file if file.seek(0, 2) > 2 else file.close()"
    written(initialize=f"{take}; {lock}; {keep}")(site)
    shutil.copytree(site.model, site.model.with_name(f"{site.model.name}_second"))


def _v(name, what, change, kind, reason, fix, **more):
    return Broken(name, what, change, kind, reason, fix, found_by="verify", **more)


ENTRIES = (
    _v(
        "import-missing",
        "the model imports what the environment does not have",
        written("import sklearn"),
        "module-missing",
        "ModuleNotFoundError: No module named 'sklearn'",
        "add scikit-learn to the model's requirements",
    ),
    _v(
        "import-syntax",
        "`model.py` is no Python",
        written("def :"),
        "syntax-error",
        "SyntaxError: invalid syntax (model.py, line 1)",
        "correct line 1 of model.py",
    ),
    _v(
        "import-crash",
        "the process crashes in an import",
        written(_CRASH),
        "stub-died",
        "killed by signal 11 (SIGSEGV) at model.py:1 in <module> while the model was being imported."
        ' … /1/model.py", line 1',
        "find what crashes in native code that model.py:1 calls",
    ),
    _v(
        "import-exit",
        "`model.py` ends the process when it is imported",
        written("import sys; sys.exit(1)"),
        "load-failed",
        "SystemExit: 1",
        "correct the model's code at … /1/model.py:1",
    ),
    _v(
        "class-missing",
        "`model.py` has no `TritonPythonModel`",
        lambda s: s.code("class Model:\n    pass\n"),
        "interface-broken",
        "module '1.model' has no attribute 'TritonPythonModel'",
        "define a class TritonPythonModel in model.py",
    ),
    _v(
        "execute-missing",
        "the model has no `execute`",
        lambda s: s.code("class TritonPythonModel:\n    def initialize(self, args):\n        pass\n"),
        "interface-broken",
        "does not implement `execute` method",
        "add the method execute(self, requests) to TritonPythonModel",
        step="inference",
    ),
    _v(
        "initialize-raises",
        "`initialize` raises",
        written(initialize="raise RuntimeError('no weights')"),
        "load-failed",
        "RuntimeError: no weights … /1/model.py:8 in initialize",
        "correct the model's code at … /1/model.py:8",
    ),
    _v(
        "weights-absent",
        "the model opens a file of its folder that is not there",
        written("from pathlib import Path", "(Path(__file__).parent / 'weights.bin').read_bytes()"),
        "load-failed",
        "No such file or directory … /1/model.py:8 in initialize",
        "/1/model.py:8: put the file there",
    ),
    _v(
        "weights-in-a-container",
        "the model opens a file of its folder by the path that it has in a container",
        _weights_in_a_container,
        "load-failed",
        "No such file or directory: '/srv/models/ … /1/weights.bin' … /1/model.py:8 in initialize",
        "/1/weights.bin: begin its path with Path(__file__).parent; or serve the repository at /srv/models",
    ),
    _v(
        "weights-relative",
        "the model names a file as if it ran in its own folder",
        written(initialize="open('weights/a.bin')"),
        "load-failed",
        "No such file or directory … weights/a.bin … /1/model.py:8 in initialize",
        "/1/model.py:8: servers look for the relative path weights/a.bin in their working folder",
    ),
    _v(
        "initialize-exits",
        "`initialize` ends the process",
        written(initialize="__import__('os')._exit(3)"),
        "stub-died",
        "The model's process exited with status 3 while initialize() was running.",
        "find what ends the process with status 3: os._exit or exit()",
    ),
    _v(
        "initialize-crash",
        "the process crashes in `initialize`",
        written(initialize=_CRASH),
        "stub-died",
        "was killed by signal 11 (SIGSEGV) at model.py:8 in initialize while initialize() was running."
        ' … /1/model.py", line 8 in initialize',
        "find what crashes in native code that model.py:8 calls",
    ),
    _v(
        "initialize-killed",
        "the kernel kills the process for its memory",
        written(initialize="__import__('os').kill(__import__('os').getpid(), 9)"),
        "stub-died",
        "was killed by signal 9 (SIGKILL, which the kernel sends when memory runs out) while initialize() was running.",
        "usually the kernel killed it because memory ran out: give the server more memory",
    ),
    _v(
        "execute-raises",
        "`execute` raises",
        _with_sample(written(execute="raise ValueError('not today')")),
        "inference-failed",
        "ValueError: not today … /1/model.py:11 in execute",
        "correct the model's code at … /1/model.py:11",
        step="inference",
    ),
    _v(
        "execute-crash",
        "the process crashes in `execute`",
        written(execute=_CRASH),
        "stub-died",
        'was killed by signal 11 (SIGSEGV) at model.py:11 in execute … /1/model.py", line 11 in execute',
        "find what crashes in native code that model.py:11 calls",
        step="inference",
    ),
    _v(
        "execute-exits",
        "`execute` ends the process",
        written(execute="__import__('os')._exit(3)"),
        "stub-died",
        "the model's process … exited with status 3",
        "find what ends the process with status 3: os._exit or exit()",
        step="inference",
    ),
    _v(
        "answer-none",
        "`execute` returns nothing",
        written(execute="return None"),
        "interface-broken",
        "has returned from execute without a final response, and has kept neither a request nor a response sender",
        "return a list with one InferenceResponse per request from execute, in the order of the requests",
        step="inference",
    ),
    _v(
        "answer-strings",
        "an output holds strings of NumPy's own type",
        _answers("np.array(['a'])"),
        "bad-output",
        "NumPy dtype is not supported. Tensor 'OUT' has the dtype <U1",
        "give OUT its strings as an array of objects: .astype(object)",
        step="inference",
    ),
    _v(
        "import-pip",
        "the model imports pip when it runs",
        written(execute="import pip"),
        "module-missing",
        "ModuleNotFoundError: No module named 'pip'",
        "the environment has no pip: add what the model installs when it runs to its requirements instead",
        step="inference",
    ),
    _v(
        "complete-none",
        "`auto_complete_config` returns nothing",
        _completes_without_return,
        "interface-broken",
        "must return a valid pb.ModelConfig object",
        "return the configuration at the end of auto_complete_config",
    ),
    _v(
        "answer-count",
        "`execute` returns too few responses",
        written(execute="return []"),
        "interface-broken",
        "InferenceRequest(s) size is:1, and InferenceResponse(s) size is:0",
        "return a list with one InferenceResponse per request from execute, in the order of the requests",
        step="inference",
    ),
    _v(
        "answer-no-response",
        "`execute` returns tensors in place of responses",
        written(execute="return [1 for _ in requests]"),
        "interface-broken",
        "Expected an 'InferenceResponse' object … found type '<class 'int'>'",
        "return a list with one InferenceResponse per request from execute, in the order of the requests",
        step="inference",
    ),
    _v(
        "answer-dtype",
        "an output has another type than promised",
        _answers("(data * 2).astype(np.float64)"),
        "bad-output",
        "the output OUT is FP64, not FP32",
        "return what config.pbtxt declares, or correct config.pbtxt",
        step="inference",
    ),
    _v(
        "answer-name",
        "an output has another name than promised",
        _answers('"RESULT"', '"OUT"'),
        "bad-output",
        "the output OUT is missing: the response contains no output of a declared name",
        "return what config.pbtxt declares, or correct config.pbtxt",
        step="inference",
    ),
    _v(
        "answer-undeclared",
        "the configuration declares no output",
        lambda site: site.configure('output [ { name: "OUT" data_type: TYPE_FP32 dims: [ -1 ] } ]', ""),
        "bad-output",
        "unexpected inference output 'OUT' for model 'answer_undeclared'",
        "declare the output OUT in config.pbtxt, or in auto_complete_config",
        step="inference",
    ),
    _v(
        "answer-missing",
        "a response without outputs",
        _answers("[]", '[pb_utils.Tensor("OUT", data * 2)]'),
        "bad-output",
        "the output OUT is missing: the response contains no output of a declared name",
        "return what config.pbtxt declares, or correct config.pbtxt",
        step="inference",
    ),
    _v(
        "answer-object",
        "an output is an array of Python objects",
        _answers("np.array([[{}]], dtype=object)"),
        "bad-output",
        "the output OUT is BYTES, not FP32",
        "return what config.pbtxt declares, or correct config.pbtxt",
        step="inference",
    ),
    _v(
        "execute-generator",
        "`execute` yields its responses",
        _generator,
        "interface-broken",
        "Expected a list in the execute return, found type '<class 'generator'>'",
        "return a list with one InferenceResponse per request from execute, in the order of the requests",
        step="inference",
    ),
    _v(
        "answer-error",
        "the response is an error that the model made",
        _with_sample(_answers('error=pb_utils.TritonError("not for you")', '[pb_utils.Tensor("OUT", data * 2)]')),
        "inference-failed",
        "not for you",
        "find in execute what answers with this error; compare the samples with the inputs in config.pbtxt",
        step="inference",
    ),
    _v(
        "old-version",
        "an older version that is served, too, does not answer",
        _old_version,
        "inference-failed",
        "version 1: ValueError: of old … /1/model.py:11 in execute",
        "correct the model's code at … /1/model.py:11",
        step="inference",
    ),
    _v(
        "import-utf16",
        "`model.py` was saved as UTF-16",
        _utf16,
        "syntax-error",
        "source code string cannot contain null bytes",
        "save model.py, and what it imports, as UTF-8 text: a file has NUL bytes, as UTF-16 does",
    ),
    _v(
        "words-only",
        "the model raises an exception of its own with words of the system in it",
        written(initialize="raise ValueError('Permission denied: Too many open files in /dev/shm')"),
        "load-failed",
        "ValueError: Permission denied: Too many open files in /dev/shm … /1/model.py:8 in initialize",
        "correct the model's code at … /1/model.py:8",
    ),
    _v(
        "memory-limit",
        "the model asks for more memory than there is",
        written(initialize="self.weights = np.ones(1 << 50)"),
        "out-of-memory",
        "MemoryError: Unable to allocate 8.00 PiB",
        "give the server more memory, or reduce the model's",
    ),
    _v(
        "import-hangs",
        "an import never ends",
        written(_SLEEP),
        "load-timeout",
        "not loaded after 8 s … /1/model.py:1 in <module>",
        "find what blocks in … /1/model.py:1 in <module>, or allow more time: --timeout",
        options=_LIMITED,
    ),
    _v(
        "initialize-hangs",
        "`initialize` never ends",
        written(initialize=_SLEEP),
        "load-timeout",
        "not loaded after 8 s … /1/model.py:8 in initialize",
        "find what blocks in … /1/model.py:8 in initialize, or allow more time: --timeout",
        options=_LIMITED,
    ),
    _v(
        "execute-hangs",
        "`execute` never ends",
        written(execute=_SLEEP),
        "inference-timeout",
        "no response within 8 s … /1/model.py:11 in execute",
        "find what blocks in … /1/model.py:11 in execute, or allow more time: --timeout",
        options=_LIMITED,
        step="inference",
    ),
    _v(
        "asks-itself",
        "`execute` waits for an answer of the same model",
        written(
            initialize="self.name = args['model_name']",
            execute="pb_utils.InferenceRequest(model_name=self.name, inputs=requests[0].inputs(),"
            " requested_output_names=['OUT']).exec()",
        ),
        "inference-timeout",
        "no response within 8 s … /1/model.py:11 in execute",
        "a request to itself, or to a model that waits for it, is never answered",
        options=_LIMITED,
        step="inference",
    ),
    _v(
        "final-flag",
        "a decoupled model never sends its final flag",
        _no_final_flag,
        "inference-timeout",
        "1 response came within 8 s, and none with the final flag",
        "send the last response, or nothing, with flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL",
        options=_LIMITED,
        step="inference",
    ),
    _v(
        "finalize-hangs",
        "`finalize` never ends",
        written(finalize=_SLEEP),
        "shutdown",
        "after unloading all models the server still has process",
        "check its finalize, and the threads and processes that it starts",
        alone=True,
        step="unload",
    ),
    _v(
        "same-port",
        "two models use the same port",
        _port,
        "port-taken",
        "Address already in use … /1/model.py:8 in initialize",
        "let each instance use a free one, port 0",
        alone=True,
    ),
    _v(
        "same-file",
        "two models are in each other's way while they start",
        _lock,
        "together",
        "loaded at the same time, … fails: … BlockingIOError",
        "each loads alone, so they compete for memory",
        alone=True,
        step="together",
    ),
)
