"""`envpack cache`: what it lists, what it removes, and what it would."""

import json
import os
import time

import pytest

from envpack.cli.main import run

DAY = 86400


@pytest.fixture
def stub(tmp_path, monkeypatch):
    """The only entry of a cache, not used for 40 days."""
    monkeypatch.setenv("ENVPACK_CACHE_DIR", str(tmp_path / "cache"))
    folder = tmp_path / "cache/stubs/cp310-x86_64-0123456789abcdef"
    folder.mkdir(parents=True)
    (folder / "file").write_bytes(os.urandom(2_000_000))  # some file systems compress
    used = time.time() - 40 * DAY
    os.utime(folder, (used, used))
    return folder


def test_listing_tells_what_there_is_and_where(stub, tmp_path, capsys):
    assert run(["cache", "ls"]) == 0
    printed = capsys.readouterr().out
    assert ["stubs", "1", "compiled", "stubs", "2.0"] in [line.split() for line in printed.splitlines()]
    assert f"{tmp_path / 'cache'}: 2.0 MB" in printed
    assert run(["cache", "ls", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["cache"] == str(tmp_path / "cache")
    (entry,) = document["entries"]
    assert (entry["kind"], entry["path"]) == ("stubs", str(stub))
    assert entry["size"] >= 2_000_000


def test_paths_are_absolute_wherever_the_cache_is_named_from(stub, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ENVPACK_CACHE_DIR", "cache")
    assert run(["cache", "ls", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["cache"], document["entries"][0]["path"]) == (str(tmp_path / "cache"), str(stub))


def test_pruning_leaves_what_was_used_since(stub, capsys):
    assert run(["cache", "prune", "--days", "50", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["removed"] == []
    assert stub.is_dir()


def test_pruning_may_only_say_what_it_would_remove(stub, capsys):
    assert run(["cache", "prune", "--dry-run", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["dry_run"] is True
    assert [entry["path"] for entry in document["removed"]] == [str(stub)]
    assert stub.is_dir()


def test_pruning_removes_what_nobody_used_for_a_month(stub, capsys):
    assert run(["cache", "prune"]) == 0
    assert capsys.readouterr().err.splitlines()[-1:] == ["  remove … 1 entry, 2.0 MB"]
    assert not stub.exists()


@pytest.mark.parametrize("days", ["nan", "inf", "-1"])
def test_days_that_no_time_can_be_compared_with_are_refused(days, capsys):
    """Everything would be older than NaN days, or nothing."""
    assert run(["cache", "prune", "--days", days]) == 2
    assert "--days" in capsys.readouterr().err
