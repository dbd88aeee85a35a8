"""Messages are explained in a time that grows with their length only."""

import pytest

from envpack.server import read_model_error
from envpack.server.log import last_lines, plain_lines, stub_reports
from envpack.verification.fault_catalogue import FAULTS, explain

MEGABYTE = 1 << 20
# What makes a pattern with unlimited repetitions look at the same characters again and again.
HARD = [
    "x" * MEGABYTE,
    "SyntaxError: " + "(" * MEGABYTE,
    "SyntaxError: (" * (MEGABYTE // 14),
    "TabError: (a, line " * (MEGABYTE // 19),
    "libx.so" * (MEGABYTE // 7),
    "a.so.so.so" * (MEGABYTE // 10),
    "in ensemble " * (MEGABYTE // 12),
    "canonical path for " * (MEGABYTE // 19),
    "No module named '" * (MEGABYTE // 17),
    "version `GLIBC_2." * (MEGABYTE // 17),
    "error while loading shared libraries: " * (MEGABYTE // 38),
    "At:\n  /models/m/1/model.py(" * (MEGABYTE // 27),
    "(1" * (MEGABYTE // 2),
    "Poll failed for model directory '" * (MEGABYTE // 33),
]


@pytest.mark.timeout(60)
@pytest.mark.parametrize("text", HARD, ids=lambda text: text[:20])
def test_long_messages_are_explained_at_once(text):
    explain(text, "load-failed")
    read_model_error(f"load failed for model 'm': {text}\n\nAt:\n{text}", "/models/m")
    assert all(len(line) < 5000 for line in (*last_lines(text), *plain_lines(text)))


def test_both_ends_of_a_long_message_are_searched():
    for text in ("MemoryError" + "x" * MEGABYTE, "x" * MEGABYTE + " MemoryError"):
        assert explain(text, "load-failed")[0] == "out-of-memory"


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: f"{fault.kind} {fault.pattern.pattern[:30]}")
def test_no_pattern_repeats_without_a_limit(fault):
    import re._parser as parser  # the same that compiles it

    def repeats(tree):
        for operator, value in tree:
            if operator in (parser.MAX_REPEAT, parser.MIN_REPEAT):
                _, most, inner = value
                yield most
                yield from repeats(inner)
            elif operator is parser.SUBPATTERN:
                yield from repeats(value[-1])
            elif operator is parser.BRANCH:
                for branch in value[1]:
                    yield from repeats(branch)

    assert all(most <= 4096 for most in repeats(parser.parse(fault.pattern.pattern)))


def test_a_model_that_prints_what_looks_like_a_report_is_harmless():
    log = "envpack-stub " + "[" * 100_000 + '\nenvpack-stub {"instance": ' + "[" * 100_000 + "\n"
    assert stub_reports(log) == {}
