"""Small contents of strings and bytes: what a model may read that is more than a number."""

from __future__ import annotations

import base64
import io
import json
import math
import struct
import wave
import zlib
from collections.abc import Callable
from typing import Literal

Content = Literal["text", "JSON", "PNG", "JPEG", "WAV", "PNG in base64"]

_SIDE = 64  # of the images, in pixels
_RATE = 16_000  # samples per second
_JPEG = base64.b64decode(
    "/9j/4AAQSkZJRgABAQAAAQABAAD/2wBDACgcHiMeGSgjISMtKygwPGRBPDc3PHtYXUlkkYCZlo+AjIqgtObDoKrarYqMyP/L2u71////m8H////6"
    "/+b9//j/2wBDASstLTw1PHZBQXb4pYyl+Pj4+Pj4+Pj4+Pj4+Pj4+Pj4+Pj4+Pj4+Pj4+Pj4+Pj4+Pj4+Pj4+Pj4+Pj4+Pj4+Pj/wAARCABAAEAD"
    "ASIAAhEBAxEB/8QAFwABAQEBAAAAAAAAAAAAAAAAAgEEBf/EABUQAQEAAAAAAAAAAAAAAAAAAAEA/8QAGAEBAQEBAQAAAAAAAAAAAAAAAgMFAQT/"
    "xAAWEQEBAQAAAAAAAAAAAAAAAAABAAL/2gAMAwEAAhEDEQA/AOWEgkFQvStzLQJBUJBFauWISCQSCK1ssQkEgkEVrZbKEgkEgktk5YhIJBIIrVyx"
    "CQSCQRWtliEgkFQitbLZgkEgqElsnLQJBUJBFa2WISCQSCK1csQkEgkEVrZbKEgkEgktk5YhIJBIIrWyxCQSCQRWrliEgkFQitbLf//Z"
)
_QUANTISATION = _JPEG.index(b"\xff\xdb") + 5  # the factor of the mean brightness of each block of 8 x 8 pixels


def content(kind: Content, number: int, parts: int = 1) -> bytes:
    """A small content of a kind and number; ``parts`` are a text's words, or divide a picture or a sound."""
    return _MAKERS[kind](number, parts)


def _text(number: int, words: int) -> str:
    return " ".join([str(number)] * words)


def _png(number: int, parts: int) -> bytes:
    """An RGB image: in it, red grows to the right and green downwards; the number decides about blue."""
    rows = b"".join(
        b"\0" + bytes(value for column in range(_SIDE) for value in (4 * column, 4 * row, 16 * number % 256))
        for row in range(_SIDE // parts)
    )
    header = struct.pack(">IIBBBBB", _SIDE, _SIDE // parts, 8, 2, 0, 0, 0)
    chunks = (_png_chunk(b"IHDR", header), _png_chunk(b"IDAT", zlib.compress(rows)), _png_chunk(b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)


def _png_chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def _jpeg(number: int, _: int) -> bytes:
    """The same image; the number decides about its contrast."""
    image = bytearray(_JPEG)
    image[_QUANTISATION] = 8 + 8 * number % 248
    return bytes(image)


def _wav(number: int, parts: int) -> bytes:
    """At most a second of a tone: one channel, 16 bits, 16 kHz; the number decides about its pitch."""
    pitch = 220 * (1 + number % 16)  # in hertz
    tone = (round(8_000 * math.sin(2 * math.pi * pitch * sample / _RATE)) for sample in range(_RATE // parts))
    made = io.BytesIO()
    with wave.open(made, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(_RATE)
        file.writeframes(struct.pack(f"<{_RATE // parts}h", *tone))
    return made.getvalue()


_MAKERS: dict[Content, Callable[[int, int], bytes]] = {
    "text": lambda number, parts: _text(number, parts).encode(),
    "JSON": lambda number, parts: json.dumps({"text": f"text {_text(number, parts)}", "id": number}).encode(),
    "PNG": _png,
    "JPEG": _jpeg,
    "WAV": _wav,
    "PNG in base64": lambda number, parts: base64.b64encode(_png(number, parts)),
}
CONTENTS: tuple[Content, ...] = tuple(_MAKERS)
