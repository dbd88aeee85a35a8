"""Work on several models goes on after one that fails, and every failure is reported."""

import json
from pathlib import Path

import pytest

from envpack.cli.console import Console
from envpack.cli.each_model import EachModel
from envpack.settings.table import Settings
from envpack.support.errors import EnvironmentBuildError, InputError, StorageError


def failing(*names, error=lambda name: InputError("bad-config", f"{name} is wrong", where=f"/m/{name}")):
    def work(name):
        if name in names:
            raise error(name)
        return name.upper()

    return work


def test_all_are_done(capsys):
    each = EachModel(["a", "b"], Console(as_json=True))
    assert each.do(failing()) == ["A", "B"]
    assert each.finish({"models": ["a", "b"]}, "built") == 0
    assert json.loads(capsys.readouterr().out) == {"schema": 1, "models": ["a", "b"]}


def test_those_that_fail_are_left_out_and_named_at_the_end(capsys):
    each = EachModel(["a", "b", "c", "d"], Console(as_json=True))
    assert each.do(failing("c")) == ["A", "B", "D"]
    build_error = EnvironmentBuildError("unresolvable", "no such package", where="/m/b")
    assert each.do(failing("b", error=lambda _: build_error)) == ["A", "D"]
    assert each.left == ["a", "d"]
    assert each.finish({"models": ["a", "d"]}, "built") == 4  # that of the first model
    shown = capsys.readouterr()
    document = json.loads(shown.out)
    assert document["models"] == ["a", "d"]
    assert [(failed["name"], failed["error"]["kind"]) for failed in document["failed"]] == [
        ("b", "unresolvable"),
        ("c", "bad-config"),
    ]
    assert document["error"] == document["failed"][0]["error"]
    assert "error: /m/b: b: no such package (unresolvable)" in shown.err
    assert "error: /m/c: c: c is wrong (bad-config)" in shown.err
    assert shown.err.endswith("2 of 4 models built\n")


def test_one_error_of_several_models_is_shown_once(capsys):
    each = EachModel(["a", "b", "c"], Console(as_json=True))
    each.do(failing("a", "c", error=lambda _: EnvironmentBuildError("index-unreachable", "no network")))
    assert each.finish({}, "locked") == 4
    shown = capsys.readouterr()
    assert [failed["name"] for failed in json.loads(shown.out)["failed"]] == ["a", "c"]
    assert shown.err.count("no network") == 1
    assert "error: a, c: no network" in shown.err


def test_one_error_of_all_models_is_the_error_of_the_command():
    each = EachModel(["a", "b"], Console())
    each.do(failing("a", "b", error=lambda _: EnvironmentBuildError("index-unreachable", "no network")))
    with pytest.raises(EnvironmentBuildError, match="no network"):
        each.finish({}, "locked")


def test_the_only_model_fails_as_the_command_does():
    with pytest.raises(InputError, match="a is wrong"):
        EachModel(["a"], Console()).do(failing("a"))


def test_a_file_that_cannot_be_read_is_an_error_of_its_model(capsys):
    each = EachModel(["a", "b"], Console(as_json=True))
    assert each.do(failing("a", error=lambda _: PermissionError(13, "Permission denied", "/m/a/config.pbtxt"))) == ["B"]
    assert each.finish({}, "built") == StorageError.exit_code
    assert json.loads(capsys.readouterr().out)["error"]["where"] == "/m/a/config.pbtxt"


def test_a_bug_ends_the_command():
    with pytest.raises(ZeroDivisionError):
        EachModel(["a", "b"], Console()).do(lambda _: 1 / 0)


def test_each_failure_has_its_own_file_of_details(capsys, tmp_path, monkeypatch):
    monkeypatch.setenv("ENVPACK_CACHE_DIR", str(tmp_path))
    each = EachModel(["a", "b", "c"], Console(as_json=True))
    each.do(failing("a", "b", error=lambda name: InputError("unresolvable", name, details=f"log of {name}")))
    each.finish({}, "built")
    failed = json.loads(capsys.readouterr().out)["failed"]
    assert [Path(entry["error"]["details"]).read_text() for entry in failed] == ["log of a", "log of b"]


def test_the_next_command_repeats_what_was_said_without_secrets(capsys):
    each = EachModel(["a", "b"], Console())
    said = Settings(python="3.8", channels=("./a channel", "https://me:word@conda.example/main"), packer="conda-pack")
    each.next_step("build", Path("models"), ["b"], said)
    folder = Path("a channel").absolute().as_uri()
    assert capsys.readouterr().err == (
        f"next: envpack build --repository models --python 3.8 --channel {folder} --channel"
        " https://conda.example/main --set packer=conda-pack a b\n"
    )
    each.next_step("verify", Path(), [], said)
    assert capsys.readouterr().err == "next: envpack verify\n"
