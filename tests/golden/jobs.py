"""The Jobs for Kubernetes that `build` and `verify` print."""

from tests.golden.repository import write_repository

_STORE = ("--store", "s3://bucket/envpack", "--channel", "https://channel.example/conda")
_IMAGE = ("--envpack-image", "registry.example/envpack:1")
_VERIFY_OPTIONS = (
    *("--image", "registry.example/triton:24.10", "--claim", "our-models", "--set", "served_from=/mnt/models", "--gpu"),
    *("--set", "shm_size=1g", "--memory", "2g", "--server", "/srv/tritonserver"),
    *("--timeout", "77", "--set", "requests=3", "--env", "A=1", "--env", "B=2", "--set", "preload=tcmalloc"),
    *("--set", "server_arg=--backend-config=python,x=1", "--set", "server_arg=--log-verbose=1"),
)
_CASES = {
    "build.yaml": ("build", *_STORE),
    "build-for-arm.yaml": (
        "build",
        "double",
        *_STORE,
        "--platform",
        "linux-aarch64",
        "--python",
        "3.12",
        "--set",
        "strip=true",
    ),
    "build-options.yaml": (
        *(
            "build",
            "double",
            *_STORE,
            "--build-image",
            "registry.example/envpack:1",
            "--secret",
            "bucket",
            "--memory",
            "1g",
        ),
        *("--allow-source", "b", "--stub", "always", "--set", "toolchain=zig", "--triton", "25.08"),
    ),
    "verify.yaml": ("verify", *_IMAGE),
    "verify-options.yaml": ("verify", "double", "half", *_IMAGE, *_VERIFY_OPTIONS),
    "verify-wheel.yaml": ("verify", "--envpack-wheel", "/models/tools/triton_envpack-1-py3-none-any.whl"),
}


def texts(place):
    """The YAML of each command, by file name."""
    repository = write_repository(place.folder / "repository")
    return {name: _emitted(place, repository, words) for name, words in _CASES.items()}


def _emitted(place, repository, words):
    ended = place.envpack("kubernetes", *words, "--repository", repository)
    assert (ended.code, ended.err) == (0, ""), ended
    return place.text(ended.out)
