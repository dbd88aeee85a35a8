"""A whole environment as an archive of pieces: the same files on the other side, and nothing that was altered."""

import errno
import hashlib
import io
import os
import tarfile

import pytest

from envpack.archive.tarball import pack_whole, unpack_whole
from envpack.environment.inventory import INVENTORY
from envpack.environment.store import damaged_files, read_environment
from envpack.support.errors import EnvpackError, InputError
from envpack.support.placed_files import MANIFEST
from envpack.support.progress import NoProgress

from .conftest import files_below

LIMIT = 1 << 30


@pytest.fixture
def archive(environment, tmp_path):
    pack_whole(environment, tmp_path / "env.tar.gz", NoProgress())
    return tmp_path / "env.tar.gz"


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "unpacked").mkdir()
    return tmp_path / "unpacked"


def altered(archive, change):
    """The archive with other members: ``change`` gets each with its content, and returns those to write."""
    with tarfile.open(archive) as content:
        members = [(info, content.extractfile(info).read() if info.isreg() else b"") for info in content.getmembers()]
    with tarfile.open(archive, "w:gz", format=tarfile.GNU_FORMAT) as out:
        for info, data in change(members):
            info.size = len(data)
            out.addfile(info, io.BytesIO(data))


def member(name, kind=tarfile.REGTYPE, target="", mode=0o644):
    info = tarfile.TarInfo(name)
    info.type, info.linkname, info.mode = kind, target, mode
    return info


def test_the_other_side_has_the_same_environment(environment, archive, folder):
    unpack_whole(archive, folder, environment.content, LIMIT)
    expected = files_below(environment.prefix)
    for name in ("CACHEDIR.TAG", "conda-meta/x.lock"):
        del expected[name]
    assert files_below(folder) == expected
    assert read_environment(folder).content == environment.content
    assert damaged_files(folder) == ()
    modes = {path.lstat().st_mode & 0o777 for path in folder.rglob("*") if path.is_file() and not path.is_symlink()}
    assert modes == {0o444, 0o555}
    assert {path.stat().st_mode & 0o777 for path in folder.rglob("*") if path.is_dir()} == {0o755}


def test_the_same_package_is_the_same_piece_in_every_environment(prefixes, tmp_path):
    def pieces(environment):
        sizes = pack_whole(environment, tmp_path / "env.tar.gz", NoProgress())
        content = (tmp_path / "env.tar.gz").read_bytes()
        assert sum(sizes) == len(content)
        ends = [sum(sizes[: count + 1]) for count in range(len(sizes))]
        return [hashlib.sha256(content[end - size : end]).hexdigest() for end, size in zip(ends, sizes, strict=True)]

    one = pieces(prefixes.make("one"))
    other = pieces(prefixes.make("two", lambda prefix: (prefix / "lib/of-nobody").write_text("more")))
    assert len(one) == len(other) == 5  # what describes it, envpack's own files, x, y, the end
    assert [first == second for first, second in zip(one, other, strict=True)] == [False, False, True, True, True]


def test_another_inventory_than_announced_is_refused(archive, folder):
    with pytest.raises(InputError, match="list of files"):
        unpack_whole(archive, folder, "0" * 64, LIMIT)
    assert os.listdir(folder) == []


def test_what_is_larger_than_announced_is_refused(environment, archive, folder):
    with pytest.raises(EnvpackError) as raised:
        unpack_whole(archive, folder, environment.content, 100_000)
    assert raised.value.kind == "archive-bomb"


def _with_content(name, content):
    return lambda members: [(info, content if info.name == name else data) for info, data in members]


def _renamed(name, other):
    def change(members):
        for info, data in members:
            if info.name == name:
                info.name = other
            yield info, data

    return change


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(_with_content("lib/changed-by-pip.txt", b"AS tested"), id="content"),
        pytest.param(_with_content("lib/changed-by-pip.txt", b"as tested and more"), id="size"),
        pytest.param(_with_content(INVENTORY, b"{}"), id="inventory"),
        pytest.param(_with_content(MANIFEST, b"{}"), id="manifest"),
        pytest.param(_with_content(MANIFEST, b"["), id="no manifest"),
        pytest.param(lambda members: members[1:], id="without manifest"),
        pytest.param(lambda members: members[:-1], id="one less"),
        pytest.param(lambda members: [*members, (member("lib/more"), b"x")], id="one more"),
        pytest.param(lambda members: [*members, members[-1]], id="twice"),
        pytest.param(_renamed("bin/tool", "../tool"), id="above"),
        pytest.param(_renamed("bin/tool", "/tmp/tool"), id="absolute"),
        pytest.param(
            lambda members: [*members, (member("bin/link", tarfile.SYMTYPE, "/etc/passwd"), b"")], id="other link"
        ),
    ],
)
def test_an_altered_archive_is_refused(environment, archive, folder, change, tmp_path):
    altered(archive, change)
    with pytest.raises(EnvpackError) as raised:
        unpack_whole(archive, folder, environment.content, LIMIT)
    assert raised.value.kind in ("environment-unreadable", "link-leaves-environment")
    assert not (folder / MANIFEST).exists()  # so that it does not count as an environment
    assert sorted(os.listdir(tmp_path)) == ["env.tar.gz", "store", "unpacked"]


def test_a_full_disk_is_no_fault_of_the_archive(environment, archive, folder, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "symlink", full)
    with pytest.raises(OSError, match="No space left") as raised:
        unpack_whole(archive, folder, environment.content, LIMIT)
    assert raised.value.errno == errno.ENOSPC


def test_a_link_that_leaves_the_environment_is_refused(prefixes, tmp_path):
    environment = prefixes.make("one", lambda prefix: (prefix / "lib/out").symlink_to("/etc"))
    with pytest.raises(EnvpackError) as raised:
        pack_whole(environment, tmp_path / "env.tar.gz", NoProgress())
    assert raised.value.kind == "link-leaves-environment"
