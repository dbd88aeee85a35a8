"""Pairs of models: one is right for one client and wrong for many, its twin is right for all."""

from dataclasses import dataclass

BATCHES = "max_batch_size: 8\ndynamic_batching { }\n"
STREAMS = "max_batch_size: 8\nmodel_transaction_policy { decoupled: true }\n"
_CODE = """import numpy as np
import triton_python_backend_utils as pb_utils


def given(request):
    return pb_utils.get_input_tensor_by_name(request, "X").as_numpy()


def reply(array):
    return pb_utils.InferenceResponse([pb_utils.Tensor("Y", np.ascontiguousarray(array, dtype=np.float32))])


class TritonPythonModel:
    kept = None
    shared = np.zeros((8, 3), dtype=np.float32)

    def initialize(self, args):
        self.name = args["model_instance_name"]
        self.repository = args["model_repository"]
        self.unfinished = {}

"""
_TENSORS = """input [ { name: "X" data_type: TYPE_FP32 dims: [ 3 ] } ]
output [ { name: "Y" data_type: TYPE_FP32 dims: [ 3 ] } ]
"""
_RAGGED = """input [ { name: "X" data_type: TYPE_FP32 dims: [ -1 ] allow_ragged_batch: true } ]
output [ { name: "Y" data_type: TYPE_FP32 dims: [ 1 ] } ]
"""
_TEXT = """input [ { name: "X" data_type: TYPE_STRING dims: [ 1 ] } ]
output [ { name: "Y" data_type: TYPE_FP32 dims: [ 1 ] } ]
"""


@dataclass(frozen=True)
class Pair:
    """The method execute of the wrong and of the right model, and what their configuration has besides tensors."""

    wrong: str
    right: str
    config: str = BATCHES
    tensors: str = _TENSORS
    says: str = "clients sent at once"  # in the reason that the wrong one is refused for


def model_file(execute):
    """The text of a model.py with this method."""
    return _CODE + "".join(f"    {line}\n" if line else "\n" for line in execute.strip().splitlines())


def config_file(pair, environment):
    """The text of a config.pbtxt."""
    path = f'parameters {{ key: "EXECUTION_ENV_PATH" value {{ string_value: "{environment}" }} }}\n'
    return f'backend: "python"\n{pair.tensors}{pair.config}{path}'


EACH = """
def execute(self, requests):
    return [reply(given(request) * 2) for request in requests]
"""
SPLIT = """
def execute(self, requests):
    doubled = np.concatenate([given(request) for request in requests]) * 2
    ends = np.cumsum([len(given(request)) for request in requests])
    return [reply(part) for part in np.split(doubled, ends[:-1])]
"""
SUM_OF_AN_ID = """
def execute(self, requests):
    responses = []
    for request in requests:
        key = request.correlation_id()
        total = self.unfinished[key] = self.unfinished.get(key, 0) + given(request)
        responses.append(reply(total))
"""
SUM_FROM = """
def execute(self, requests):
    responses = []
    for request in requests:
        key, flags = request.correlation_id(), request.flags()
        total = given(request) + (0 if {begins} else self.unfinished[key])
        self.unfinished[key] = total
        responses.append(reply(total))
    return responses
"""
PAIRS = {
    "one_response_for_all": Pair(
        """
def execute(self, requests):
    return [reply(np.concatenate([given(request) for request in requests]) * 2)]
""",
        SPLIT,
    ),
    "equal_parts": Pair(
        """
def execute(self, requests):
    doubled = np.concatenate([given(request) for request in requests]) * 2
    return [reply(part) for part in np.array_split(doubled, len(requests))]
""",
        SPLIT,
    ),
    "padding_of_ragged_inputs": Pair(
        """
def execute(self, requests):
    rows = [given(request) for request in requests]
    length = max(row.shape[1] for row in rows)
    padded = [np.pad(row, ((0, 0), (0, length - row.shape[1]))) for row in rows]
    return [reply(row.mean(axis=1, keepdims=True)) for row in padded]
""",
        """
def execute(self, requests):
    return [reply(given(request).mean(axis=1, keepdims=True)) for request in requests]
""",
        tensors=_RAGGED,
    ),
    "padding_of_texts": Pair(
        """
def execute(self, requests):
    texts = [[text.decode() for text in given(request).ravel()] for request in requests]
    length = max(len(text) for group in texts for text in group)
    codes = [[[ord(character) for character in text.ljust(length)] for text in group] for group in texts]
    return [reply(np.mean(group, axis=1, keepdims=True)) for group in codes]
""",
        """
def execute(self, requests):
    texts = [[text.decode() for text in given(request).ravel()] for request in requests]
    codes = [[[ord(character) for character in text] for text in group] for group in texts]
    return [reply([[np.mean(text)] for text in group]) for group in codes]
""",
        tensors=_TEXT,
    ),
    "response_of_another_request": Pair(
        """
def execute(self, requests):
    return [reply(given(requests[-1]) * 2) for _ in requests]
""",
        EACH,
    ),
    "state_in_self": Pair(
        """
def execute(self, requests):
    for request in requests:
        self.kept = given(request) * 2
    return [reply(self.kept) for _ in requests]
""",
        """
def execute(self, requests):
    self.kept = [given(request) * 2 for request in requests]
    return [reply(array) for array in self.kept]
""",
    ),
    "wrong_order": Pair(
        """
def execute(self, requests):
    return [reply(given(request) * 2) for request in reversed(requests)]
""",
        """
def execute(self, requests):
    return [reply(given(request) * 2) for request in reversed(requests)][::-1]
""",
    ),
    "shared_buffer": Pair(
        """
def execute(self, requests):
    responses = []
    for request in requests:
        rows = given(request)
        self.shared[: len(rows)] = rows * 2
        responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("Y", self.shared[: len(rows)])]))
    return responses
""",
        """
def execute(self, requests):
    responses = []
    for request in requests:
        rows = given(request)
        self.shared[: len(rows)] = rows * 2
        responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("Y", self.shared[: len(rows)].copy())]))
    return responses
""",
    ),
    "late_mutation_of_an_input": Pair(
        """
def execute(self, requests):
    total = given(requests[0])
    for request in requests[1:]:
        total += given(request)[:1]
    return [reply(given(request) * 2) for request in requests]
""",
        """
def execute(self, requests):
    total = given(requests[0]).copy()
    for request in requests[1:]:
        total += given(request)[:1]
    return [reply(given(request) * 2) for request in requests]
""",
    ),
    "exception_for_one_request": Pair(
        """
def execute(self, requests):
    if any(given(request)[0, 0] == 5 for request in requests):
        raise ValueError("five is not allowed")
    return [reply(given(request) * 2) for request in requests]
""",
        """
def execute(self, requests):
    responses = []
    for request in requests:
        if given(request)[0, 0] == 5:
            error = pb_utils.TritonError("five is not allowed")
            responses.append(pb_utils.InferenceResponse([], error))
        else:
            responses.append(reply(given(request) * 2))
    return responses
""",
    ),
    "gather_in_the_order_of_completion": Pair(
        """
async def execute(self, requests):
    import asyncio

    async def answer(place, request):
        await asyncio.sleep(0.001 * (len(requests) - place))
        return reply(given(request) * 2)

    tasks = [answer(place, request) for place, request in enumerate(requests)]
    return [await done for done in asyncio.as_completed(tasks)]
""",
        """
async def execute(self, requests):
    import asyncio

    async def answer(place, request):
        await asyncio.sleep(0.001 * (len(requests) - place))
        return reply(given(request) * 2)

    return list(await asyncio.gather(*(answer(place, request) for place, request in enumerate(requests))))
""",
    ),
    "non_contiguous_view": Pair(
        """
def execute(self, requests):
    columns = np.stack([given(request)[0] for request in requests], axis=1) * 2
    return [reply(row.reshape(1, 3)) for row in columns.reshape(len(requests), 3)]
""",
        """
def execute(self, requests):
    columns = np.stack([given(request)[0] for request in requests], axis=1) * 2
    return [reply(columns[:, place].reshape(1, 3)) for place in range(len(requests))]
""",
    ),
    "cache_with_a_wrong_key": Pair(
        """
def execute(self, requests):
    cache = {}
    return [reply(cache.setdefault(request.correlation_id(), given(request) * 2)) for request in requests]
""",
        """
def execute(self, requests):
    cache = {}
    return [reply(cache.setdefault(given(request).tobytes(), given(request) * 2)) for request in requests]
""",
    ),
    "rescheduled_requests": Pair(
        """
def execute(self, requests):
    import time

    responses = []
    for request in requests:
        key = request.correlation_id()
        if key not in self.unfinished:
            self.unfinished[key] = True
            self.kept = given(request) * 2
            time.sleep(0.1)  # in which the requests of other clients arrive
            request.set_release_flags(pb_utils.TRITONSERVER_REQUEST_RELEASE_RESCHEDULE)
            responses.append(None)
        else:
            del self.unfinished[key]
            responses.append(reply(self.kept))
    return responses
""",
        """
def execute(self, requests):
    responses = []
    for request in requests:
        key = request.correlation_id()
        if key not in self.unfinished:
            self.unfinished[key] = given(request) * 2
            request.set_release_flags(pb_utils.TRITONSERVER_REQUEST_RELEASE_RESCHEDULE)
            responses.append(None)
        else:
            responses.append(reply(self.unfinished.pop(key)))
    return responses
""",
        "max_batch_size: 8\nsequence_batching { iterative_sequence: true }\n",
    ),
    "state_of_a_sequence": Pair(
        """
def execute(self, requests):
    responses = []
    for request in requests:
        start = request.flags() & 1
        self.kept = given(request) if start else self.kept + given(request)
        responses.append(reply(self.kept))
    return responses
""",
        """
def execute(self, requests):
    responses = []
    for request in requests:
        key, flags = request.correlation_id(), request.flags()
        total = given(request) if flags & 1 else self.unfinished[key] + given(request)
        self.unfinished[key] = total.copy()
        responses.append(reply(total))
    return responses
""",
        "max_batch_size: 8\nsequence_batching { oldest { max_candidate_sequences: 8 } }\n",
    ),
    "id_of_an_earlier_sequence": Pair(
        f"{SUM_OF_AN_ID}    return responses\n",
        SUM_OF_AN_ID
        + """        if request.flags() & 2:
            del self.unfinished[key]
    return responses
""",
        "max_batch_size: 8\nsequence_batching { }\n",
        says="a sequence whose id was used before has other answers than with a new id",
    ),
    "slot_without_a_sequence": Pair(
        SUM_FROM.format(begins="flags & 1"),
        SUM_FROM.format(begins="flags & 1 or not key"),
        "max_batch_size: 8\nsequence_batching { }\n",
        says="KeyError: 0",
    ),
    "file_of_several_instances": Pair(
        """
def execute(self, requests):
    import os
    import time

    place = os.path.join(self.repository, "scratch.npy")
    np.save(place, given(requests[0]))
    time.sleep(0.005)
    return [reply(np.load(place) * 2)]
""",
        """
def execute(self, requests):
    import os
    import time

    place = os.path.join(self.repository, self.name + ".npy")
    np.save(place, given(requests[0]))
    time.sleep(0.005)
    return [reply(np.load(place) * 2)]
""",
        "max_batch_size: 8\ninstance_group [ { count: 2 kind: KIND_CPU } ]\n",
    ),
    "stream_of_the_latest_request": Pair(
        """
def execute(self, requests):
    import threading

    for request in requests:
        self.kept = given(request) * 2
        threading.Thread(target=self.send, args=(request.get_response_sender(),)).start()

def send(self, sender):
    import time

    time.sleep(0.005)
    sender.send(reply(self.kept))
    sender.send(reply(self.kept + 1), flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
""",
        """
def execute(self, requests):
    import threading

    for request in requests:
        doubled = given(request) * 2
        threading.Thread(target=self.send, args=(request.get_response_sender(), doubled)).start()

def send(self, sender, doubled):
    import time

    time.sleep(0.005)
    sender.send(reply(doubled))
    sender.send(reply(doubled + 1), flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
""",
        STREAMS,
    ),
    "senders_in_another_order": Pair(
        """
def execute(self, requests):
    senders = [request.get_response_sender() for request in requests]
    for sender, request in zip(reversed(senders), requests):
        sender.send(reply(given(request) * 2), flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
""",
        """
def execute(self, requests):
    senders = [request.get_response_sender() for request in requests]
    for sender, request in zip(reversed(senders), reversed(requests)):
        sender.send(reply(given(request) * 2), flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
""",
        STREAMS + "dynamic_batching { }\n",
    ),
    "position_of_all_streams": Pair(
        """
def execute(self, requests):
    import threading

    for request in requests:
        self.number = 0
        arguments = request.get_response_sender(), given(request) * 2
        threading.Thread(target=self.send, args=arguments).start()

def send(self, sender, doubled):
    import time

    while self.number < 3:
        sender.send(reply(doubled + self.number))
        self.number += 1
        time.sleep(0.002)
    sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
""",
        """
def execute(self, requests):
    import threading

    for request in requests:
        arguments = request.get_response_sender(), given(request) * 2
        threading.Thread(target=self.send, args=arguments).start()

def send(self, sender, doubled):
    import time

    for number in range(3):
        sender.send(reply(doubled + number))
        time.sleep(0.002)
    sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
""",
        STREAMS,
    ),
}
