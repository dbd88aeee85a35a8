"""What runs a model is told from the stub's own report, which may come late, and from its file."""

import json

import pytest

from envpack.verification import stubs
from envpack.verification.runtimes.interface import Process

REPORT = {"instance": "m_0_0", "python": "3.12.1", "numpy": "2.5.5", "stub": "0.1.0"}
ARGUMENTS = ("stub", "/r/m/1/model.py", "region", "1", "1", "1", "/b", "336", "m_0_0", "DEFAULT")
STUB = Process(7, "triton_python_b", False, ARGUMENTS)


class Server:
    """Its log has the report from the second look on."""

    def __init__(self, report):
        self.logs = ["", f"I1121 envpack-stub {json.dumps(report)}" if report else ""]

    def log(self):
        return self.logs.pop(0) if len(self.logs) > 1 else self.logs[0]

    def executable(self, pid):
        return "/r/m/triton_python_backend_stub"

    def file_here(self, place):
        return None

    def names_in(self, folder):
        return ()

    def mapped_files(self, pid):
        return ("/e/lib/libpython3.12.so.1.0",)


@pytest.fixture
def ours(monkeypatch):
    monkeypatch.setattr(stubs, "_version_of_ours", lambda executable: "0.1.0")
    monkeypatch.setattr(stubs, "_REPORT_SECONDS", 0.2)


def test_the_report_of_our_stub_is_waited_for(ours):
    seen = stubs.identify(Server(REPORT), STUB)
    assert (seen.python, seen.numpy, seen.version) == ("3.12.1", "2.5.5", "0.1.0")


def test_our_stub_is_known_by_its_file_when_it_says_nothing(ours):
    seen = stubs.identify(Server(None), STUB)
    assert (seen.python, seen.version) == ("3.12", "0.1.0")


def test_another_stub_is_known_by_what_it_has_mapped():
    seen = stubs.identify(Server(None), STUB)
    assert (seen.python, seen.version) == ("3.12", "")
