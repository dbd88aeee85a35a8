"""What each of many equal requests leaves in a model's processes."""

from dataclasses import astuple, replace

from envpack.verification.checks.process import Usage, check_leaks, usage_of
from tests.tables import every_row
from tests.unit.verification.words import STUB, Server


def test_what_a_models_processes_use_is_counted_together():
    server = Server()
    server.processes = [replace(STUB, pid=pid) for pid in (7, 8)]
    server.memory_bytes = {7: 3 << 20, 8: 5 << 20}.get
    server.read_text = lambda file: f"Name:\tx\nThreads:\t{file.split('/')[2]}\n"
    server.children = lambda of=None: tuple(server.processes) if of is None else ()
    server.list_folder = lambda folder: ("0", "1") if folder in ("/proc/7/fd", "/proc/8/fd") else ()
    assert usage_of(server, "m") == Usage(8 << 20, threads=15, files=4, children=0)


@every_row(
    ("left", "requests", "evidence"),
    [
        (Usage(0, 20, 0, 0), 20, "20 equal requests, one after the other, left 20 threads"),
        (Usage(0, 0, 41, 0), 20, "20 equal requests, one after the other, left 41 open files"),
        (
            Usage(16 << 20, 0, 0, 10),
            10,
            "10 equal requests, one after the other, left 10 processes and 16 MiB of memory",
        ),
        (Usage(50 << 20, 0, 0, 0), 200, "200 equal requests, one after the other, left 50 MiB of memory"),
        (Usage(15 << 20, 19, 19, 19), 20, ""),
        (Usage(49 << 20, 0, 0, 0), 200, ""),
        (Usage(99 << 20, 9, 9, 9), 9, ""),
        (Usage(-5, -3, -3, -1), 20, ""),
    ],
)
def test_what_each_request_leaves_is_a_warning(left, requests, evidence):
    before = Usage(7 << 20, 5, 6, 1)
    after = Usage(*(one + more for one, more in zip(astuple(before), astuple(left), strict=True)))
    found = check_leaks(before, after, requests)
    assert (found.evidence if found else "") == evidence
    assert found is None or found.status == "warning"
