"""The command line moves models between the two layouts, and the real server serves them in either."""

import re

import pytest

from envpack.settings.releases import find_release
from envpack.settings.table import DEFAULT_RELEASE
from tests.needed_pythons import need

PYTHON = "3.13"
STUB = "triton_python_backend_stub"
LIBRARY = "libtriton_python_3_13.so"


@pytest.fixture(autouse=True)
def python():
    need(PYTHON)


@pytest.mark.thorough
def test_into_a_backend_and_back(doubler, envpack_json):
    backend = doubler.parents[1] / "backends/python_3_13"
    words = ("doubler", "--repository", doubler.parent)
    (doubler.parent / "envpack.toml").write_text('layout = "backend"\n')
    code, document = envpack_json("build", *words, "--python", PYTHON)
    assert code == 0, document
    (built,) = document["models"]
    assert (built["backend"], built["stub"]) == ("python_3_13", str(backend / STUB))
    assert sorted(file.name for file in backend.iterdir()) == sorted(
        [LIBRARY, "model.py", STUB, "triton_python_backend_utils.py"]
    )
    assert not (doubler / STUB).exists()
    assert 'backend: "python_3_13"' in (doubler / "config.pbtxt").read_text()
    code, document = envpack_json("verify", *words)
    assert code == 0, document
    assert document["verdict"]["models"][0]["stub"]["python"].startswith(PYTHON)

    code, document = envpack_json("inspect", doubler.parent)
    assert (code, document["findings"]) == (0, [])

    tree = doubler.parents[1] / "tree"
    code, document = envpack_json("layout", "--repository", doubler.parent, "--output", tree)
    assert code == 0, document
    deployed = ("--repository", tree / "models", "--set", f"backends={tree / 'backends'}")
    code, document = envpack_json("verify", *deployed)
    assert code == 0, document

    code, document = envpack_json("build", *words, "--python", PYTHON)
    assert document["models"][0]["changed"] is False

    (doubler.parent / "envpack.toml").unlink()
    code, document = envpack_json("build", *words, "--python", PYTHON)
    assert document["models"][0]["backend"] == "python_3_13"  # as it was

    code, document = envpack_json("build", *words, "--python", PYTHON, "--set", "layout=model")
    assert (document["models"][0]["backend"], document["models"][0]["stub"]) == ("python", str(doubler / STUB))
    assert re.search(r'^backend: "python"$', (doubler / "config.pbtxt").read_text(), re.MULTILINE)
    code, document = envpack_json("verify", *words)
    assert code == 0, document


def test_a_copied_library_replaces_the_link(doubler, envpack_json, tmp_path):
    server = tmp_path / "server"
    server.mkdir()
    (server / "libtriton_python.so").write_text("library")
    words = ("build", "doubler", "--repository", doubler.parent, "--python", PYTHON, "--set", "layout=backend")
    backends = tmp_path / "elsewhere"
    code, document = envpack_json(*words, "--set", f"backends={backends}", "--set", f"copy_library={server}")
    assert (code, document["error"]["kind"]) == (3, "no-python-backend")
    (doubler.parent / "neighbour").mkdir()
    (doubler.parent / "neighbour/config.pbtxt").write_text("nonsense {")
    (server / "triton_python_backend_utils.py").write_text("utilities")
    assert envpack_json(*words, "--set", f"backends={backends}")[0] == 0
    assert (backends / "python_3_13" / LIBRARY).is_symlink()
    assert envpack_json(*words, "--set", f"backends={backends}", "--set", f"copy_library={server}")[0] == 0
    assert (backends / "python_3_13" / LIBRARY).read_text() == "library"
    assert not (backends / "python_3_13" / LIBRARY).is_symlink()


def test_no_stub_and_a_backend_do_not_go_together(doubler, envpack_json):
    words = ("--repository", doubler.parent, "--python", find_release(DEFAULT_RELEASE).python)
    code, document = envpack_json("build", "doubler", *words, "--set", "layout=backend", "--stub", "never")
    assert (code, document["error"]["kind"]) == (2, "layout-limits")
