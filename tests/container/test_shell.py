"""One shell in a container that answers several threads, whatever else writes to its output."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from envpack.server.daemon import ContainerShell

pytestmark = pytest.mark.thorough

ECHO = 'printf "%s" "$1"'


@pytest.fixture
def shell(daemon):
    container = daemon.client.containers.run(daemon.image, ["sleep", "infinity"], detach=True, network_mode="none")
    shell = ContainerShell(container)
    yield shell
    shell.close()
    container.remove(force=True)


def test_each_thread_gets_the_answers_to_its_own_scripts(shell):
    def ask(name):
        return {shell.run(ECHO, f"{name} " * 20_000) for _ in range(50)}

    names = [f"thread-{number}" for number in range(4)]
    with ThreadPoolExecutor(len(names)) as threads:
        answers = list(threads.map(ask, names))
    assert answers == [{(f"{name} " * 20_000).encode()} for name in names]


def test_an_answer_without_end_is_cut_off_and_the_next_script_is_answered(shell):
    assert shell.run("while :; do printf '%1000s' x; done", "") == b""
    assert shell.run(ECHO, "after") == b"after"
