"""Processes that a model starts by forking: they can be ended, and never act for the stub that they are a copy of."""

START = "import multiprocessing, os, time\ncontext = multiprocessing.get_context('fork')\n"


def test_a_forked_worker_can_be_terminated_as_soon_as_it_is_there(served):
    code = START + (
        "codes = []\n"
        "for _ in range(20):\n"
        "    process = context.Process(target=time.sleep, args=(60,))\n"
        "    process.start()\n"
        "    process.terminate()\n"
        "    process.join(20)\n"
        "    codes.append(process.exitcode)\n"
        "    if process.exitcode is None:\n        os.kill(process.pid, 9)\n        break\n"
        "return [reply(codes)]"
    )
    assert served.run_code(code) == [-15] * 20


def test_a_forked_worker_keeps_the_handler_that_its_parent_has_installed(served):
    code = (
        "import os, signal\n"
        "child = os.fork()\n"
        "if child == 0:\n"
        "    signal.signal(signal.SIGTERM, lambda *_: os._exit(7))\n"
        "    grandchild = os.fork()\n"
        "    if grandchild == 0:\n"
        "        os.kill(os.getpid(), signal.SIGTERM)\n"
        "        os._exit(1)\n"
        "    os._exit(os.WEXITSTATUS(os.waitpid(grandchild, 0)[1]))\n"
        "return [reply(os.WEXITSTATUS(os.waitpid(child, 0)[1]))]"
    )
    assert served.run_code(code) == 7


def test_a_pool_of_forked_workers_leaves_the_region_as_it_was(served):
    code = START + (
        "with context.Pool(3) as pool:\n    squares = pool.map(abs, range(-20, 0))\nreturn [reply(sum(squares))]"
    )
    free = served.free()
    for _ in range(3):
        assert served.run_code(code) == 210
    assert served.frees_all_again(free)


def _statuses(served, ends):
    """Exit statuses of forked processes that run on to these ends of execute, each after dropping what they hold."""
    code = (
        "import gc, os, sys\n"
        "def end(child):\n"
        "    requests.clear()\n"
        "    names = globals()\n"
        "    names.pop('request', None), names.pop('requests', None)\n"
        "    gc.collect()\n"
        f"    return [{', '.join(f'lambda: {end}' for end in ends)}][child]()\n"
        "children = []\n"
        f"for number in range({len(ends)}):\n"
        "    child = os.fork()\n"
        "    if child == 0:\n"
        "        return end(number)\n"
        "    children.append(child)\n"
        "return [reply([os.WEXITSTATUS(os.waitpid(child, 0)[1]) for child in children])]"
    )
    return served.run_code(code)


def test_a_forked_process_that_leaves_execute_ends_and_answers_nothing(served):
    ends = ["sys.exit(5)", "sys.exit()", "sys.exit('with a text')", "[]", "1 / 0"]
    free = served.free()
    assert _statuses(served, ends) == [5, 0, 1, 0, 1]
    assert served.soon_logged("with a text")
    assert served.soon_logged("ZeroDivisionError: division by zero")
    assert served.frees_all_again(free)


def test_what_a_forked_process_forgets_stays_in_the_server(served):
    code = (
        "import gc, os\n"
        "family = pb_utils.MetricFamily('forked_family', 'd', pb_utils.MetricFamily.COUNTER)\n"
        "metric = family.Metric(labels={'a': 'b'})\n"
        "sender = requests[0].get_response_sender()\n"
        "child = os.fork()\n"
        "if child == 0:\n"
        "    del metric, family, sender\n"
        "    requests.clear()\n"
        "    gc.collect()\n"
        "    pb_utils.Logger.log_info('from the forked process')\n"
        "    os._exit(0)\n"
        "status = os.waitpid(child, 0)[1]\n"
        "metric.increment(1)\n"
        "return [reply([status, metric.value()])]"
    )
    assert served.run_code(code) == [0, 1.0]
    assert served.soon_logged("from the forked process")


def test_what_the_model_has_is_refused_to_a_process_that_it_forks(served):
    """The server and the model would not know of it: a second final response ends the server."""
    code = (
        "import os\n"
        "sender = request.get_response_sender()\n"
        "family = pb_utils.MetricFamily('not_forked', 'd', pb_utils.MetricFamily.COUNTER)\n"
        "metric = family.Metric(labels={'a': 'b'})\n"
        "streamed = 's = request.get_response_sender()\\ns.send(reply(1))\\ns.send(reply(2), flags=1)'\n"
        "stream = bls_call('stream', streamed).exec(decoupled=True)\n"
        "first = fetch(next(stream))\n"
        "uses = [lambda: sender.send(reply(1), flags=1), sender.is_cancelled, request.is_cancelled,\n"
        "        lambda: request.set_release_flags(2), lambda: metric.increment(1), metric.value, family.Metric,\n"
        "        lambda: next(stream)]\n"
        "read, write = os.pipe()\n"
        "child = os.fork()\n"
        "if child == 0:\n"
        "    os.close(read)\n"
        "    for use in uses:\n"
        "        try: use()\n"
        "        except pb_utils.TritonModelException as error: os.write(write, f'{error}\\n'.encode())\n"
        "    os._exit(0)\n"
        "os.close(write)\n"
        "with open(read) as told: refused = told.read().splitlines()\n"
        "os.waitpid(child, 0)\n"
        "return [reply([refused, first, [fetch(response) for response in stream], metric.value()])]"
    )
    where = "available in the process that has created them only, not in a forked one."
    for _ in range(2):
        refused, *rest = served.run_code(code)
        assert refused == [
            *[f"Requests of the server are {where}"] * 4,
            *[f"Metrics and their families are {where}"] * 3,
            f"Streams of responses are {where}",
        ]
        assert rest == [1, [2], 0.0]


def test_only_the_process_that_was_asked_answers(served):
    """The forked one sends a final response before the model does, and asks for the cancellation after it."""
    code = (
        "import os\n"
        "sender = request.get_response_sender()\n"
        "read, write = os.pipe()\n"
        "child = os.fork()\n"
        "if child == 0:\n"
        "    try: sender.send(reply('forked'), flags=1)\n"
        "    except pb_utils.TritonModelException: pass\n"
        "    os.read(read, 1)\n"
        "    try: request.is_cancelled()\n"
        "    except pb_utils.TritonModelException: pass\n"
        "    os._exit(0)\n"
        "sender.send(reply('asked'), flags=1)\n"
        "os.write(write, b'x')\n"
        "os.waitpid(child, 0)\n"
        "return None"
    )
    assert [served.run_code(code) for _ in range(4)] == ["asked"] * 4
