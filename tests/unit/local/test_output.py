"""What a model's process prints: passed on byte by byte to a file, escaped for a terminal, and its end kept."""

import os
import tty

import pytest

from envpack.local import starting as module
from envpack.local.starting import Output
from tests.waiting import soon


class Pipe:
    """A pipe, and what has come through it."""

    def __init__(self):
        self.read_end, self.write_end = os.pipe()

    def close(self):
        os.close(self.write_end)
        content = b""
        while piece := os.read(self.read_end, 1 << 20):
            content += piece
        os.close(self.read_end)
        return content


def printed(output, *pieces):
    """What is kept of what a process writes, once it has ended."""
    for piece in pieces:
        os.write(output.write_end, piece)
    os.close(output.write_end)
    return output.end()


def test_bytes_are_passed_on_as_they_are_and_kept_as_text():
    target = Pipe()
    output = Output(target.write_end)
    assert not os.isatty(output.write_end)
    assert printed(output, b"\x1b[31mred", b"\xff\r\n") == "\x1b[31mred\ufffd\r\n"
    assert target.close() == b"\x1b[31mred\xff\r\n"


def test_only_the_end_is_kept(monkeypatch):
    monkeypatch.setattr(module, "_KEPT", 5)
    target = Pipe()
    assert printed(Output(target.write_end), b"first ", b"second") == "econd"
    assert target.close() == b"first second"


def test_a_target_that_nobody_reads_keeps_no_process():
    target = Pipe()
    os.close(target.read_end)
    output = Output(target.write_end)
    os.write(output.write_end, b"lost")
    os.close(output.write_end)
    assert output.end() == "lost"
    os.close(target.write_end)


def test_a_program_that_a_model_has_started_is_not_waited_for(monkeypatch):
    monkeypatch.setattr(module, "_END_SECONDS", 0.05)
    target = Pipe()
    output = Output(target.write_end)
    other = os.dup(output.write_end)
    os.write(output.write_end, b"text")
    os.close(output.write_end)
    assert soon(lambda: output._tail == b"text")
    assert output.end() == "text"
    os.write(other, b" more")
    os.close(other)
    output._thread.join(60)
    assert target.close() == b"text more"


@pytest.fixture
def terminal():
    """The two ends of a terminal that shows bytes as they come."""
    screen, keyboard = os.openpty()
    tty.setraw(keyboard)
    yield screen, keyboard
    os.close(screen)
    os.close(keyboard)


def test_a_terminal_gets_lines_that_cannot_control_it(terminal):
    screen, target = terminal
    output = Output(target)
    assert os.isatty(output.write_end), "so that a program does not hold its lines back"
    text = "é".encode()
    os.write(output.write_end, b"\x1b[2Jline\n" + text[:1])
    os.write(output.write_end, text[1:] + b"\n")
    os.close(output.write_end)
    output.end()
    output._thread.join(60)
    shown = b""
    while not shown.endswith("é\n".encode()):
        shown += os.read(screen, 1 << 16)
    assert shown == "\\x1b[2Jline\né\n".encode()
