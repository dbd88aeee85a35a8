import struct
import zlib

import numpy as np
import pytest

from envpack.testing import ModelError


def png(colour, width, height, rows=None):
    """A PNG file of one colour; it may name more rows than it has."""

    def chunk(kind, content):
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    pixels = (b"\0" + bytes(colour) * width) * (height if rows is None else rows)
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(pixels)) + chunk(b"IEND", b"")


def files(*contents):
    return np.array(contents, dtype=np.object_).reshape(-1, 1)


def test_names_the_colour_of_each_file(triton_model):
    """The files have different sizes, and channels are in the right order."""
    outputs = triton_model("pipeline").infer(FILE=files(png((250, 10, 20), 8, 8), png((20, 10, 250), 300, 100)))
    assert outputs["COLOUR"].tolist() == [[b"red"], [b"blue"]]
    assert outputs["SHARE"].tolist() == [[1], [1]]


def test_refuses_what_is_no_image(triton_model):
    with pytest.raises(ModelError, match="not a readable image"):
        triton_model("pipeline").infer(FILE=files(b"GIF89a, cut off"))


@pytest.mark.parametrize("file", [b"", png((0, 0, 0), 1 << 15, 1 << 16, rows=1)], ids=["empty", "far too large"])
def test_an_unusable_file_is_an_error_of_its_request_only(triton_model, file):
    requests = [{"FILE": files(png((0, 255, 0), 64, 64))}, {"FILE": files(file)}]
    good, bad = triton_model("decode").infer_batch(requests, return_errors=True)
    assert good["PIXELS"][0, 0, 0].tolist() == [0, 1, 0]
    assert "not a readable image" in str(bad)
    assert "Traceback" not in str(bad)
