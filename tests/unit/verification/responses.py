"""A model of two numbers, and a client that gives responses in turn."""

from envpack.server.kserve import IndexEntry, RequestError
from envpack.server.tensors import Tensor, read_served_config
from envpack.verification.requests import SmokeRequest

SERVED = {
    "input": [{"name": "IN", "data_type": "TYPE_FP32", "dims": [2]}],
    "output": [{"name": "OUT", "data_type": "TYPE_FP32", "dims": [-1]}],
}
CONFIG = read_served_config(SERVED)
STREAMED = read_served_config({**SERVED, "model_transaction_policy": {"decoupled": True}})
SENT = "sent with every input: "
NO_OUTPUT = "the response contains no output of a declared name"
REQUEST = SmokeRequest("with every input", (Tensor("IN", "FP32", (2,), (1.0, 1.0)),), {"sequence_id": 1})


def output(*data, name="OUT", datatype="FP32", shape=None):
    return (Tensor(name, datatype, shape or (len(data),), data),)


class Client:
    """Responds to requests in binary form with ``responses``, in turn, and to JSON with ``as_json``.

    Each response is a tuple of tensors, or the message of an error.
    """

    def __init__(self, *responses, as_json=None):
        self._responses, self._as_json, self.sent, self.timeout = list(responses), as_json, [], 30

    def infer(self, model, inputs, *, binary=None, parameters=None):
        self.sent.append((model, inputs, binary, parameters))
        if binary is False and self._as_json is not None:
            return self._as_json
        response = self._responses.pop(0) if len(self._responses) > 1 else self._responses[0]
        if isinstance(response, str):
            raise RequestError(response, status=500)
        return response

    def next_stream(self):
        return self._responses.pop(0) if len(self._responses) > 1 else self._responses[0]

    def load(self, model, *, timeout):
        pass

    def index(self):
        return (IndexEntry("m", "READY", ""),)

    def config(self, model):
        return SERVED
