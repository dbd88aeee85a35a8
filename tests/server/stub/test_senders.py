"""Response senders: answers in default and decoupled mode, now or later, from wherever the model likes."""

import pytest

from tests.waiting import soon

PREFIX = "Failed to process the request(s) for model 'script_0', message: "
STREAM_PREFIX = "Failed to process the request(s) for model 'stream_0', message: "
SENDER = "sender = request.get_response_sender()\n"
NOBODY_ANSWERS = (
    "has returned from execute without a final response, and has kept neither a request nor a response sender:"
    " nothing can answer any more."
)
DROPPED_LATER = (
    "has returned from execute without a final response, and has since dropped the request and its response sender:"
    " nothing can answer any more. Send the final flag also if the thread or task that answers fails."
)
# Answers once the thread that has called execute() is no longer in Python.
LATER = (
    "import sys, threading, time\n"
    "caller = threading.get_ident()\n"
    "def later():\n"
    "    while caller in sys._current_frames():\n        time.sleep(0.01)\n"
    "    {answer}\n"
    "threading.Thread(target=later).start()\n"
    "return None"
)


class TestDefaultMode:
    def test_a_sender_answers_in_place_of_the_list(self, served):
        assert served.run_code(SENDER + "sender.send(reply('sent'), flags=1)\nreturn None") == "sent"

    def test_a_sender_answers_after_execute_has_returned(self, served):
        code = SENDER + LATER.format(answer="sender.send(reply('later'), flags=1)")
        assert served.run_code(code) == "later"

    @pytest.mark.parametrize("code", ["return None", "return [None]", SENDER + "del sender"])
    def test_a_request_that_nothing_can_answer_any_more_fails_at_once(self, served, code):
        assert served.refusal(code).message == PREFIX + (
            f"Python model 'script_0' {NOBODY_ANSWERS} Return a list with one InferenceResponse for each request."
        )

    def test_a_response_is_the_answer_although_no_final_flag_follows(self, served):
        assert served.run_code(SENDER + "sender.send(reply('only'))\ndel sender\nreturn None") == "only"

    def test_a_request_that_a_thread_drops_after_execute_has_returned_fails(self, served):
        message = served.refusal(LATER.format(answer="globals().clear()")).message
        assert message == f"{PREFIX}Python model 'script_0' {DROPPED_LATER}"

    def test_a_thread_that_has_only_the_request_answers(self, served):
        code = LATER.format(answer="request.get_response_sender().send(reply('later'), flags=1)")
        assert served.run_code(code) == "later"

    def test_response_and_final_flag_may_come_apart(self, served):
        assert served.run_code(SENDER + "sender.send(reply('first'))\nsender.send(flags=1)\nreturn [None]") == "first"

    @pytest.mark.parametrize(
        ("calls", "text"),
        [
            ("sender.send(reply(1), flags=2)", "Unable to send response. Unsupported flag provided."),
            (
                "sender.send()",
                "Inference Response object must be provided when the response flags is set to zero.",
            ),
            (
                "sender.send(flags=1)",
                "Unable to send response. Non-decoupled model cannot send complete final before sending a response.",
            ),
            (
                "sender.send(reply(1)); sender.send(reply(2))",
                "Unable to send response. Non-decoupled model cannot send more than one response.",
            ),
            (
                "sender.send(reply(1), flags=1); sender.send(flags=1)",
                "Unable to send response. Response sender has been closed.",
            ),
        ],
    )
    def test_what_the_contract_forbids_is_refused(self, served, calls, text):
        code = (
            f"{SENDER}"
            "try:\n"
            f"    {calls}\n"
            "    self.error = 'nothing'\n"
            "except pb_utils.TritonModelException as error:\n"
            "    self.error = str(error)\n"
            "try:\n"
            "    sender.send(reply('end'), flags=1)\n"
            "except pb_utils.TritonModelException:\n"
            "    try:\n"
            "        sender.send(flags=1)\n"
            "    except pb_utils.TritonModelException:\n"
            "        pass\n"
            "return None"
        )
        served.run(code)
        assert served.evaluate("self.error") == text

    def test_a_response_after_a_response_fails_and_the_server_lives(self, served):
        """The server would delete the request's response factory twice, and abort."""
        for flags in (0, 1):
            served.try_to(SENDER + f"sender.send(reply(1), flags={flags})\nreturn [reply(2)]")
        assert served.evaluate("'alive'") == "alive"

    def test_an_exception_after_the_final_response_does_not_end_the_server(self, served):
        for _ in range(3):
            served.try_to(SENDER + "sender.send(reply(1), flags=1)\nraise ValueError('too late')")
        assert served.evaluate("'alive'") == "alive"

    def test_nothing_can_be_sent_after_the_batch_has_failed(self, served):
        served.refusal(SENDER + "self.sender = sender\nraise ValueError('failed')")
        code = (
            "try:\n    self.sender.send(reply(1), flags=1)\n"
            "except pb_utils.TritonModelException as error:\n    return [reply(str(error))]"
        )
        assert served.run_code(code) == "Unable to send response. Response sender has been closed."

    def test_a_request_of_a_living_client_is_not_cancelled(self, served):
        states = "[request.is_cancelled(), request.get_response_sender().is_cancelled()]"
        assert served.evaluate(states) == [False, False]

    def test_a_sender_that_is_kept_says_what_it_knew(self, served):
        served.run(SENDER + "self.kept = sender\nreturn [reply(1)]")
        assert served.evaluate("self.kept.is_cancelled()") is False

    def test_a_request_that_is_rescheduled_comes_again(self, served):
        code = (
            "self.rounds = getattr(self, 'rounds', 0) + 1\n"
            "if self.rounds < 3:\n"
            "    request.set_release_flags(pb_utils.TRITONSERVER_REQUEST_RELEASE_RESCHEDULE)\n"
            "    return [None]\n"
            "return [reply(self.rounds)]"
        )
        assert served.run_code(code, model="reschedule") == 3

    def test_a_rescheduled_request_leaves_no_byte_in_the_region(self, served):
        code = (
            "self.again = not getattr(self, 'again', False)\n"
            "if self.again: request.set_release_flags(pb_utils.TRITONSERVER_REQUEST_RELEASE_RESCHEDULE)\n"
            "return [None if self.again else reply(1)]"
        )
        served.run_code(code, model="reschedule")
        served.evaluate("1")
        reads = []

        def are_settled():
            """The server may still hold what it answered just now."""
            reads.append([served.allocated(model) for model in ("reschedule", "script")])
            return reads[-2:-1] == reads[-1:]

        assert soon(are_settled)
        before = reads[-1]
        for _ in range(4):
            assert served.run_code(code, model="reschedule") == 1
            assert served.evaluate(f"fetch(bls_call('reschedule', {code!r}).exec())") == 1
        assert soon(lambda: [served.allocated(model) for model in ("reschedule", "script")] == before)

    def test_a_response_for_a_rescheduled_request_is_refused(self, served):
        code = "request.set_release_flags(2)\nreturn [reply(1)]"
        message = served.refusal(code, model="reschedule").message
        assert "Expected a None object in the execute function return list for reschduled request" in message

    def test_senders_leave_no_memory_behind(self, served):
        code = SENDER + "sender.send(reply(1), flags=1)\nreturn None"
        served.run(code)
        before = served.free()
        for _ in range(50):
            served.run(code)
        assert served.frees_all_again(before)


class TestCoroutines:
    def test_execute_may_be_a_coroutine(self, served):
        code = (
            "import asyncio\n"
            "async def run():\n"
            "    values = await asyncio.gather(*[asyncio.sleep(0.01, number) for number in range(3)])\n"
            "    return [reply(values)]\n"
            "return run()"
        )
        assert served.run_code(code) == [0, 1, 2]

    def test_all_coroutines_share_one_loop_outside_of_the_main_thread(self, served):
        code = (
            "import asyncio, threading\n"
            "async def run():\n"
            "    main = threading.current_thread() is threading.main_thread()\n"
            "    return [reply([id(asyncio.get_event_loop()), main])]\n"
            "return run()"
        )
        first, second = served.run_code(code), served.run_code(code)
        assert first == second
        assert first[1] is False

    def test_what_a_coroutine_raises_is_the_error(self, served):
        message = served.refusal("async def run():\n    raise ValueError('from a coroutine')\nreturn run()").message
        assert message.startswith(PREFIX + "ValueError: from a coroutine")

    def test_a_coroutine_of_another_type_is_awaited(self, served):
        """Cython compiles `async def` to a type of its own, which collections.abc.Coroutine knows."""
        code = (
            "import collections.abc\n"
            "async def run():\n"
            "    return [reply('awaited')]\n"
            "class Compiled(collections.abc.Coroutine):\n"
            "    def __init__(self, inner):\n"
            "        self.inner = inner\n"
            "    def send(self, value):\n"
            "        return self.inner.send(value)\n"
            "    def throw(self, *error):\n"
            "        return self.inner.throw(*error)\n"
            "    def close(self):\n"
            "        self.inner.close()\n"
            "    def __await__(self):\n"
            "        return self.inner.__await__()\n"
            "return Compiled(run())"
        )
        assert served.run_code(code) == "awaited"

    def test_a_coroutine_that_exits_fails_its_request_and_later_ones_run(self, served):
        exits = served.refusal("async def run():\n    sys.exit('enough')\nreturn run()").message
        assert exits.startswith(PREFIX + "SystemExit: enough")
        assert served.run_code("async def run():\n    return [reply('next')]\nreturn run()") == "next"


class TestDecoupledMode:
    def test_a_coroutine_that_exits_is_logged_and_later_ones_run(self, served):
        exits = SENDER + "async def run():\n    sender.send(flags=1)\n    sys.exit('in the background')\nreturn run()"
        assert served.stream(exits) == []
        assert served.soon_logged("SystemExit: in the background")
        again = SENDER + "async def run():\n    sender.send(reply('next'), flags=1)\nreturn run()"
        assert served.stream(again) == ["next"]

    def test_a_coroutine_that_waits_for_what_only_it_knows_is_not_collected(self, served):
        code = SENDER + (
            "import asyncio, gc, weakref\n"
            "async def run():\n"
            "    loop = asyncio.get_event_loop()\n"
            "    own = loop.create_future()\n"
            "    known = weakref.ref(own)\n"
            "    def finish():\n"
            "        gc.collect()\n"
            "        future = known()\n"
            "        if future is None:\n"
            "            sender.send(reply('collected'), flags=1)\n"
            "        else:\n"
            "            future.set_result(None)\n"
            "    loop.call_soon(finish)\n"
            "    await own\n"
            "    sender.send(reply('finished'), flags=1)\n"
            "return run()"
        )
        assert served.stream(code) == ["finished"]

    def test_any_number_of_responses_arrive_in_order(self, served):
        code = SENDER + "for number in range(20):\n    sender.send(reply(number))\nsender.send(flags=1)"
        assert served.stream(code) == list(range(20))

    def test_the_last_response_may_carry_the_final_flag(self, served):
        assert served.stream(SENDER + "sender.send(reply('only'), flags=1)") == ["only"]

    def test_no_response_at_all_is_legal(self, served):
        assert served.stream(SENDER + "sender.send(flags=1)") == []

    def test_a_thread_sends_after_execute_has_returned(self, served):
        answer = "sender.send(reply('one')); sender.send(reply('two'), flags=1)"
        assert served.stream(SENDER + LATER.format(answer=answer)) == ["one", "two"]

    def test_an_error_response_is_one_of_them(self, served):
        code = SENDER + (
            "sender.send(reply(1))\n"
            "sender.send(pb_utils.InferenceResponse(error=pb_utils.TritonError('no more')), flags=1)"
        )
        assert served.stream(code) == [1, "no more"]

    @pytest.mark.parametrize("code", ["return None", SENDER + "sender.send(reply(1))"])
    def test_a_stream_that_nothing_can_end_any_more_ends_with_an_error(self, served, code):
        assert served.stream(code)[-1] == STREAM_PREFIX + (
            f"Python model 'stream_0' {NOBODY_ANSWERS} Send the responses and the final flag with"
            " request.get_response_sender()."
        )

    def test_a_stream_whose_thread_fails_after_execute_has_returned_ends_with_an_error(self, served):
        raising = "sender.send(reply(1)); globals().clear(); raise ValueError('in the thread')"
        first, message = served.stream(SENDER + LATER.format(answer=raising))
        assert (first, message) == (1, f"{STREAM_PREFIX}Python model 'stream_0' {DROPPED_LATER}")

    def test_returning_a_list_is_refused(self, served):
        (message,) = served.stream("return [reply(1)]")
        assert message == (
            STREAM_PREFIX
            + "Python model 'stream_0' is using the decoupled mode and the execute function must return None."
        )

    def test_an_exception_ends_the_stream_with_its_text(self, served):
        first, message = served.stream(SENDER + "sender.send(reply(1))\nraise ValueError('in the middle')")
        assert first == 1
        assert message.startswith(STREAM_PREFIX + "ValueError: in the middle")

    def test_an_exception_after_the_final_flag_does_not_end_the_server(self, served):
        assert served.stream(SENDER + "sender.send(reply(1), flags=1)\nraise ValueError('too late')") == [1]
        assert served.stream(SENDER + "sender.send(reply(2), flags=1)") == [2]

    def test_a_coroutine_runs_by_itself(self, served):
        code = SENDER + (
            "import asyncio\n"
            "async def run():\n"
            "    for number in range(3):\n"
            "        await asyncio.sleep(0.01)\n"
            "        sender.send(reply(number))\n"
            "    sender.send(flags=1)\n"
            "return run()"
        )
        assert served.stream(code) == [0, 1, 2]

    def test_what_a_coroutine_raises_is_logged(self, served):
        code = SENDER + (
            "async def run():\n    sender.send(flags=1)\n    raise ValueError('in the background')\nreturn run()"
        )
        assert served.stream(code) == []
        assert served.soon_logged("ValueError: in the background")

    def test_large_responses_come_whole(self, served):
        code = SENDER + "sender.send(reply('x' * 3_000_000))\nsender.send(reply('y' * 3_000_000), flags=1)"
        assert served.stream(code) == ["x" * 3_000_000, "y" * 3_000_000]


def test_asking_for_cancellation_while_the_final_response_is_sent(served):
    """A question that is under way holds back what would delete its subject in the server."""
    code = (
        "import threading\n"
        "sender = request.get_response_sender()\n"
        "calls = []\n"
        "def later():\n"
        "    while len(calls) < 200:\n        calls.append(sender.is_cancelled())\n"
        "threads = [threading.Thread(target=later) for _ in range(3)]\n"
        "for thread in threads: thread.start()\n"
        "return [reply('answered')]"
    )
    for _ in range(20):
        assert served.run_code(code) == "answered"
