"""An archive of conda-pack does not begin with our manifest: what a kill leaves is known as ours all the same."""

import tempfile

import pytest

from envpack.archive import tarball
from envpack.archive.manifest import archive_metadata_file, is_made_by_envpack
from envpack.archive.tarball import pack_archive
from tests.damage import overwrite
from tests.unit.archive.conftest import names_in


def killed(*_):
    raise KeyboardInterrupt


@pytest.mark.parametrize("before", [True, False], ids=["another archive", "nothing"])
def test_an_archive_whose_description_was_not_written_is_ours(prefixes, tmp_path, monkeypatch, before):
    new = prefixes.make("new", lambda prefix: (prefix / "bin/more").touch())
    pack_archive(new, tmp_path / "elsewhere.tar.gz", packer="conda-pack")  # so that it is in the store
    archive = tmp_path / "e.tar.gz"
    if before:
        pack_archive(prefixes.make("old"), archive, packer="conda-pack")
    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(tarball, "write_text", killed)  # the archive is there, and the file beside it is next
        pack_archive(new, archive, packer="conda-pack")
    assert is_made_by_envpack(archive)
    pack_archive(new, archive, packer="conda-pack")
    assert "next" not in archive_metadata_file(archive).read_text()
    overwrite(archive, b"another's")
    assert not is_made_by_envpack(archive)


def test_an_interrupted_conda_pack_leaves_nothing(environment, tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()

    def interrupted(*_):
        assert names_in(tmp_path / "temporary") != []
        raise KeyboardInterrupt

    monkeypatch.setattr("conda_pack.core.Packer.add", interrupted)
    with pytest.raises(KeyboardInterrupt):
        pack_archive(environment, tmp_path / "e.tar.gz", packer="conda-pack")
    assert names_in(tmp_path / "temporary") == []
    assert tempfile.gettempdir() == str(tmp_path / "temporary")
