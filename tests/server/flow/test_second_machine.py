"""A machine with nothing but envpack and a store: models arrive by their locks, serve, and are published."""

import base64
import json
import os
import shutil
import struct
import zlib

import pytest

from envpack.store.location import parse_location
from envpack.store.objects import Objects
from tests.faults.command_line import assert_refused, envpack
from tests.needed_pythons import need
from tests.object_stores import BUCKET, OTHERS, VARIABLES, moto
from tests.signing_keys import write_pair

pytestmark = pytest.mark.thorough

MODELS = {"preprocessing": "3.8", "postprocessing": "3.12"}


def white_image():
    """A PNG of 8 x 8 white pixels."""

    def chunk(kind, content):
        checked = kind + content
        return struct.pack(">I", len(content)) + checked + struct.pack(">I", zlib.crc32(checked))

    rows = b"".join(b"\0" + b"\xff" * 8 for _ in range(8))
    head = struct.pack(">IIBBBBB", 8, 8, 8, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


@pytest.fixture
def s3(tmp_path, monkeypatch):
    for minor in MODELS.values():
        need(minor)
    for name in OTHERS:
        monkeypatch.delenv(name, raising=False)
    for name, value in VARIABLES.items():
        monkeypatch.setenv(name, value)
    with moto(tmp_path) as address:
        yield f"s3://{address}/{BUCKET}"


@pytest.fixture
def digits(tmp_path):
    """The models of the recipe with images and with text, by the Pythons that they have there."""
    folder = tmp_path / "first/digits"
    done(envpack("init", folder, "--recipe", "digits"))
    for name in ("core", "pipeline"):
        shutil.rmtree(folder / name)
    image = white_image()
    element = {"b64": base64.b64encode(image).decode()}
    samples = {"data": [{"IMAGE": [element]}], "validation_data": [{"PIXELS": [16.0] * 64}]}
    (folder / "preprocessing/envpack").mkdir()
    (folder / "preprocessing/envpack/smoke.json").write_text(json.dumps(samples))
    return folder


@pytest.fixture
def nothing(tmp_path):
    """The variables of a machine without caches, indexes, Pythons and compilers."""
    home = tmp_path / "second"
    (home / "bin").mkdir(parents=True)
    empty = {name: str(home / "bin") for name in ("PATH", "PYENV_ROOT", "UV_PYTHON_INSTALL_DIR", "XDG_DATA_HOME")}
    return empty | {
        "HOME": str(home),
        "ENVPACK_CACHE_DIR": str(home / "cache"),
        "CXX": str(home / "bin/c++"),
        "UV_OFFLINE": "1",
        "UV_CACHE_DIR": str(home / "uv"),
    }


def done(ended):
    assert ended.code == 0, ended.err
    return ended


def test_locks_bring_models_to_a_machine_that_has_nothing(digits, s3, nothing, tmp_path):
    store = ("--store", f"{s3}/store")
    done(envpack("lock", "--repository", digits))
    second = tmp_path / "second/digits"
    shutil.copytree(digits, second)
    done(envpack("build", "--repository", digits, *store, "--set", "push=true"))

    def run(*words):
        return envpack(*words, changes=nothing)

    assert run("build", "--repository", second).code == 4  # for lack of everything
    built = done(run("build", "--repository", second, *store))
    for model, minor in MODELS.items():
        assert f"{model}: Python {minor}." in built.err
    steps = [line for line in built.err.splitlines() if not line.endswith("so far")]
    for fetched in ("fetch environment", "fetch the stub"):
        assert sum(fetched in step for step in steps) == 2
    assert not [word for word in ("install", "compile", "resolve") if f"  {word}" in built.err]
    assert all((second / model / "envpack.lock").is_file() for model in MODELS)
    verdict = done(run("verify", "--repository", second, "--json")).document["verdict"]
    assert {model["name"]: model["ok"] for model in verdict["models"]} == dict.fromkeys(MODELS, True)

    url = f"{s3}/models"
    private, public = write_pair(tmp_path)
    done(run("publish", url, "--repository", second, "--sign", private))
    verified = ("verify", url, "--require-signature", public, "--json")
    verdict = done(run(*verified)).document["verdict"]
    assert verdict["repository"] == url
    assert {model["name"]: model["ok"] for model in verdict["models"]} == dict.fromkeys(MODELS, True)

    objects = Objects(parse_location(url))
    (archive,) = [found for found in objects.list("preprocessing") if found.path.endswith(".tar.gz")]
    content = bytearray(objects.read(archive.path, archive.size)[0])
    content[len(content) // 2] ^= 1
    objects.write(archive.path, bytes(content))
    assert_refused(run(*verified), 3, "published-changed", os.path.basename(archive.path))
