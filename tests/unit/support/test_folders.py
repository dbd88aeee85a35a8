"""Where envpack keeps its files."""

import pwd
from pathlib import Path

import pytest

from envpack.support.errors import InputError
from envpack.support.folders import cache_root, data_root, real_path, whole_path


@pytest.fixture(autouse=True)
def home(monkeypatch):
    for name in ("ENVPACK_CACHE_DIR", "XDG_CACHE_HOME", "XDG_DATA_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", "/home/me")


def test_the_cache_and_the_data_are_the_users():
    assert cache_root() == Path("/home/me/.cache/envpack")
    assert data_root() == Path("/home/me/.local/share/envpack")


def test_the_rules_of_xdg_hold_and_our_own_variable_precedes_them(monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", "/x/cache")
    monkeypatch.setenv("XDG_DATA_HOME", "/x/data")
    assert (cache_root(), data_root()) == (Path("/x/cache/envpack"), Path("/x/data/envpack"))
    monkeypatch.setenv("ENVPACK_CACHE_DIR", "/own")
    assert (cache_root(), data_root()) == (Path("/own"), Path("/x/data/envpack"))


def test_a_home_folder_is_expanded_as_a_shell_does(monkeypatch):
    monkeypatch.setenv("ENVPACK_CACHE_DIR", "~/mine")
    assert cache_root() == Path("/home/me/mine")
    monkeypatch.setenv("ENVPACK_CACHE_DIR", "~nobody-here/x")
    with pytest.raises(InputError, match="'~nobody-here/x'") as caught:
        cache_root()
    assert caught.value.kind == "no-home"


def test_a_name_that_is_no_text_is_refused(monkeypatch):
    monkeypatch.setenv("ENVPACK_CACHE_DIR", "/srv/c\udcff")
    with pytest.raises(InputError) as caught:
        cache_root()
    assert (caught.value.kind, caught.value.where) == ("name-not-text", r"'/srv/c\udcff'")


@pytest.mark.parametrize("folder", [cache_root, data_root])
def test_a_user_without_a_home_is_told_which_variable_helps(folder, monkeypatch):
    def nobody(number):
        raise KeyError(number)

    monkeypatch.delenv("HOME")
    monkeypatch.setattr(pwd, "getpwuid", nobody)
    with pytest.raises(InputError, match=r"set [A-Z_]+ or HOME to a folder") as caught:
        folder()
    assert (caught.value.kind, caught.value.hint.split()[1]) == ("no-home", caught.value.where)


def test_a_path_with_dots_is_that_of_the_folder_itself(tmp_path, monkeypatch):
    """The name and the neighbours of a folder are found by its path."""
    (tmp_path / "real/inner").mkdir(parents=True)
    (tmp_path / "link").symlink_to("real/inner")
    monkeypatch.chdir(tmp_path / "real/inner")
    assert whole_path(Path("..")) == tmp_path / "real"
    assert whole_path(tmp_path / "link/..") == tmp_path / "real", "as the system follows it"
    assert whole_path(tmp_path / "link") == tmp_path / "link"
    assert whole_path(Path()) == tmp_path / "real/inner"


def test_links_in_a_circle_have_a_real_path(tmp_path):
    (tmp_path / "there").symlink_to("back")
    (tmp_path / "back").symlink_to("there")
    (tmp_path / "link").symlink_to("folder")
    assert real_path(tmp_path / "there/below").is_relative_to(tmp_path)
    assert real_path(tmp_path / "link/../below") == tmp_path / "below"
