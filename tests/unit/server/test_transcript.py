"""The output of a server is read with a limit."""

import pytest

from envpack.server.transcript import excerpt


@pytest.fixture
def log(tmp_path):
    with (tmp_path / "log").open("w+b", buffering=0) as file:
        yield file


def test_output_is_read_from_a_position_on(log):
    log.write("first line\nsecond – line\n".encode() + b"\xff\n")
    assert excerpt(log.fileno()) == "first line\nsecond – line\n�\n"
    assert excerpt(log.fileno(), 11) == "second – line\n�\n"
    assert excerpt(log.fileno(), 1000) == ""


def test_of_long_output_beginning_and_end_are_kept(log):
    log.write(b"begins here\n" + b"x" * (40 << 20) + b"\nends here\n")
    for since, beginning in ((0, "begins here\n"), (7, "here\n")):
        text = excerpt(log.fileno(), since)
        assert text.startswith(beginning)
        assert text.endswith("\nends here\n")
        assert len(text) < 5 << 20
        assert f"… {(36 << 20) + 23 - since} bytes are left out …" in text
