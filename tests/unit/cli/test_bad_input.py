"""Every mistake of the catalogue: exit code, one line of error, one fix, the same as JSON, nothing changed."""

import pytest

from envpack.cli.main import run
from tests.faults.bad_commands import CATALOGUE
from tests.faults.command_line import Ended, assert_refused, listing


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("ENVPACK_CACHE_DIR", str(tmp_path / "cache"))


@pytest.mark.parametrize("bad", CATALOGUE, ids=lambda bad: bad.name)
def test_bad_input_is_explained_and_changes_nothing(bad, tmp_path, capsys):
    repository = bad.write(tmp_path)
    before = listing(repository)
    code = run(bad.arguments(repository))
    assert_refused(Ended(code, *capsys.readouterr()), bad.code, bad.kind, *bad.says)
    assert listing(repository) == before


def test_every_mistake_has_its_own_name():
    names = [bad.name for bad in CATALOGUE]
    assert len(set(names)) == len(names)
