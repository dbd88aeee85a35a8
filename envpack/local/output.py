"""What a model's process prints: passed on as it comes, escaped for a terminal, and its end kept."""

from __future__ import annotations

import codecs
import contextlib
import os
import threading

from envpack.support.text import printable

_CHUNK = 64 << 10
_KEPT = 64 << 10  # bytes
_END_SECONDS = 1.0  # in which what a process has written before its end arrives


class Output:
    """Takes what a process writes to `write_end`, which its starter closes, and passes it on to another descriptor."""

    def __init__(self, target: int) -> None:
        self._target = target
        self._is_terminal = os.isatty(target)
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._tail = b""
        # A program that writes to a terminal does not hold lines back, and may ask questions (breakpoint()).
        self._read_end, self.write_end = os.openpty() if self._is_terminal else os.pipe()
        self._thread = threading.Thread(target=self._forward, name="output", daemon=True)
        self._thread.start()

    def end(self) -> str:
        """Wait for what has been written when the process has ended; returns the last 64 KiB of it.

        A process that the model has started may hold the descriptor for any time: it is not waited for.
        """
        self._thread.join(_END_SECONDS)
        return self._tail.decode("utf-8", "replace")

    def _forward(self) -> None:
        with contextlib.suppress(OSError):  # a terminal's other end is closed; nobody reads the target any more
            while chunk := os.read(self._read_end, _CHUNK):  # no limit: the end of the process ends it
                self._tail = (self._tail + chunk)[-_KEPT:]
                shown = self._shown(chunk)
                while shown:
                    shown = shown[os.write(self._target, shown) :]
        os.close(self._read_end)

    def _shown(self, chunk: bytes) -> bytes:
        if not self._is_terminal:
            return chunk
        lines = self._decoder.decode(chunk).replace("\r\n", "\n")
        return printable(lines).encode()
