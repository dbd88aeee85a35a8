"""Ctrl-C while a store does not answer: the command ends at once, although a request may take a minute."""

import os
import signal
import subprocess

import pytest

from envpack.store.shared import open_store
from tests.faults.command_line import command, variables
from tests.waiting import soon

CONTENT = bytes(6 << 20)


def started(proxy, *words):
    """A command that waits for an answer of the store."""
    before = len(proxy.requests)
    child = subprocess.Popen(
        command(*words),
        env=variables(),
        stderr=subprocess.PIPE,
        text=True,
    )
    assert soon(lambda: len(proxy.requests) > before or child.poll() is not None)
    assert child.poll() is None, child.stderr.read()
    return child


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_command_that_waits_for_a_store_can_be_interrupted(proxy, faulty_url, number, code):
    proxy.fault = lambda *_: None
    child = started(proxy, "cache", "ls", "--store", faulty_url)
    child.send_signal(number)
    _, said = child.communicate(timeout=50)  # less than the time that the request may take
    assert child.returncode == code
    assert "Traceback" not in said


def test_transfers_side_by_side_can_be_interrupted(proxy, faulty_url, tmp_path):
    store = open_store(faulty_url, push=True)
    for number in range(12):
        (tmp_path / "file").write_bytes(os.urandom(100) + CONTENT)
        store.add("package", str(number), tmp_path / "file")
    proxy.fault = lambda method, path, *response: None if "/blobs/" in path and method == "GET" else response
    child = started(proxy, "cache", "verify", "--store", faulty_url)
    assert soon(lambda: any("/blobs/" in path and method == "GET" for method, path in proxy.requests))
    child.send_signal(signal.SIGINT)
    _, said = child.communicate(timeout=50)
    assert child.returncode == 130
    assert "Traceback" not in said


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_command_that_waits_for_a_registry_can_be_interrupted(project, registry_proxy, number, code):
    registry_proxy.fault = lambda *_: None
    url = f"oci://{registry_proxy.url.removeprefix('http://')}/models:1"
    child = started(registry_proxy, "publish", url, "--repository", project.repository)
    child.send_signal(number)
    _, said = child.communicate(timeout=50)
    assert child.returncode == code
    assert "Traceback" not in said
