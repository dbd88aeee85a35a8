"""Processes that ended after their answers, of which only the server's log has a record."""

import json

import pytest

from envpack.server.log import excerpt
from envpack.verification.checks.server import check_restarts

HEAD = "1128 19:49:06.229655 31388 model.py:0] "
AGAIN = json.dumps("'m_0' was restarted (1, process 9): it exited with status 3")


class Server:
    """A server whose log is a file."""

    def __init__(self, file):
        self._file = file

    def log_size(self):
        return self._file.tell()

    def log(self, since=0, until=None):
        return excerpt(self._file.fileno(), since, until)


@pytest.fixture
def check(tmp_path):
    """The check of a log."""

    def check(log):
        with (tmp_path / "log").open("w+b", buffering=0) as file:
            file.write(log.encode())
            return check_restarts(Server(file))

    return check


def test_a_process_that_ended_after_its_answers_is_a_fault(check):
    found = check(f"W{HEAD}{AGAIN}\n")
    assert (found.status, found.evidence) == ("failed", "m_0 was started again: it exited with status 3")
    assert check(f"I{HEAD}{AGAIN}\n") is None


@pytest.mark.parametrize("part", [1, 2, 3])
def test_it_is_found_in_a_long_log_wherever_parts_of_it_are_read(check, part):
    for before in range((part << 20) - 120, (part << 20) + 20, 20):
        found = check(f"{'x' * before}\nW{HEAD}{AGAIN}\n{'y' * (4 << 20)}\n")
        assert found.evidence == "m_0 was started again: it exited with status 3"
