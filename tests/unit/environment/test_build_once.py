"""An environment appears in the store only when it is complete, and is built once."""

import errno
import json
import os
import pickle
import threading

import pytest

from envpack.environment.build import build_once
from envpack.environment.store import MANIFEST, SCHEMA
from envpack.support.errors import EnvironmentBuildError, StorageError
from envpack.support.progress import NoProgress
from tests.tables import every_row


def complete(folder):
    """Make a folder an environment."""
    manifest = {
        "schema": SCHEMA, "key": "k", "python": "3.9.1", "minor": "3.9", "packages": [], "glibc": "2.17",
        "glibcxx": "", "platform": "linux-64", "size": 0, "content": "", "stand_ins": 0,
    }  # fmt: skip
    (folder / MANIFEST).write_text(json.dumps(manifest))


def unexpected(_):
    pytest.fail("built again")


def names(folder):
    return sorted(os.listdir(folder))


def test_it_is_built_in_an_empty_folder_with_another_name(tmp_path):
    folder = tmp_path / "cache/environments/k"

    def fill(partial):
        assert (names(partial), folder.exists(), partial.parent) == ([], False, folder.parent)
        complete(partial)

    built = build_once(folder, fill, NoProgress())
    assert (built.prefix, built.fresh) == (folder, True)
    assert names(folder.parent) == [".k.lock", "k"]


def test_the_one_in_the_store_is_used(tmp_path):
    build_once(tmp_path / "k", complete, NoProgress())
    found = build_once(tmp_path / "k", unexpected, NoProgress())
    assert (found.prefix, found.fresh) == (tmp_path / "k", False)


def test_what_is_left_of_an_interrupted_build_is_removed_first(tmp_path):
    for name in ("k", ".k.abcdefgh.partial"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "left").touch()
    (tmp_path / "other").mkdir()
    build_once(tmp_path / "k", complete, NoProgress())
    assert names(tmp_path) == [".k.lock", "k", "other"]
    assert names(tmp_path / "k") == [MANIFEST]


@pytest.mark.parametrize("reason", [KeyboardInterrupt, EnvironmentBuildError("x", "no", "y")])
def test_a_build_that_fails_leaves_nothing(tmp_path, reason):
    def fill(partial):
        (partial / "half").touch()
        raise reason

    with pytest.raises((KeyboardInterrupt, EnvironmentBuildError)):
        build_once(tmp_path / "k", fill, NoProgress())
    assert names(tmp_path) == [".k.lock"]


def test_another_that_needs_it_waits_until_it_is_complete(tmp_path):
    arrived, results, details = threading.Event(), [], []

    class Noted(NoProgress):
        def detail(self, text):
            details.append(text)
            arrived.set()

    def again(_):
        arrived.set()
        raise AssertionError("built again")

    def fill(partial):
        second.start()
        assert arrived.wait(60)
        complete(partial)

    second = threading.Thread(target=lambda: results.append(build_once(tmp_path / "k", again, Noted())), daemon=True)
    build_once(tmp_path / "k", fill, NoProgress())
    second.join(60)
    assert [(found.prefix, found.fresh) for found in results] == [(tmp_path / "k", False)]
    assert details == ["wait for another process that makes the same environment"]


@every_row(
    ("place", "named"),
    [("PARTIAL/lib/x/RECORD", "lib/x/RECORD"), ("PARTIAL", ""), ("PARTIAL-x/y", None), ("/srv/x", None), ("", None)],
)
def test_an_error_names_no_folder_that_is_removed_with_the_failed_build(tmp_path_factory, place, named):
    folder = tmp_path_factory.mktemp("store") / "k"
    partials = []

    def fill(partial):
        partials.append(place.replace("PARTIAL", str(partial)))
        raise EnvironmentBuildError("record-damaged", "it cannot be read", "reinstall it", partials[0], details="more")

    with pytest.raises(EnvironmentBuildError) as caught:
        build_once(folder, fill, NoProgress())
    error = pickle.loads(pickle.dumps(caught.value))  # as from a worker
    assert error.where == caught.value.where == (partials[0] if named is None else named)
    assert (error.kind, error.message, error.hint) == ("record-damaged", "it cannot be read", "reinstall it")
    assert caught.value.details == "more"


def test_a_full_disk_is_an_error_for_the_user(tmp_path):
    def fill(partial):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with pytest.raises(StorageError) as caught:
        build_once(tmp_path / "k", fill, NoProgress())
    assert (caught.value.kind, caught.value.where) == ("disk-full", str(tmp_path))


def test_an_environment_without_a_manifest_is_not_reported_as_built(tmp_path):
    with pytest.raises(EnvironmentBuildError) as caught:
        build_once(tmp_path / "k", lambda partial: None, NoProgress())
    assert (caught.value.kind, caught.value.where) == ("environment-broken", str(tmp_path / "k"))
    assert caught.value.message == "the environment disappeared from the store"
    assert caught.value.hint == "let nothing else write to the cache while it builds, and build again"
