import struct
import zlib

import numpy as np
import pytest

from envpack.testing import ModelError


def png(brightness, size=8):
    """A PNG file of grey pixels, of which it has 8 x 8 whatever the size that it names."""

    def chunk(kind, content):
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    rows = (b"\0" + bytes([brightness]) * 8) * 8
    header = struct.pack(">IIBBBBB", size, size, 8, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


def files(*contents):
    return np.array(contents, dtype=np.object_).reshape(-1, 1)


def test_ink_is_16_and_paper_0(triton_model):
    pixels = triton_model("preprocessing").infer(IMAGE=files(png(255), png(0)))["PIXELS"]
    np.testing.assert_allclose(pixels, [[16] * 64, [0] * 64], rtol=1e-6)


def test_refuses_what_is_no_image(triton_model):
    with pytest.raises(ModelError, match="not a readable image"):
        triton_model("preprocessing").infer(IMAGE=files(b"no image"))


@pytest.mark.parametrize("file", [png(0)[:40], png(0, size=20_000)], ids=["damaged", "far too large"])
def test_an_unusable_image_is_an_error_of_its_request_only(triton_model, file):
    requests = [{"IMAGE": files(png(255))}, {"IMAGE": files(file)}]
    good, bad = triton_model("preprocessing").infer_batch(requests, return_errors=True)
    assert good["PIXELS"].shape == (1, 64)
    assert "not a readable image" in str(bad)
