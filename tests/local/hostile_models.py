"""Models and requests that go wrong: a run without a server has the same outcome as the server, in kind and value."""

import textwrap

import numpy as np

from tests.local.faithful_models import (
    ALL_OF_REQUEST,
    DECOUPLED,
    DOUBLE,
    JSON_OUT,
    PLAIN,
    STREAMS,
    Case,
    answering,
    one,
    ones,
    stream,
    together,
    x,
)

ONE = {"X": np.array([1.5], np.float32)}
ANSWER = "return [pb_utils.InferenceResponse([pb_utils.Tensor('Y', np.array([1], np.float32))]) for q in requests]"
BATCHED = f"max_batch_size: 4 {PLAIN}"
JOINED = "dynamic_batching { max_queue_delay_microseconds: 200000 }"


def with_parameters(*values):
    return [one(ONE, parameters=value) for value in values]


def executing(body, config=PLAIN, sent=2):
    """A model whose execute() is these lines."""
    return Case(
        f"def execute(self, requests):\n{textwrap.indent(textwrap.dedent(body), '    ')}", config, [x(1)] * sent
    )


def initializing(body, sent=1):
    lines = textwrap.indent(textwrap.dedent(body), "    ")
    return Case(f"def initialize(self, args):\n{lines}\ndef execute(self, requests):\n    {ANSWER}", sent=[x(1)] * sent)


def importing(before):
    return Case("pass", sent=[x(1)], before=before)


def asking(expression):
    """A model that answers with the value of an expression, in which I(name, …) is a request and V(response) its
    values.
    """
    body = f"""
        X = pb_utils.Tensor("X", np.array([3], np.float32))
        def I(name, inputs=(X,), outputs=("Y",), **options):
            return pb_utils.InferenceRequest(
                model_name=name, inputs=list(inputs), requested_output_names=list(outputs), **options
            )
        def V(response):
            return "failed" if response.has_error() else [t.as_numpy().tolist() for t in response.output_tensors()]
        try:
            found = {expression}
        except BaseException as error:
            found = type(error).__name__
        text = json.dumps(found, default=str)
        return [pb_utils.InferenceResponse([pb_utils.Tensor("Y", np.array([text], dtype=object))])]
    """
    return executing(body, JSON_OUT, sent=1)


def creating(family, label="a", value="b"):
    kind = "pb_utils.MetricFamily.COUNTER"
    made = f"pb_utils.MetricFamily(name={family!r}, description='', kind={kind})"
    return asking(f"{made}.Metric(labels={{{label!r}: {value!r}}}).value()")


def observing(family, buckets):
    made = f"pb_utils.MetricFamily(name={family!r}, description='', kind=pb_utils.MetricFamily.HISTOGRAM)"
    return asking(f"{made}.Metric(buckets={buckets!r}).observe(1)")


# What only the parameters of a request, its id and its sequence make of it.
PARAMETERS = Case(
    answering(ALL_OF_REQUEST),
    JSON_OUT,
    [
        *(one(ONE, id=text) for text in ("", "abc", "größe", "\udc80", "a" * 5000, "\x00a", '"\\')),
        *with_parameters(
            *({"a": value} for value in (1, True, "x", 1.5, None, [1], {"b": 1}, "", "\udc80", "c\x00d")),
            *({"a": value} for value in (2**63 - 1, -(2**63), 2**63, -(2**63) - 1)),
            *({"a": value} for value in (float("inf"), 1e16, 1e20, 1e21, 1e-7, 1.5e-5, 123456.789, 1e300, -0.0)),
            *({name: 1} for name in ("", "ä", "a\x00b", "triton_x", "Triton_x", "binary_data_size")),
            *({name: True} for name in ("triton_enable_empty_final_response", "binary_data_output")),
            *({"timeout": value} for value in (7, "7", "x", -1, 2**63, 2**64 - 1, 2**64, 2**65, 1.5, True, None, 0)),
            *({"priority": value} for value in (0, 1, -1, "1", 2**65, 1.5, True)),
            *({"sequence_id": value} for value in (4, "four", -1, 2**64, 1.5, True, "", None)),
            *({"sequence_start": value} for value in (True, 1, "x")),
            {"sequence_end": True},
            {"sequence_id": 3, "sequence_start": True, "sequence_end": True},
        ),
        *(one(ONE, sequence_id=number, sequence_start=start) for number in (5, "five") for start in (False, True)),
        *(one(ONE, sequence_id=number) for number in (-5, 2**64)),
    ],
)
SHAPES = {
    "shaped": Case(
        DOUBLE,
        sent=[
            one({"X": np.zeros(0, np.float32)}),
            one({**ONE, "Q": np.zeros(1, np.float32)}),
            *(one(ONE, outputs=outputs) for outputs in (["Y"], ["Z"], ["Y", "Z"])),
        ],
    ),
    "two_inputs": Case(
        answering("[[(t.name(), t.as_numpy().tolist()) for t in request.inputs()]]").replace("[text]", "[[text]]"),
        BATCHED.replace("[ {", '[ { name: "A" data_type: TYPE_FP32 dims: [ 2 ] }, {', 1)
        .replace("FP32 dims: [ -1 ] } ]\n", "STRING dims: [ 1 ] } ]\n")
        .replace("TYPE_STRING", "TYPE_FP32", 1),
        [
            one({"A": np.ones(a, np.float32), "X": np.ones(b, np.float32)})
            for a, b in (((1, 2), (1, 1)), ((2, 2), (1, 1)), ((1, 3), (1, 1)), ((5, 2), (5, 1)), ((0, 2), (0, 1)))
        ],
    ),
    "zero_batch": Case(
        DOUBLE, BATCHED.replace("-1", "1"), [ones(0, 1), ones(1), ones(1, 1, 1), ones(), ones(1, 1, datatype=np.int32)]
    ),
}
COUNTS = """
def execute(self, requests):
    return [self.answer(request, len(requests)) for request in requests]

def answer(self, request, count):
    shape = request.inputs()[0].as_numpy().shape
    return pb_utils.InferenceResponse([pb_utils.Tensor("Y", np.full(shape, count, np.float32))])
"""
TWO, FOUR = together(*[ones(1, 2)] * 2), together(*[ones(1, 2)] * 4)
REFUSED_TOO = [
    together(ones(1, 2), ones(5, 2), ones(1, 2)),
    together(ones(1, 2), ones(1, 2, datatype=np.int32)),
    together(ones(1, 2), one({"X": np.ones((1, 2), np.float32)}, parameters={"timeout": -1})),
]
# The outputs say how many requests each call of execute() had.
BATCHES = {
    "joined": Case(COUNTS, JOINED + BATCHED, [TWO, FOUR, together(*[ones(2, 2)] * 2), *REFUSED_TOO]),
    "preferred": Case(COUNTS, JOINED.replace("{", "{ preferred_batch_size: [ 2 ]") + BATCHED, [TWO]),
    "not_joined": Case(COUNTS, BATCHED, [TWO, FOUR, *REFUSED_TOO]),
    "not_batched": Case(COUNTS, JOINED + PLAIN, [together(*[ones(2)] * 2)]),
    "one_by_one": Case(COUNTS, f"max_batch_size: 1 {JOINED} {PLAIN}", [TWO]),
    "ragged": Case(
        COUNTS,
        JOINED + BATCHED.replace("[ -1 ] }", "[ -1 ] allow_ragged_batch: true }", 1),
        [together(ones(1, 2), ones(1, 3))],
    ),
}
FAILING = {
    "escapes": executing("raise ValueError('größe\\x1b[31m')"),
    "interrupts": executing("raise KeyboardInterrupt()"),
    "nothing_returned": executing("return None"),
    "too_many": executing(f"{ANSWER} * 2"),
    "no_list": executing("return 5"),
    "no_outputs": executing(ANSWER, PLAIN.partition("output")[0]),
    "unknown_output": executing(ANSWER.replace("'Y'", "'Q'")),
    "another_type": executing(ANSWER.replace("float32", "int32")),
    "empty_output": executing(ANSWER.replace("[1]", "[]")),
    "output_twice": executing(
        ANSWER.replace("[pb_utils.Tensor", "[pb_utils.Tensor('Y', np.zeros(1)), pb_utils.Tensor")
    ),
    "another_shape": executing(ANSWER.replace("[1]", "[[1, 2], [3, 4]]")),
    "infinite": executing(ANSWER.replace("[1]", "[np.inf, -np.inf]")),
    "error_with_outputs": executing(ANSWER.replace(")]) for", ")], pb_utils.TritonError('bad')) for")),
    "error_without_text": executing(
        "return [pb_utils.InferenceResponse([], pb_utils.TritonError('')) for q in requests]"
    ),
    "sends_an_error": executing(
        "error = pb_utils.TritonError('sent')\n"
        "requests[0].get_response_sender().send(pb_utils.InferenceResponse(error=error), flags=1)"
    ),
    "sends_twice": executing(
        """
        sender = requests[0].get_response_sender()
        for flags in (0, 1):
            try:
                sender.send(pb_utils.InferenceResponse([pb_utils.Tensor('Y', np.zeros(1, np.float32))]), flags=flags)
            except Exception:  # the second one is refused; what the client gets is compared
                pass
        """
    ),
    "parameters_of_response": executing(ANSWER.replace(")]) for", ")], parameters={'a': 1}) for")),
    "cannot_import": importing("import no_such_module\n"),
    "import_raises": importing("raise ValueError('import')\n"),
    "import_breaks": importing("def x(:\n"),
    "cannot_initialize": initializing("raise ValueError('no')"),
    "initialize_exits": initializing("raise SystemExit(4)"),
    "own_name": executing(
        "found = [__name__, type(self).__module__, type(self).__qualname__, __file__.rpartition('/')[2]]\n"
        "return [pb_utils.InferenceResponse([pb_utils.Tensor('Y', np.array([json.dumps(found)], dtype=object))])]",
        JSON_OUT,
    ),
}
# The process of the model ends, and is there again for the next request.
DEADLY = {
    "exits_at_once": executing("import os\nos._exit(5)", sent=3),
    "crashes": executing("import ctypes\nctypes.string_at(0)"),
    "aborts": executing("import os\nos.abort()"),
    "is_killed": executing("import os, signal\nos.kill(os.getpid(), signal.SIGKILL)"),
    "exits_in_import": importing("import os\nos._exit(9)\n"),
    "crashes_in_import": importing("import ctypes\nctypes.string_at(0)\n"),
    "exits_in_initialize": initializing("import os\nos._exit(6)"),
    "crashes_in_initialize": initializing("import ctypes\nctypes.string_at(0)"),
    "closes_descriptors": executing(f"import os\nos.closerange(3, 1000)\n{ANSWER}", sent=3),
    "dies_every_second_time": executing(
        f"""
        import os
        first = not os.path.exists('.died')
        open('.died', 'w').close() if first else os.remove('.died')
        if first:
            os._exit(7)
        {ANSWER}
        """,
        sent=4,
    ),
}
ASKING = {
    "asks": asking("V(I('double').exec())"),
    "asks_a_stream": asking("[V(response) for response in I('streams').exec(decoupled=True)]"),
    "asks_a_stream_for_one": asking("V(I('streams').exec())"),
    "asks_nobody": asking("V(I('no' + 'body').exec())"),
    "asks_versions": asking("[V(I('double', model_version=number).exec()) for number in (-1, 1, 2)]"),
    "asks_wrongly": asking("V(I('double', [pb_utils.Tensor('X', np.array([3], np.int32))]).exec())"),
    "asks_with_nothing": asking("V(I('double', []).exec())"),
    "asks_for_another_output": asking("V(I('double', outputs=['Q']).exec())"),
    "asks_with_parameters": asking("V(I('parameters', parameters={'a': 1, 'b': True, 'c': 'x'}).exec())"),
    "asks_with_kept_parameters": asking("V(I('parameters', parameters={'timeout': 5, 'triton_a': 1}).exec())"),
    "asks_in_a_sequence": asking("V(I('parameters', timeout=7, request_id='me', correlation_id=9, flags=1).exec())"),
    "asks_one_that_raises": asking("V(I('escapes').exec())"),
    "asks_for_the_code_of_an_error": asking("str(I('invalid').exec().error().code())"),
    "asks_one_that_dies": asking("[V(I('exits_at_once').exec()) for _ in range(2)]"),
    "asks_one_that_cannot_start": asking("V(I('cannot_initialize').exec())"),
    "asks_for_many_streams": asking(
        "[V(I('double').exec()) for _ in [[next(iter(g)) for g in gs] for gs in "
        "[[iter(I('streams').exec(decoupled=True)) for _ in range(40)]]]]"
    ),
    "asks_who_is_ready": asking(
        "[pb_utils.is_model_ready(*who) for who in (('double',), ('double', '1'), ('double', '2'), ('no' + 'body',))]"
    ),
    **{
        f"asks_for_version_{number}": asking(f"pb_utils.is_model_ready('double', {version!r})")
        for number, version in enumerate(["x", "-1", "1.0", " 1", "01", "9" * 20])
    },
    "unloads_and_loads": asking(
        "[pb_utils.unload_model('unloaded'), __import__('time').sleep(1.5), pb_utils.is_model_ready('unloaded'), "
        "V(I('unloaded').exec()), pb_utils.load_model('unloaded'), pb_utils.is_model_ready('unloaded'), "
        "V(I('unloaded').exec())]"
    ),
    "loads_nobody": asking("pb_utils.load_model('no' + 'body')"),
    "counts": creating("right_name"),
    **{
        f"counts_wrongly_{number}": creating(*names)
        for number, names in enumerate(
            [
                ("1bad",),
                ("with space",),
                ("",),
                ("ok-d",),
                ("ok:c", "a b"),
                ("ok_a", "1a"),
                ("ok_b", "__a"),
                ("ok_e", "a", 1),
            ]
        )
    },
    **{
        f"observes_{number}": observing(f"observed_{number}", buckets)
        for number, buckets in enumerate(
            [[], [1.0], [0.5, 1.0], [1.0, 1.0], [1.0, 0.5], [1, float("inf")], [float("nan"), 1.0]]
        )
    },
}
HELPERS = {
    "double": Case(DOUBLE),
    "unloaded": Case(DOUBLE),
    "invalid": executing("return [pb_utils.InferenceResponse([], pb_utils.TritonError('so', 3)) for q in requests]"),
    "streams": Case(STREAMS["stream"], DECOUPLED, [stream(1), x(1)]),
}
HOSTILE = {"parameters": PARAMETERS, **HELPERS, **SHAPES, **BATCHES, **FAILING, **DEADLY, **ASKING}
