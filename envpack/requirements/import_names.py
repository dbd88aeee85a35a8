"""Names under which packages are imported, where these differ from the names under which they are installed."""

from __future__ import annotations

from collections.abc import Collection

from envpack.support.text import normalise_name

# Modules of the standard library of older Pythons that packages with their names provide, such as standard-aifc.
_STANDARD = (
    *("aifc", "asynchat", "asyncore", "cgitb", "chunk", "crypt", "imghdr", "mailcap", "nntplib", "pipes", "smtpd"),
    *("sndhdr", "sunau", "telnetlib", "uu", "xdrlib"),
)
# For each name in an import: the packages that provide it, the one to propose first.
_PACKAGES = {
    **{module: (f"standard-{module}",) for module in _STANDARD},
    "absl": ("absl-py",),
    "attr": ("attrs",),
    "audioop": ("audioop-lts",),
    "awq": ("autoawq",),
    "Bio": ("biopython",),
    "box": ("python-box",),
    "bson": ("pymongo", "bson"),
    "bs4": ("beautifulsoup4",),
    "cgi": ("legacy-cgi",),
    "Crypto": ("pycryptodome", "pycrypto"),
    "cuda": ("cuda-python",),
    "cupy": ("cupy-cuda12x", "cupy"),
    "cv2": ("opencv-python-headless", "opencv-python", "opencv-contrib-python", "opencv", "py-opencv"),
    "dateutil": ("python-dateutil",),
    "decouple": ("python-decouple",),
    "distutils": ("setuptools",),
    "docx": ("python-docx",),
    "dotenv": ("python-dotenv",),
    "faiss": ("faiss-cpu", "faiss-gpu"),
    "fastdeploy": ("fastdeploy-python",),
    "ffmpeg": ("ffmpeg-python",),
    "fitz": ("pymupdf",),
    "git": ("gitpython",),
    "google.api": ("googleapis-common-protos",),
    "google.auth": ("google-auth",),
    "google.oauth2": ("google-auth",),
    "google.protobuf": ("protobuf",),
    "gridfs": ("pymongo",),
    "grpc": ("grpcio",),
    "hydra": ("hydra-core",),
    "imp": ("zombie-imp",),
    "jwt": ("pyjwt",),
    "llama_cpp": ("llama-cpp-python",),
    "magic": ("python-magic",),
    "mpl_toolkits": ("matplotlib",),
    "nemo": ("nemo-toolkit",),
    "nvidia.dali": ("nvidia-dali-cuda120", "nvidia-dali-cuda110", "nvidia-dali-cuda130"),
    "OpenSSL": ("pyopenssl",),
    "paddle": ("paddlepaddle", "paddlepaddle-gpu"),
    "PIL": ("pillow", "pillow-simd"),
    "pkg_resources": ("setuptools",),
    "pptx": ("python-pptx",),
    "psycopg2": ("psycopg2-binary", "psycopg2"),
    "pylab": ("matplotlib",),
    "pytorch_lightning": ("pytorch-lightning", "lightning"),
    "serial": ("pyserial",),
    "skimage": ("scikit-image",),
    "sklearn": ("scikit-learn",),
    "slugify": ("python-slugify",),
    "snappy": ("python-snappy",),
    "torch": ("torch", "pytorch"),
    "turbojpeg": ("pyturbojpeg",),
    "umap": ("umap-learn",),
    "whisper": ("openai-whisper",),
    "yaml": ("pyyaml",),
    "zmq": ("pyzmq",),
}
NAMESPACES = {
    *("azure", "azure.ai", "azure.cognitiveservices", "azure.keyvault", "azure.storage", "backports"),
    *("google", "google.cloud", "nvidia", "pyannote", "ruamel"),
}
"""Folders without code of their own, in which many packages have theirs."""
_SHORTEST = 3  # letters of a name that may be a part of another


def package_part(name: str) -> str:
    """The first part of a dotted name, or more in a namespace: ``"google.cloud.storage"`` of what it has."""
    first, *others = name.rstrip(".*").split(".")
    for part in others:
        if first in NAMESPACES:
            first = f"{first}.{part}"
    return first


def package_of(module: str) -> str:
    """The package to install for a module that is imported, for example ``"pillow"`` for ``"PIL"``."""
    found = _PACKAGES.get(module) or _PACKAGES.get(module.upper())
    return found[0] if found else normalise_name(module)


def requirement_of(module: str) -> str:
    """What to require for a module that is imported: its package, with extras if hardly anything imports without."""
    package = package_of(module)
    if module == "pkg_resources":
        return f"{package}<81"  # later ones are without it
    return f"{package}[grpc,http]" if package == "tritonclient" else package


def package_with(name: str) -> str:
    """What to require for a dotted name, in words if it is only that of a namespace."""
    part = package_part(name)
    return f"the package with the part of {part} that is imported" if part in NAMESPACES else requirement_of(part)


def is_of_package(module: str) -> bool:
    return module in _PACKAGES


def is_provided(module: str, packages: Collection[str]) -> bool:
    """Whether one of some packages may provide a module, judged by their names; yes in doubt."""
    names = {normalise_name(package) for package in packages}
    if names.intersection(_PACKAGES.get(module, ())):
        return True
    word = _letters(module)
    return any(word == _letters(name) or (len(word) >= _SHORTEST and word in _letters(name)) for name in names)


def _letters(name: str) -> str:
    return "".join(character for character in name.lower() if character.isalnum())
