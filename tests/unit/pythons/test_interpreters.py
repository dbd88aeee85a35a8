"""Static and foreign interpreters are played by scripts that answer like them; real ones are in tests/environment."""

import json
from pathlib import Path

import pytest

from envpack.pythons import available_interpreters, interpreter_for
from envpack.support.errors import EnvironmentBuildError, UsageError


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("ENVPACK_CACHE_DIR", str(tmp_path / "cache"))


def pretend(folder: Path, version: str, *, library: bool, **changes: object) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    minor = version.rpartition(".")[0]
    shared = folder / f"libpython{minor}.so.1.0"
    if library:
        shared.touch()
    facts = {
        "version": version,
        "prefix": str(folder.parent),
        "library": str(shared) if library else None,
        "include": "/i",
        "stdlib": "/s",
        "release": True,
        "implementation": "cpython",
        "patched": False,
    } | changes
    program = folder / f"python{minor}"
    program.write_text(f"#!/bin/sh\necho x >> {folder}/asked\necho '{json.dumps(facts)}'\n")
    program.chmod(0o755)
    return folder


@pytest.mark.parametrize("version", ["", "3", "3.10.2", "3.x", "ten", "2.7", "3.6", "3.14"])
def test_malformed_or_unsupported_version_is_a_usage_error(version):
    with pytest.raises(UsageError) as caught:
        interpreter_for(version)
    assert caught.value.kind == "bad-python-version"


def test_missing_version_names_what_is_available_and_how_to_get_it(tmp_path):
    place = pretend(tmp_path / "a/bin", "3.9.1", library=True)
    with pytest.raises(EnvironmentBuildError) as caught:
        interpreter_for("3.8", search=[place])
    assert caught.value.kind == "unknown-python"
    assert "available: 3.9" in caught.value.message
    assert "pyenv install 3.8" in caught.value.hint


def test_static_interpreter_is_refused_with_the_remedy(tmp_path):
    with pytest.raises(EnvironmentBuildError) as caught:
        interpreter_for("3.8", search=[pretend(tmp_path / "bin", "3.8.2", library=False)])
    assert caught.value.kind == "static-interpreter"
    assert "--enable-shared" in caught.value.hint


def test_shared_interpreter_wins_over_a_newer_static_one(tmp_path):
    old = pretend(tmp_path / "old/bin", "3.8.2", library=True)
    new = pretend(tmp_path / "new/bin", "3.8.9", library=False)
    assert interpreter_for("3.8", search=[new, old]).version == "3.8.2"


def test_newest_patch_release_wins(tmp_path):
    places = [pretend(tmp_path / name / "bin", f"3.8.{name}", library=True) for name in ("9", "10", "2")]
    assert interpreter_for("3.8", search=places).version == "3.8.10"


@pytest.mark.parametrize("change", [{"implementation": "pypy"}, {"release": False}])
def test_interpreters_that_cannot_be_used_do_not_count(tmp_path, change):
    assert available_interpreters([pretend(tmp_path / "bin", "3.8.2", library=True, **change)]) == ()


def test_interpreter_is_asked_once_until_it_changes(tmp_path):
    place = pretend(tmp_path / "bin", "3.8.2", library=True)
    for _ in range(3):
        interpreter_for("3.8", search=[place])
    assert (place / "asked").read_text() == "x\n"
    pretend(place, "3.8.20", library=True)
    assert interpreter_for("3.8", search=[place]).version == "3.8.20"


def test_interpreters_of_other_versions_are_not_started(tmp_path):
    place = pretend(tmp_path / "bin", "3.8.2", library=True)
    pretend(place, "3.9.2", library=True)
    interpreter_for("3.8", search=[place])
    assert (place / "asked").read_text() == "x\n"


def test_broken_interpreter_counts_as_none(tmp_path):
    (tmp_path / "python3.8").write_text("#!/bin/sh\nexit 3\n")
    (tmp_path / "python3.8").chmod(0o755)
    assert available_interpreters([tmp_path]) == ()


def test_interpreter_of_the_distribution_is_the_last_choice(tmp_path):
    own = pretend(tmp_path / "usr/bin", "3.8.20", library=True, patched=True)
    other = pretend(tmp_path / "opt/bin", "3.8.2", library=True)
    assert interpreter_for("3.8", search=[own, other]).version == "3.8.2"
    assert interpreter_for("3.8", search=[own]).distribution
