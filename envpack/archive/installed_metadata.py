"""Installation records that installers leave in an environment, for environments that say nothing of themselves."""

from __future__ import annotations

import email.parser
import json
import re

from envpack.environment import Package
from envpack.support.package_names import normalised

LARGEST = 8 << 20  # bytes; no record is near that
_CONDA = re.compile(r"conda-meta/[^/]+\.json")
_PIP = re.compile(r"lib/python3\.\d+/site-packages/[^/]+\.dist-info/METADATA")


def is_record(path: str) -> bool:
    """Whether a file, by its path in an environment, is the record of a package."""
    return bool(_CONDA.fullmatch(path) or _PIP.fullmatch(path))


def read_record(path: str, content: bytes) -> Package | None:
    """The package that a record is about; ``None`` if it is none, or damaged."""
    try:
        if _CONDA.fullmatch(path):
            told = json.loads(content)
            said = {key: str(told.get(key) or "") for key in ("version", "license", "sha256")}
            return Package(normalised(str(told["name"])), said["version"], "conda", said["license"], "", said["sha256"])
        told = email.parser.BytesHeaderParser().parsebytes(content)
        license_ = str(told["License-Expression"] or told["License"] or "").strip().partition("\n")[0]
        return Package(normalised(str(told["Name"])), str(told["Version"]), "pip", license_) if told["Name"] else None
    except (ValueError, KeyError, AttributeError, TypeError):
        return None
