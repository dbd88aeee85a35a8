"""What a server is started with."""

import pytest

from envpack.server import ServerSpec
from envpack.settings import Settings


@pytest.mark.parametrize(
    ("arguments", "threads"),
    [
        ((), 2),  # the fewest, on a machine with one processor
        (("--log-info=1", "--model-load-thread-count=7"), 7),
        (("--model-load-thread-count=7", "--model-load-thread-count=1"), 1),
        (("--model-load-thread-count=0",), 1),
        (("--model-load-thread-count", "1", "--log-info", "7"), 1),
        (("--model-load-thread-count=many",), 2),
    ],
)
def test_how_many_loads_can_hang_before_all_others_wait(arguments, threads):
    assert ServerSpec(Settings(server_arg=arguments)).load_threads(()) == threads
