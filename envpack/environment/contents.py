"""What of an environment's files decides where it can be used: NumPy's interface, CUDA's libraries, what it hides."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from envpack.environment.inventory import Entry
from envpack.environment.store import Package

_CUDA = re.compile(
    r"(?:^|/)(lib(?:cudart|cublas|cublasLt|cudnn\w*|cufft\w*|curand|cusolver\w*|cusparse|cupti|nccl|nvinfer\w*|nvrtc\w*"
    r"|nvToolsExt|nvJitLink)\.so(?:\.[\d.]+)?)$"
)
# Libraries that the server, or its image, has too. Those in an environment's `lib` come first for the stub.
_SYSTEM = re.compile(r"^lib/(lib(?:crypto|ssl|curl|gcc_s|stdc\+\+|tinfo|z|cudart|nccl)\.so(?:\.[\d.]+)?)$")


def numpy_abi(packages: Iterable[Package]) -> str:
    """The major version of NumPy, which names its binary interface; ``""`` without NumPy."""
    return next((package.version.partition(".")[0] for package in packages if package.name == "numpy"), "")


def cuda_libraries(entries: Sequence[Entry]) -> list[str]:
    """The names of CUDA's libraries that an environment brings, wherever they lie."""
    return sorted({match[1] for entry in entries if (match := _CUDA.search(entry.path))})


def hidden_libraries(entries: Sequence[Entry]) -> list[str]:
    """The names of the system's libraries that an environment has copies of where loaders look first."""
    return sorted({match[1] for entry in entries if (match := _SYSTEM.search(entry.path))})
