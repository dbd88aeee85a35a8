"""Business logic scripting: models that send requests to other models."""

import json

import pytest

from envpack.server.tensors import Tensor


class TestOneResponse:
    def test_a_model_asks_another(self, served):
        code = "return [reply(fetch(bls_call('customized', 'return [reply(6 * 7)]').exec()))]"
        assert served.run_code(code) == 42

    def test_all_properties_of_the_request_arrive(self, served):
        inner = (
            "return [reply([request.request_id(), request.correlation_id(), request.timeout(), request.flags(),"
            " json.loads(request.parameters()), sorted(request.requested_output_names())])]"
        )
        options = (
            "request_id='id', correlation_id=7, timeout=5000000, parameters={'a': 1, 'b': 'two', 'c': True},"
            " outputs=['OUT', 'OTHER']"
        )
        facts = served.run_code(f"return [reply(fetch(bls_call('customized', {inner!r}, {options}).exec()))]")
        assert facts == ["id", 7, 5000000, 0, {"a": 1, "b": "two", "c": True}, ["OTHER", "OUT"]]

    @pytest.mark.parametrize("number", [-1, 2**64])
    def test_a_correlation_id_has_64_bits(self, served, number):
        code = (
            f"try: bls_call('customized', '', correlation_id={number})\n"
            "except RuntimeError as error: return [reply(str(error))]"
        )
        assert served.run_code(code) == f"Correlation ID must be from 0 to 2**64 - 1, not {number}"

    @pytest.mark.parametrize("number", ["-2**63 - 1", "2**63", "10**5000"])
    def test_parameters_have_64_bits(self, served, number):
        code = (
            f"try: bls_call('customized', '', parameters={{'a': 2**63 - 1, 'b': {number}}})\n"
            "except pb_utils.TritonModelException as error: return [reply(str(error))]"
        )
        assert served.run_code(code) == (
            "Expect parameters values of type int to be from -2**63 to 2**63 - 1, which 'b' is not"
        )

    def test_a_correlation_id_may_be_text(self, served):
        inner = "return [reply(request.correlation_id())]"
        assert (
            served.run_code(f"return [reply(fetch(bls_call('customized', {inner!r}, correlation_id='abc').exec()))]")
            == "abc"
        )

    def test_the_same_request_may_be_run_again(self, served):
        code = "r = bls_call('customized', 'return [reply(1)]')\nreturn [reply([fetch(r.exec()) for _ in range(3)])]"
        assert served.run_code(code) == [1, 1, 1]

    def test_outputs_are_handed_on_as_they_are(self, served):
        code = "return [bls_call('customized', 'return [reply([1, 2])]').exec()]"
        assert served.run_code(code) == [1, 2]

    def test_inputs_are_handed_on_as_they_are(self, served):
        inner = "return [reply(pb_utils.get_input_tensor_by_name(request, 'X').as_numpy().tolist())]"
        code = (
            f"r = pb_utils.InferenceRequest(model_name='customized', requested_output_names=['OUT'],"
            f" inputs=[bls_call('x', {inner!r}).inputs()[0], request.inputs()[1]])\n"
            "request.inputs()[1].as_numpy()[:] = 0\n"
            "return [reply(fetch(r.exec()))]"
        )
        x = Tensor("X", "FP32", (3,), (1.5, 2.0, -1.0))
        assert json.loads(served.run(code, inputs=[x])["OUT"].data[0]) == [1.5, 2.0, -1.0]

    def test_no_requested_outputs_means_all(self, served):
        inner = "return [pb_utils.InferenceResponse([pb_utils.Tensor(n, np.array(['x'], dtype=object))"
        inner += " for n in ('OUT', 'OTHER')])]"
        code = (
            f"r = bls_call('customized', {inner!r}, outputs=[]).exec()\n"
            "return [reply([t.name() for t in r.output_tensors()])]"
        )
        assert served.run_code(code) == ["OUT", "OTHER"]

    def test_large_tensors_make_the_region_grow(self, served):
        inner = "x = pb_utils.get_input_tensor_by_name(request, 'X').as_numpy()\nreturn [reply([x.size, float(x[-1])])]"
        code = (
            "x = np.arange(3000000, dtype=np.float32)\n"
            f"r = pb_utils.InferenceRequest(model_name='customized', requested_output_names=['OUT'],"
            f" inputs=[bls_call('x', {inner!r}).inputs()[0], pb_utils.Tensor('X', x)])\n"
            "return [reply(fetch(r.exec()))]"
        )
        assert served.run_code(code) == [3000000, 2999999.0]

    def test_three_deep(self, served, deepest):
        third = "return [reply('third')]"
        second = f"return [bls_call({deepest!r}, {third!r}).exec()]"
        first = f"return [bls_call('customized', {second!r}).exec()]"
        assert served.run_code(first) == "third"

    def test_from_many_threads(self, served):
        code = (
            "from concurrent.futures import ThreadPoolExecutor\n"
            "def call(i):\n"
            "    return fetch(bls_call('customized', 'return [reply(%d)]' % i).exec())\n"
            "with ThreadPoolExecutor(6) as pool:\n"
            "    return [reply(list(pool.map(call, range(120))))]"
        )
        assert served.run_code(code) == list(range(120))

    def test_from_forked_workers(self, served):
        code = (
            "import multiprocessing\n"
            "with multiprocessing.get_context('fork').Pool(2) as pool:\n"
            "    return [reply(pool.map(request_twice, range(6)))]"
        )
        assert served.run_code(code) == [0, 2, 4, 6, 8, 10]

    def test_a_forked_worker_gets_no_stream(self, served):
        code = (
            "import multiprocessing\n"
            "with multiprocessing.get_context('fork').Pool(1) as pool:\n"
            "    return [reply(pool.apply(request_stream))]"
        )
        assert "available in the model's process only" in served.run_code(code)

    def test_awaited_together(self, served):
        code = (
            "import asyncio\n"
            "async def run_calls():\n"
            "    calls = [bls_call('customized', 'return [reply(%d)]' % i).async_exec() for i in range(8)]\n"
            "    return [fetch(response) for response in await asyncio.gather(*calls)]\n"
            "return [reply(asyncio.new_event_loop().run_until_complete(run_calls()))]"
        )
        assert served.run_code(code) == list(range(8))

    def test_awaiting_needs_a_loop(self, served):
        code = (
            "try:\n    bls_call('customized', 'return [reply(1)]').async_exec()\n"
            "except RuntimeError as error:\n    return [reply(str(error))]"
        )
        assert served.run_code(code) == "no running event loop"

    def test_preferred_memory(self, served):
        code = (
            "where = pb_utils.PreferredMemory(pb_utils.TRITONSERVER_MEMORY_CPU, 0)\n"
            "r = bls_call('customized', 'return [reply(1)]', preferred_memory=where).exec()\n"
            "return [reply([fetch(r), r.output_tensors()[0].is_cpu()])]"
        )
        assert served.run_code(code) == [1, True]

    def test_the_trace_is_passed_on(self, served):
        code = "return [reply(fetch(bls_call('customized', 'return [reply(1)]', trace=request.trace()).exec()))]"
        assert served.run_code(code) == 1


class TestErrors:
    @pytest.mark.parametrize(
        ("request_code", "text"),
        [
            ("bls_call('nobody', '')", "Model nobody - Error when running inference: "),
            ("bls_call('customized', '', outputs=['NOT'])", "unexpected inference output 'NOT' for model 'customized'"),
            ("bls_call('customized', 'raise ValueError(1)')", "ValueError: 1"),
            ("bls_call('customized', '', model_version=9)", "Model customized - Error when running inference: "),
            (
                "pb_utils.InferenceRequest(model_name='customized', inputs=[], requested_output_names=['OUT'])",
                "for model 'customized'",
            ),
            ("bls_call('stream', 'request.get_response_sender().send(flags=1)')", "decoupled=True"),
        ],
    )
    def test_errors_come_as_responses(self, served, request_code, text):
        code = f"r = {request_code}.exec()\nreturn [reply([fetch(r), len(r.output_tensors()), r.has_error()])]"
        message, outputs, has_error = served.run_code(code)
        assert text in message
        assert (outputs, has_error) == (0, True)

    def test_not_before_initialize_has_returned(self, served):
        assert served.evaluate("self.early_request") == "BLS is only supported during the 'execute' function."

    def test_its_own_request_is_never_cancelled_and_has_no_client(self, served):
        code = (
            "r = bls_call('customized', '')\n"
            "try:\n    r.get_response_sender().send(reply(1), flags=1)\n"
            "except pb_utils.TritonModelException as error:\n    return [reply([r.is_cancelled(), str(error)])]"
        )
        assert served.run_code(code) == [
            False,
            "Unable to send response. Response sender has no reference to the decoupled state of the model.",
        ]


SENDS = (
    "s = request.get_response_sender()\n"
    "for i in range({count}):\n    s.send(reply(i), flags=1 if {last} and i == {count} - 1 else 0)\n"
    "if not ({last}):\n    s.send(flags=1)"
)


class TestStreams:
    @pytest.mark.parametrize(
        ("count", "last", "expected"),
        [
            (0, False, [None]),
            (1, False, [0, None]),
            (1, True, [0]),
            (3, False, [0, 1, 2, None]),
            (3, True, [0, 1, 2]),
            (500, True, list(range(500))),
        ],
    )
    def test_every_response_in_order(self, served, count, last, expected):
        inner = SENDS.format(count=count, last=last)
        code = f"return [reply([fetch(r) for r in bls_call('stream', {inner!r}).exec(decoupled=True)])]"
        assert served.run_code(code) == expected

    def test_a_default_model_is_a_stream_of_one(self, served):
        code = "return [reply([fetch(r) for r in bls_call('customized', 'return [reply(1)]').exec(decoupled=True)])]"
        assert served.run_code(code) == [1]

    def test_iterating_again_starts_from_the_first(self, served):
        inner = SENDS.format(count=3, last=True)
        code = (
            f"it = bls_call('stream', {inner!r}).exec(decoupled=True)\n"
            "first = fetch(next(it))\n"
            "rest = [fetch(r) for r in it]\n"
            "again = [fetch(r) for r in it]\n"
            "for r in it:\n    break\n"
            "resumed = [fetch(r) for r in it]\n"
            "return [reply([first, rest, again, resumed, iter(it) is it])]"
        )
        assert served.run_code(code) == [0, [1, 2], [0, 1, 2], [1, 2], True]

    def test_an_iterator_may_be_dropped_in_the_middle(self, served):
        inner = SENDS.format(count=5, last=True)
        code = (
            f"it = bls_call('stream', {inner!r}).exec(decoupled=True)\nfirst = fetch(next(it))\ndel it\n"
            "return [reply([first, [fetch(r) for r in bls_call('stream', %r).exec(decoupled=True)]])]" % inner
        )
        assert served.run_code(code) == [0, [0, 1, 2, 3, 4]]

    @pytest.mark.parametrize(
        ("sends", "expected"),
        [
            ("s.send(reply(0)); s.send(error); s.send(flags=1)", [0, "oops", None]),
            ("s.send(reply(0)); s.send(error, flags=1)", [0, "oops"]),
            ("s.send(reply(0)); s.send(error); s.send(reply(7)); s.send(flags=1)", [0, "oops", 7, None]),
            ("s.send(error, flags=1)", ["oops"]),
            ("s.send(error); s.send(reply(1)); s.send(flags=1)", ["oops"]),
        ],
    )
    def test_an_error_in_the_middle_reaches_the_iterator(self, served, sends, expected):
        inner = (
            "s = request.get_response_sender()\n"
            "error = pb_utils.InferenceResponse(error=pb_utils.TritonError('oops'))\n" + sends
        )
        code = f"return [reply([fetch(r) for r in bls_call('stream', {inner!r}).exec(decoupled=True)])]"
        for _ in range(20):  # the first response and what follows race each other
            assert served.run_code(code) == expected

    def test_an_exception_after_a_response_reaches_the_iterator(self, served):
        inner = "request.get_response_sender().send(reply(0))\nraise ValueError('broken')"
        code = f"return [reply([fetch(r) for r in bls_call('stream', {inner!r}).exec(decoupled=True)])]"
        first, error = served.run_code(code)
        assert first == 0
        assert "ValueError: broken" in error

    def test_several_streams_side_by_side(self, served):
        inner = SENDS.format(count=20, last=True)
        code = (
            "from concurrent.futures import ThreadPoolExecutor\n"
            "def call(i):\n"
            f"    return [fetch(r) for r in bls_call('stream', {inner!r}).exec(decoupled=True)]\n"
            "with ThreadPoolExecutor(4) as pool:\n"
            "    return [reply(list(pool.map(call, range(8))))]"
        )
        assert served.run_code(code) == [list(range(20))] * 8
