"""What an exchange with the server takes, it gives back: memory of the region, references, descriptors, threads."""

from operator import le

import pytest

from tests.waiting import soon

SENDER = "s = request.get_response_sender()\n"
MEASURE = (
    "import gc, os, threading\n"
    "gc.collect()\n"
    "return [reply([c_python_backend_utils.shared_memory.free_memory(), len(os.listdir('/proc/self/fd')),"
    " len(os.listdir('/proc/self/task'))])]"
)
STREAMED = "s = request.get_response_sender()\nfor i in range(3):\n    s.send(reply(i))\ns.send(flags=1)"
EXCHANGES = {
    "answer": "return [reply('x' * 1000)]",
    "error response": "return [pb_utils.InferenceResponse(error=pb_utils.TritonError('no'))]",
    "exception": "raise ValueError('no')",
    "sender": SENDER + "s.send(reply(1), flags=1)\nreturn None",
    "sender that may not send": SENDER + "s.send(reply(1), flags=1)\ns.send(reply(2))",
    "unanswered and dropped": "return [reply(1)]\nrequest.get_response_sender()",
    "log": "for i in range(20):\n    pb_utils.Logger.log_info('line')\nreturn [reply(1)]",
    "cancel query": "return [reply(request.is_cancelled())]",
    "metrics": (
        "f = pb_utils.MetricFamily('hygiene', 'x', pb_utils.MetricFamily.COUNTER)\n"
        "m = f.Metric(labels={'a': 'b'})\nm.increment(1)\nm.value()\nreturn [reply(1)]"
    ),
    "readiness": "return [reply(pb_utils.is_model_ready('customized'))]",
    "another model": "return [reply(fetch(bls_call('customized', 'return [reply(1)]').exec()))]",
    "another model's response": "return [bls_call('customized', 'return [reply(1)]').exec()]",
    "another model's error": "return [reply(fetch(bls_call('customized', 'raise ValueError(1)').exec()))]",
    "an unknown model": "return [reply(fetch(bls_call('nobody', '').exec()))]",
    "stream": f"return [reply([fetch(r) for r in bls_call('stream', {STREAMED!r}).exec(decoupled=True)])]",
    "stream left alone": f"next(bls_call('stream', {STREAMED!r}).exec(decoupled=True))\nreturn [reply(1)]",
    "dlpack": "pb_utils.Tensor.from_dlpack('A', pb_utils.Tensor('T', np.ones(1000)).to_dlpack())\nreturn [reply(1)]",
}
TIMES = 30
SMALLEST_BLOCK = 96  # the allocator adds what is too small to be a block to the one before it


@pytest.mark.parametrize("exchange", EXCHANGES)
def test_nothing_is_left_of(served, exchange):
    served.try_to(EXCHANGES[exchange])  # what is made once, at the first use
    before = settled(served)
    for _ in range(TIMES):
        served.try_to(EXCHANGES[exchange])
    after = []

    def is_all_back():
        after[:] = served.run_code(MEASURE)
        return after[0] >= before[0] - SMALLEST_BLOCK and all(map(le, after[1:], before[1:]))

    assert soon(is_all_back), (before, after)


def settled(served):
    """What is measured once the exchanges that run behind an answer have ended: the same twice in a row."""
    measured = []

    def is_same():
        measured.append(served.run_code(MEASURE))
        return measured[-2:-1] == measured[-1:]

    assert soon(is_same)
    return measured[-1]
