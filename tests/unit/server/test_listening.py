"""Who listens on a port is read from /proc."""

import os
import socket
import subprocess
import sys

import pytest

from envpack.server.procfs import listens

LISTEN = "import socket; s = socket.create_server(('127.0.0.1', 0)); print(s.getsockname()[1], flush=True); input()"


@pytest.mark.parametrize(("family", "address"), [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")])
def test_a_process_listens_once_it_does(family, address):
    with socket.socket(family) as own:
        try:
            own.bind((address, 0))
        except OSError:
            pytest.skip("this machine has no IPv6")
        port = own.getsockname()[1]
        assert not listens(os.getpid(), port)
        own.listen()
        assert listens(os.getpid(), port)
        assert not listens(os.getpid(), port + 1)
        assert not listens(os.getppid(), port)


def test_a_connection_to_a_port_does_not_listen_on_it():
    with subprocess.Popen([sys.executable, "-c", LISTEN], stdin=-1, stdout=-1, text=True) as other:
        port = int(other.stdout.readline())
        with socket.create_connection(("127.0.0.1", port)):
            assert listens(other.pid, port)
            assert not listens(os.getpid(), port)
        other.communicate("\n")
    assert not listens(other.pid, port)
