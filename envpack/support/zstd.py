"""Zstandard: from the standard library of Python 3.14, else from its backport, which is a tenth of zstandard's size."""

from __future__ import annotations

import sys

if sys.version_info >= (3, 14):
    from compression.zstd import ZstdError, compress, decompress
else:
    from backports.zstd import ZstdError, compress, decompress

__all__ = ["ZstdError", "compress", "decompress"]
