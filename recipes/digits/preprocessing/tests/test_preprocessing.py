import struct
import zlib

import numpy as np
import pytest

from envpack.testing import ModelError


def png(brightness):
    """A PNG file of 8 x 8 grey pixels."""

    def chunk(kind, content):
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    rows = (b"\0" + bytes([brightness]) * 8) * 8
    header = struct.pack(">IIBBBBB", 8, 8, 8, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


def files(*contents):
    return np.array(contents, dtype=np.object_).reshape(-1, 1)


def test_ink_is_16_and_paper_0(triton_model):
    pixels = triton_model("preprocessing").infer(IMAGE=files(png(255), png(0)))["PIXELS"]
    np.testing.assert_allclose(pixels, [[16] * 64, [0] * 64], rtol=1e-6)


def test_refuses_what_is_no_image(triton_model):
    with pytest.raises(ModelError, match="not a readable image"):
        triton_model("preprocessing").infer(IMAGE=files(b"no image"))
