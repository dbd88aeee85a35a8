import os
import stat

import pytest

from envpack.support.links_and_modes import make_folder, protect


@pytest.fixture(autouse=True)
def umask():
    before = os.umask(0o077)
    yield
    os.umask(before)


def mode(path):
    return stat.S_IMODE(path.lstat().st_mode)


def test_all_files_become_read_only_and_all_folders_open(tmp_path):
    (tmp_path / "deep/er").mkdir(parents=True)
    for name, before in (("file", 0o600), ("deep/program", 0o700), ("deep/er/open", 0o666), ("set", 0o6755)):
        (tmp_path / name).touch()
        (tmp_path / name).chmod(before)
    protect(tmp_path)
    assert [mode(tmp_path / name) for name in ("file", "deep/program", "deep/er/open", "set")] == [
        0o444, 0o555, 0o444, 0o555,
    ]  # fmt: skip
    assert {mode(path) for path in (tmp_path, tmp_path / "deep", tmp_path / "deep/er")} == {0o755}


def test_links_are_not_followed(tmp_path):
    (tmp_path / "outside").mkdir(mode=0o700)
    (tmp_path / "outside/file").touch(mode=0o600)
    (tmp_path / "inside").mkdir()
    (tmp_path / "inside/folder").symlink_to("../outside")
    (tmp_path / "inside/file").symlink_to("../outside/file")
    protect(tmp_path / "inside")
    assert (mode(tmp_path / "outside"), mode(tmp_path / "outside/file")) == (0o700, 0o600)


def test_a_new_folder_is_open(tmp_path):
    make_folder(tmp_path / "new")
    assert mode(tmp_path / "new") == 0o755
    with pytest.raises(FileExistsError):
        make_folder(tmp_path / "new")
