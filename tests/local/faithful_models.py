"""Models of every kind, and what is sent to them: a server and a run without one must answer alike."""

import textwrap
from dataclasses import dataclass, field

import numpy as np

HEAD = "import asyncio, json, threading\nimport numpy as np\nimport triton_python_backend_utils as pb_utils\n\n"
PLAIN = """
input [ { name: "X" data_type: TYPE_FP32 dims: [ -1 ] } ]
output [ { name: "Y" data_type: TYPE_FP32 dims: [ -1 ] } ]
"""
TEXT = """
input [ { name: "X" data_type: TYPE_STRING dims: [ -1 ] } ]
output [ { name: "Y" data_type: TYPE_STRING dims: [ -1 ] } ]
"""


@dataclass(frozen=True)
class Sent:
    """Requests that are sent at the same time, or one whose responses are a stream; each as arguments of `request`."""

    requests: tuple
    is_stream: bool = False


@dataclass(frozen=True)
class Case:
    """A model: the body of its class, its configuration, what is sent to it, and what precedes its class."""

    body: str
    config: str = PLAIN
    sent: list = field(default_factory=lambda: [x(1.5, 2)])
    before: str = ""

    @property
    def source(self):
        return f"{HEAD}{self.before}\nclass TritonPythonModel:\n{textwrap.indent(textwrap.dedent(self.body), '    ')}"


def one(inputs, **options):
    return Sent(((inputs, options),))


def together(*sent):
    return Sent(tuple(request for each in sent for request in each.requests))


def stream(*values):
    return Sent(x(*values).requests, is_stream=True)


def x(*values, name="X", datatype="float32", shape=None, **parameters):
    """A request with one input."""
    array = np.array(values, datatype).reshape(shape or (len(values),))
    return one({name: array}, **({"parameters": parameters} if parameters else {}))


def ones(*shape, datatype=np.float32):
    return one({"X": np.ones(shape, datatype)})


def both(first, second):
    return one({**first.requests[0][0], **second.requests[0][0]})


def answering(expression):
    """execute() that answers each request with the value of an expression, as JSON."""
    return f"""
    def execute(self, requests):
        return [self.answer({expression}) for request in requests]

    def answer(self, value):
        text = json.dumps(value, default=str)
        return pb_utils.InferenceResponse([pb_utils.Tensor("Y", np.array([text], dtype=object))])

    def initialize(self, args):
        self.args = args
    """


DOUBLE = """
def execute(self, requests):
    return [self.double(pb_utils.get_input_tensor_by_name(request, "X").as_numpy()) for request in requests]

def double(self, array):
    return pb_utils.InferenceResponse([pb_utils.Tensor("Y", array * 2)])
"""
JSON_OUT = """
input [ { name: "X" data_type: TYPE_FP32 dims: [ -1 ] } ]
output [ { name: "Y" data_type: TYPE_STRING dims: [ 1 ] } ]
"""
ALL_OF_REQUEST = (
    "[request.request_id(), request.correlation_id(), request.flags(), request.timeout(), request.parameters(), "
    "sorted(request.requested_output_names()), sorted((t.name(), t.as_numpy().tolist()) for t in request.inputs())]"
)
OPTIONAL = """
input [
  { name: "X" data_type: TYPE_FP32 dims: [ 2 ] },
  { name: "Z" data_type: TYPE_STRING dims: [ -1 ] optional: true }
]
output [ { name: "Y" data_type: TYPE_STRING dims: [ 1 ] } ]
"""
CASES = {
    "default": Case(DOUBLE, sent=[x(1.5, 2), x(), x(1, datatype="int32"), x(1, shape=(1, 1)), x(1, name="Q")]),
    "nothing": Case(DOUBLE, sent=[one({})]),
    "batched": Case(
        DOUBLE,
        "max_batch_size: 2" + PLAIN,
        [x(1, 2, shape=(2, 1)), x(1), x(1, 2, 3, shape=(3, 1)), x(1, 2, shape=(1, 2))],
    ),
    "fp16": Case(DOUBLE, PLAIN.replace("FP32", "FP16"), [x(1.5, 65504.0, datatype="float16")]),
    "int8": Case(DOUBLE, PLAIN.replace("FP32", "INT8"), [x(1, -64, datatype="int8")]),
    "bytes": Case(
        """
        def execute(self, requests):
            arrays = [pb_utils.get_input_tensor_by_name(request, "X").as_numpy() for request in requests]
            return [pb_utils.InferenceResponse([pb_utils.Tensor("Y", array[::-1].copy())]) for array in arrays]
        """,
        TEXT,
        [x(b"a", "größe".encode(), b"\x00\xff", b"", datatype=object), x(datatype=object)],
    ),
    "reshaped": Case(
        DOUBLE,
        'max_batch_size: 2 input [ { name: "X" data_type: TYPE_FP32 dims: [ 2 ] reshape { shape: [ 1, 2 ] } } ]'
        'output [ { name: "Y" data_type: TYPE_FP32 dims: [ 2 ] reshape { shape: [ 1, 2 ] } } ]',
        [x(1, 2, shape=(1, 2)), x(1, 2, 3, 4, shape=(2, 2))],
    ),
    "optional": Case(
        answering(ALL_OF_REQUEST),
        OPTIONAL,
        [
            x(1, 2),
            both(x(1, 2), x(b"z", name="Z", datatype=object)),
            x(b"z", name="Z", datatype=object),
            x(1, 2, 3),
            one({}),
            both(x(1, 2), x(1, name="Q")),
        ],
    ),
    "named_output": Case(  # which JSON cannot represent
        DOUBLE, PLAIN.replace("FP32", "FP16"), [one({"X": np.ones(2, np.float16)}, outputs=["Y"])]
    ),
    "misshapen": Case(DOUBLE, PLAIN.rstrip(" }]\n") + " ] reshape { shape: [ 1, -1 ] } } ]", [x(1, 2, 3)]),
    "ragged_inputs": Case(
        answering(ALL_OF_REQUEST).replace("np.array([text]", "np.array([[text]]"),
        "max_batch_size: 2" + OPTIONAL.replace("[ 2 ] }", "[ -1 ] allow_ragged_batch: true optional: true }"),
        [
            ones(2, 1),
            both(ones(2, 3), x(b"z", b"z", name="Z", datatype=object, shape=(2, 1))),
            both(ones(1, 3), x(b"z", b"z", name="Z", datatype=object, shape=(2, 1))),
            ones(3, 1),
            one({}),
        ],
    ),
    "parameters": Case(
        answering(ALL_OF_REQUEST), JSON_OUT, [x(1, timeout=7, number=1, text="ä", yes=True, sequence_id=4), x(2)]
    ),
    "arguments": Case(answering("{k: v for k, v in self.args.items() if k != 'model_repository'}"), JSON_OUT),
    "grouped": Case(
        # Any instance can answer, and the order of maps is open.
        answering("json.dumps(json.loads(self.args['model_config']), sort_keys=True)"),
        "max_batch_size: 4 dynamic_batching { } instance_group [ { kind: KIND_CPU }, { name: 'b' count: 2 } ]"
        'parameters { key: "a" value { string_value: "b" } }'
        'metric_tags { key: "k" value: "v" } version_policy { all { } }' + JSON_OUT,
        [x(1, shape=(1, 1))],
    ),
    "completed": Case(
        """
        @staticmethod
        def auto_complete_config(config):
            config.set_max_batch_size(3)
            config.set_dynamic_batching()
            config.add_input({"name": "X", "data_type": "TYPE_FP32", "dims": [2]})
            config.add_output({"name": "Y", "data_type": "TYPE_STRING", "dims": [1]})
            return config
        """
        + textwrap.indent(answering("{k: v for k, v in self.args.items() if k != 'model_repository'}"), "    "),
        "",
        [x(1, 2, shape=(1, 2)), x(1, 2)],
    ),
    "extra": Case(
        """
        @staticmethod
        def auto_complete_config(config):
            config.as_dict()["unknown"] = 1
            return config
        """
        + textwrap.indent(answering("self.args['model_config']"), "    "),
        JSON_OUT,
    ),
    "more": Case(
        """
        @staticmethod
        def auto_complete_config(config):
            config.as_dict()["parameters"]["added"] = {"string_value": "here"}
            config.as_dict()["input"][0]["dims"] = [3]
            return config
        """
        + textwrap.indent(answering("self.args['model_config']"), "    "),
        JSON_OUT,
        [x(1, 2, 3), x(1)],
    ),
    "raises": Case("def execute(self, requests):\n    raise ValueError('größe')"),
    "exits": Case("def execute(self, requests):\n    raise SystemExit(3)"),
    "wrong_type": Case("def execute(self, requests):\n    return 7"),
    "wrong_number": Case("def execute(self, requests):\n    return []"),
    "executeless": Case("pass"),
    "error": Case(
        """
        def execute(self, requests):
            error = pb_utils.TritonError("not so", pb_utils.TritonError.INVALID_ARG)
            return [pb_utils.InferenceResponse([], error) for request in requests]
        """
    ),
    "undeclared": Case(
        """
        def execute(self, requests):
            outputs = [pb_utils.Tensor("W", np.zeros(1)), pb_utils.Tensor("Y", np.zeros((2, 2), dtype=np.int32))]
            return [pb_utils.InferenceResponse(outputs) for request in requests]
        """
    ),
    "only_undeclared": Case(
        """
        def execute(self, requests):
            return [pb_utils.InferenceResponse([pb_utils.Tensor("W", np.zeros(1))]) for request in requests]
        """
    ),
    "without_outputs": Case("def execute(self, requests):\n    return [pb_utils.InferenceResponse([])]"),
    "async": Case(
        """
        async def execute(self, requests):
            values = await asyncio.gather(*[asyncio.sleep(0.001 * (3 - n), n) for n in range(3)])
            return [pb_utils.InferenceResponse([pb_utils.Tensor("Y", np.array(values, dtype=np.float32))])]
        """
    ),
    "sender": Case(
        """
        def execute(self, requests):
            for request in requests:
                threading.Thread(target=self.later, args=(request.get_response_sender(),)).start()
            return None

        def later(self, sender):
            tensor = pb_utils.Tensor("Y", np.array([3], dtype=np.float32))
            sender.send(pb_utils.InferenceResponse([tensor]), flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
        """
    ),
    "asking": Case(
        """
        def execute(self, requests):
            return [self.ask(request) for request in requests]

        def ask(self, request):
            found = [self.text(name, request) for name in ("default", "nobody", "stream")]
            found.append(self.text("default", request, model_version=9))
            found.append([self.values(r) for r in self.request("stream", request).exec(decoupled=True)])
            text = json.dumps(found)
            return pb_utils.InferenceResponse([pb_utils.Tensor("Y", np.array([text], dtype=object))])

        def request(self, name, request, **options):
            inputs = request.inputs()
            return pb_utils.InferenceRequest(model_name=name, inputs=inputs, requested_output_names=["Y"], **options)

        def text(self, name, request, **options):
            response = self.request(name, request, **options).exec()
            return "failed" if response.has_error() else self.values(response)

        def values(self, response):
            return [tensor.as_numpy().tolist() for tensor in response.output_tensors()]
        """,
        JSON_OUT,
    ),
    "metrics": Case(
        """
        def initialize(self, args):
            self.families = [
                pb_utils.MetricFamily(name=f"m_{kind}", description=kind, kind=getattr(pb_utils.MetricFamily, kind))
                for kind in ("COUNTER", "GAUGE")
            ]
            self.metrics = [family.Metric(labels={"a": "b"}) for family in self.families]

        def execute(self, requests):
            found = [self.attempt(metric, name) for metric in self.metrics for name in ("increment", "set", "observe")]
            text = json.dumps([found, [metric.value() for metric in self.metrics]])
            return [pb_utils.InferenceResponse([pb_utils.Tensor("Y", np.array([text], dtype=object))])]

        def attempt(self, metric, name):
            errors = []
            for value in (2.5, -1):
                try:
                    getattr(metric, name)(value)
                except Exception:  # the words differ between a server and a run without one
                    errors.append(name)
            return errors
        """,
        JSON_OUT,
    ),
}

# Each sends any number of responses.
STREAMS = {
    "stream": """
        def execute(self, requests):
            for request in requests:
                sender = request.get_response_sender()
                for number in range(3):
                    sender.send(pb_utils.InferenceResponse([pb_utils.Tensor("Y", np.full(1, number, np.float32))]))
                sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
        """,
    "stream_of_one": """
        def execute(self, requests):
            for request in requests:
                tensor = pb_utils.Tensor("Y", np.array([3], dtype=np.float32))
                request.get_response_sender().send(pb_utils.InferenceResponse([tensor]), flags=1)
        """,
    "stream_that_raises": """
        def execute(self, requests):
            for request in requests:
                tensor = pb_utils.Tensor("Y", np.array([3], dtype=np.float32))
                request.get_response_sender().send(pb_utils.InferenceResponse([tensor]))
            raise ValueError("in the middle")
        """,
    "stream_of_nothing": """
        def execute(self, requests):
            for request in requests:
                request.get_response_sender().send(flags=1)
        """,
    "stream_that_returns": "def execute(self, requests):\n    return []",
}
DECOUPLED = "model_transaction_policy { decoupled: true }" + PLAIN
