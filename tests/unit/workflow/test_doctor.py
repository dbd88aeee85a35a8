import json
import socket

import pytest

from envpack.cli.main import run


@pytest.fixture
def silent():
    """An address where somebody listens and says nothing."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"


def test_what_does_not_answer_is_waited_for_once_and_not_for_long(tmp_path, silent, monkeypatch, capsys):
    monkeypatch.setattr("envpack.workflow.doctor.services._RESPONSE_SECONDS", 0.5)
    (tmp_path / "envpack.toml").write_text(f'channels = ["{silent}/one", "{silent}/two", "{silent}/three"]\n')
    monkeypatch.setenv("UV_INDEX_URL", f"{silent}/simple")
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none")
    assert run(["doctor", "--repository", str(tmp_path), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["checks"]
    channels = [check["what"] for check in found if check["name"] == "channel"]
    assert channels == [f"{silent}/{name}: no response within 0.5 s" for name in ("one", "two", "three")]
    checks = {check["name"]: check for check in found}
    assert checks["index"]["what"] == f"{silent}/simple: no response within 0.5 s"
    assert all(check["fix"] for check in checks.values() if check["state"] != "ok")


def test_only_who_is_strict_gets_an_exit_code(tmp_path, monkeypatch, capsys):
    (tmp_path / "file").touch()
    monkeypatch.setenv("UV_OFFLINE", "1")
    monkeypatch.setenv("ENVPACK_CACHE_DIR", str(tmp_path / "file/cache"))
    words = ["doctor", "--repository", str(tmp_path)]
    assert run(words) == 0
    assert "ENVPACK_CACHE_DIR" in capsys.readouterr().out
    assert run([*words, "--strict"]) == 1
