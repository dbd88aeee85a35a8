"""A user who is not root places, replaces, packs and prunes what is read-only in the store."""

import os
import shutil
import tempfile
import traceback
from pathlib import Path

import pytest

from envpack.archive.folder import place_folder
from envpack.archive.manifest import record_in_metadata
from envpack.archive.tarball import pack_archive
from envpack.environment.store import MANIFEST
from envpack.support.links_and_modes import protect
from envpack.workflow.cache import prune_cache

from .conftest import Prefixes

NOBODY = 65534


@pytest.fixture
def folder(monkeypatch):
    """A folder of the user nobody, which pytest's own would not let in."""
    path = Path(tempfile.mkdtemp(prefix="envpack-test-"))
    if os.geteuid() == 0:
        os.chown(path, NOBODY, NOBODY)
    monkeypatch.setenv("ENVPACK_CACHE_DIR", "")  # changed below
    yield path
    shutil.rmtree(path)


def as_nobody(function):
    """Run a function in a process of nobody if this one is root's, else here."""
    if os.geteuid() != 0:
        function()
        return
    child = os.fork()
    if child == 0:
        status = 1
        try:
            os.setgroups([])
            os.setgid(NOBODY)
            os.setuid(NOBODY)
            function()
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def prefixes_in(folder):
    (folder / "cache/environments").mkdir(parents=True)
    os.environ["ENVPACK_CACHE_DIR"] = str(folder / "cache")
    return Prefixes(folder / "cache/environments")


def life_of_an_environment(folder):
    prefixes = prefixes_in(folder)
    environments = [prefixes.make(key) for key in ("one", "two")]
    for environment in environments:
        protect(environment.prefix)
    for environment in (*environments, environments[0]):
        assert place_folder(environment, folder / "env", link_mode="hardlink")
        assert pack_archive(environment, folder / "env.tar.gz")
        assert record_in_metadata(folder / "env", "requirements", environment.key)
        assert f'"requirements": "{environment.key}"' in (folder / "env" / MANIFEST).read_text()
        assert (folder / "env/bin/tool").samefile(environment.prefix / "bin/tool")
    prune_cache(0, cache=folder / "cache")
    assert [path for path in (folder / "cache").rglob("*") if path.is_file() and path.parent.name != "locks"] == []
    assert (folder / "env/bin/tool").read_text() == "#!/bin/sh\n"


def test_the_owner_of_read_only_files_can_do_all_that_root_can(folder):
    life_of_an_environment(folder / "as root")  # imports what nobody may not be able to read
    as_nobody(lambda: life_of_an_environment(folder / "as nobody"))


def test_no_file_of_the_store_can_be_changed_through_a_model(folder):
    def change():
        environment = prefixes_in(folder / "as nobody").make("one")
        protect(environment.prefix)
        place_folder(environment, folder / "env", link_mode="hardlink")
        with pytest.raises(PermissionError):
            (folder / "env/bin/tool").open("a")

    life_of_an_environment(folder / "as root")
    as_nobody(change)
