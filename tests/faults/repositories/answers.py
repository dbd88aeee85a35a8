"""Code of models that load, and then answer nothing, an error, or something else than was promised."""

from tests.faults.repositories.broken import Site
from tests.faults.repositories.code import CRASH, LIMITED, MODEL, SLEEP, by_verify, written


def _answers(new, old="data * 2"):
    def change(site: Site):
        text = MODEL.format("", "pass", "pass", "pass")
        assert old in text
        site.code(text.replace(old, new))

    return change


def _with_sample(change):
    """With a sample: what a model refuses that was made up says nothing about the model."""

    def changed(site: Site):
        change(site)
        site.write("envpack/smoke.json", '{"data": [{"IN": [1]}]}')

    return changed


def _generator(site: Site):
    """The requests are answered one by one, as if the model were decoupled."""
    text = MODEL.format("", "pass", "pass", "pass")
    site.code(text.replace("answers.append(", "yield (").replace("        return answers\n", ""))


def _no_final_flag(site: Site):
    """A decoupled model that keeps its response senders, and ends no stream."""
    sends = (
        "sender = request.get_response_sender()\n            self.senders = [*getattr(self, 'senders', ()), sender]\n"
    )
    text = MODEL.format("", "pass", "pass", "pass")
    text = text.replace("answers.append(", f"{sends}            sender.send(").replace("        return answers\n", "")
    site.code(text)
    site.append("model_transaction_policy { decoupled: true }\n")


def _old_version(site: Site):
    site.write("2/model.py", (site.model / "1/model.py").read_text())
    written(execute="raise ValueError('of old')")(site)
    site.append("version_policy: { all { } }\n")


ENTRIES = (
    by_verify(
        "execute-missing",
        "the model has no `execute`",
        lambda s: s.code("class TritonPythonModel:\n    def initialize(self, args):\n        pass\n"),
        "interface-broken",
        "does not implement `execute` method",
        "define a class TritonPythonModel in model.py with the method execute(self, requests)",
        step="inference",
    ),
    by_verify(
        "execute-raises",
        "`execute` raises",
        _with_sample(written(execute="raise ValueError('not today')")),
        "inference-failed",
        "ValueError: not today … /1/model.py:11 in execute",
        "correct the model's code at … /1/model.py:11",
        step="inference",
    ),
    by_verify(
        "execute-crash",
        "the process crashes in `execute`",
        written(execute=CRASH),
        "stub-died",
        'was killed by signal 11 (SIGSEGV) at model.py:11 in execute … /1/model.py", line 11 in execute',
        "find what crashes in native code that model.py:11 calls",
        step="inference",
    ),
    by_verify(
        "execute-exits",
        "`execute` ends the process",
        written(execute="__import__('os')._exit(3)"),
        "stub-died",
        "the model's process … exited with status 3",
        "find what ends the process with status 3: os._exit or exit()",
        step="inference",
    ),
    by_verify(
        "answer-none",
        "`execute` returns nothing",
        written(execute="return None"),
        "interface-broken",
        "has returned from execute without a final response, and has kept neither a request nor a response sender",
        "return a list with one InferenceResponse per request from execute, in the order of the requests",
        step="inference",
    ),
    by_verify(
        "answer-strings",
        "an output holds strings of NumPy's own type",
        _answers("np.array(['a'])"),
        "bad-output",
        "NumPy dtype is not supported. Tensor 'OUT' has the dtype <U1",
        "give OUT its strings as an array of objects: .astype(object)",
        step="inference",
    ),
    by_verify(
        "import-pip",
        "the model imports pip when it runs",
        written(execute="import pip"),
        "module-missing",
        "ModuleNotFoundError: No module named 'pip'",
        "the environment has no pip: add what the model installs when it runs to its requirements instead",
        step="inference",
    ),
    by_verify(
        "answer-count",
        "`execute` returns too few responses",
        written(execute="return []"),
        "interface-broken",
        "InferenceRequest(s) size is:1, and InferenceResponse(s) size is:0",
        "return a list with one InferenceResponse per request from execute, in the order of the requests",
        step="inference",
    ),
    by_verify(
        "answer-no-response",
        "`execute` returns tensors in place of responses",
        written(execute="return [1 for _ in requests]"),
        "interface-broken",
        "Expected an 'InferenceResponse' object … found type '<class 'int'>'",
        "return a list with one InferenceResponse per request from execute, in the order of the requests",
        step="inference",
    ),
    by_verify(
        "answer-dtype",
        "an output has another type than promised",
        _answers("(data * 2).astype(np.float64)"),
        "bad-output",
        "the output OUT is FP64, not FP32",
        "return what config.pbtxt declares, or correct config.pbtxt",
        step="inference",
    ),
    by_verify(
        "answer-name",
        "an output has another name than promised",
        _answers('"RESULT"', '"OUT"'),
        "bad-output",
        "the output OUT is missing: the response contains no output of a declared name",
        "return what config.pbtxt declares, or correct config.pbtxt",
        step="inference",
    ),
    by_verify(
        "answer-undeclared",
        "the configuration declares no output",
        lambda site: site.configure('output [ { name: "OUT" data_type: TYPE_FP32 dims: [ -1 ] } ]', ""),
        "bad-output",
        "unexpected inference output 'OUT' for model 'answer_undeclared'",
        "declare the output OUT in config.pbtxt, or in auto_complete_config",
        step="inference",
    ),
    by_verify(
        "answer-missing",
        "a response without outputs",
        _answers("[]", '[pb_utils.Tensor("OUT", data * 2)]'),
        "bad-output",
        "the output OUT is missing: the response contains no output of a declared name",
        "return what config.pbtxt declares, or correct config.pbtxt",
        step="inference",
    ),
    by_verify(
        "answer-object",
        "an output is an array of Python objects",
        _answers("np.array([[{}]], dtype=object)"),
        "bad-output",
        "the output OUT is BYTES, not FP32",
        "return what config.pbtxt declares, or correct config.pbtxt",
        step="inference",
    ),
    by_verify(
        "execute-generator",
        "`execute` yields its responses",
        _generator,
        "interface-broken",
        "Expected a list in the execute return, found type '<class 'generator'>'",
        "return a list with one InferenceResponse per request from execute, in the order of the requests",
        step="inference",
    ),
    by_verify(
        "answer-error",
        "the response is an error that the model made",
        _with_sample(_answers('error=pb_utils.TritonError("not for you")', '[pb_utils.Tensor("OUT", data * 2)]')),
        "inference-failed",
        "not for you",
        "find in execute what answers with this error; compare the samples with the inputs in config.pbtxt",
        step="inference",
    ),
    by_verify(
        "old-version",
        "an older version that is served, too, does not answer",
        _old_version,
        "inference-failed",
        "version 1: ValueError: of old … /1/model.py:11 in execute",
        "correct the model's code at … /1/model.py:11",
        step="inference",
    ),
    by_verify(
        "execute-hangs",
        "`execute` never ends",
        written(execute=SLEEP),
        "inference-timeout",
        "no response within 8 s … /1/model.py:11 in execute",
        "find what blocks in … /1/model.py:11 in execute, or allow more time: --timeout",
        options=LIMITED,
        step="inference",
    ),
    by_verify(
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
        options=LIMITED,
        step="inference",
    ),
    by_verify(
        "final-flag",
        "a decoupled model never sends its final flag",
        _no_final_flag,
        "inference-timeout",
        "1 response came within 8 s, and none with the final flag",
        "send the last response, or nothing, with flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL",
        options=LIMITED,
        step="inference",
    ),
)
