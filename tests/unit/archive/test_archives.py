"""Archives of a small environment: what is in them, that their bytes are the same, that they are made once."""

import errno
import hashlib
import json
import os
import shutil
import subprocess
import tarfile
from concurrent.futures import wait

import pytest

from envpack.archive.manifest import archive_metadata_file
from envpack.archive.segments import Output, index_of
from envpack.archive.selection import Selection
from envpack.archive.tar_members import portions
from envpack.archive.tarball import pack_archive
from envpack.environment.inventory import INVENTORY, parse_inventory
from envpack.environment.store import MANIFEST
from envpack.support.errors import EnvironmentBuildError, StorageError
from envpack.support.progress import NoProgress
from tests.damage import overwrite
from tests.steps import Steps

from .conftest import LARGE, files_below, members, names_in, text

EVERYTHING = Selection(include=("**",))
FORMS = pytest.mark.parametrize("form", ["tar.gz", "tar"])


def unpacked(archive, folder):
    folder.mkdir()
    subprocess.run(["tar", "xf", archive, "-C", folder], check=True)
    return files_below(folder)


@FORMS
def test_everything_arrives_as_it_is_in_the_store(environment, tmp_path, form):
    assert pack_archive(environment, tmp_path / "env", form=form, selection=EVERYTHING) is True
    expected = files_below(environment.prefix)
    for name in ("CACHEDIR.TAG", "conda-meta/x.lock", MANIFEST, INVENTORY):
        del expected[name]
    found = unpacked(tmp_path / "env", tmp_path / "unpacked")
    del found[MANIFEST], found[INVENTORY]
    assert found == expected


@FORMS
def test_members_depend_on_nothing_but_the_files(environment, tmp_path, form):
    pack_archive(environment, tmp_path / "env", form=form)
    assert (tmp_path / "env").stat().st_mode & 0o777 == 0o444
    found = members(tmp_path / "env")
    assert list(found)[:2] == [MANIFEST, INVENTORY]
    assert {(member.uid, member.gid, member.uname, member.gname, member.mtime) for member in found.values()} == {
        (0, 0, "", "", 315532800)
    }
    assert {member.mode for member in found.values() if member.isreg()} == {0o644, 0o755}
    assert (found["bin/tool"].mode, found["bin/activate"].mode) == (0o755, 0o644)
    assert (found["bin/link"].issym(), found["lib/empty"].isdir()) == (True, True)
    assert not any(name.startswith("lib64/") for name in found)


def test_our_activation_is_at_the_root(environment, tmp_path):
    pack_archive(environment, tmp_path / "env.tar.gz")
    assert "PYTHONNOUSERSITE=1" in text(tmp_path / "env.tar.gz", "bin/activate")
    assert text(tmp_path / "env.tar.gz", "pyvenv.cfg") == "include-system-site-packages = false\n"


def test_it_describes_exactly_what_is_in_it(environment, tmp_path):
    archive = tmp_path / "env.tar.gz"
    pack_archive(environment, archive, selection=Selection(exclude=("/lib/large.so",)))
    found = members(archive)
    listed = parse_inventory(text(archive, INVENTORY).encode())
    assert {entry.path for entry in listed} == set(found) - {MANIFEST, INVENTORY}
    assert {"include/x.h", "lib/large.so", "lib/python3.8/site-packages/y/tests/test_y.py"}.isdisjoint(found)
    manifest = json.loads(text(archive, MANIFEST))
    assert text(archive, MANIFEST) == json.dumps(manifest, indent=1, sort_keys=True) + "\n"
    assert manifest["content"] == hashlib.sha256(text(archive, INVENTORY).encode()).hexdigest()
    assert manifest["size"] == sum(entry.size for entry in listed)
    for package in manifest["packages"]:
        assert package["size"] == sum(entry.size for entry in listed if entry.package == package["name"]) > 0
    assert manifest["selection"] == {
        "exclude": ["/lib/large.so"], "include": [], "digest": Selection(exclude=("/lib/large.so",)).digest,
        "of": environment.content, "final_prefix": "",
        "left_out": {"files": 4, "size": len(LARGE) + 3 * len("left out")},
    }  # fmt: skip


def test_what_lies_beside_it_says_what_it_is(environment, tmp_path):
    archive = tmp_path / "env.tar.gz"
    pack_archive(environment, archive)
    metadata = json.loads(archive_metadata_file(archive).read_text())
    assert metadata["sha256"] == hashlib.sha256(archive.read_bytes()).hexdigest()
    assert (metadata["size"], metadata["form"], metadata["key"]) == (archive.stat().st_size, "tar.gz", "one")
    assert (metadata["python"], metadata["glibc"], metadata["glibcxx"], metadata["platform"]) == (
        "3.8.1",
        "2.17",
        "3.4.29",
        "linux-64",
    )
    assert [package["license"] for package in metadata["packages"]] == ["MIT", "MIT"]
    inside = json.loads(text(archive, MANIFEST))
    for key in (
        "key",
        "content",
        "python",
        "minor",
        "platform",
        "glibc",
        "glibcxx",
        "selection",
        "unpacked",
        "packages",
    ):
        assert metadata[key] == inside[key], key
    assert metadata["unpacked"]["files"] == len(members(archive)) - 2  # those that describe the others
    assert "level 2" in metadata["made_by"]
    assert metadata["packer"] == "envpack"
    pack_archive(environment, tmp_path / "env.tar", form="tar")
    plain = json.loads(archive_metadata_file(tmp_path / "env.tar").read_text())
    assert (plain["form"], plain["made_by"], plain["packer"]) == ("tar", "tar", "envpack")


@FORMS
def test_same_bytes_for_any_number_of_threads_and_with_or_without_segments(
    environment, tmp_path, cache, form, monkeypatch
):
    monkeypatch.setattr("envpack.archive.tar_members.usable_cores", lambda: 1)
    pack_archive(environment, tmp_path / "a", form=form)
    os.utime(environment.prefix / "bin/tool", (1, 1))
    as_of_another(cache)
    pack_archive(environment, tmp_path / "b", form=form)  # from segments
    shutil.rmtree(cache)
    monkeypatch.setattr("envpack.archive.tar_members.usable_cores", lambda: 4)
    pack_archive(environment, tmp_path / "c", form=form)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes() == (tmp_path / "c").read_bytes()


def test_the_compressed_archive_is_the_plain_one_compressed(environment, tmp_path):
    pack_archive(environment, tmp_path / "a", form="tar.gz")
    pack_archive(environment, tmp_path / "b", form="tar")
    unzipped = subprocess.run(["gzip", "-dc", tmp_path / "a"], check=True, capture_output=True).stdout
    assert unzipped == (tmp_path / "b").read_bytes()


def as_of_another(cache):
    """Let the store's only archive be of another environment with the same packages; where it is then."""
    for file in list((cache / "archives").glob("[!.]*")):
        file.rename(file.with_name(f"other-{file.name}"))
    (archive,) = (file for file in (cache / "archives").glob("other-*") if file.suffix in (".gz", ".tar"))
    return archive


def test_a_package_that_was_packed_before_is_not_packed_again(environment, prefixes, tmp_path, monkeypatch):
    def other_y(prefix):
        (prefix / "lib/python3.8/site-packages/y/__init__.py").write_text("y = 2\n")

    other = prefixes.make("two", other_y)
    less = Selection(exclude=("/nothing/",))
    assert packed(environment, tmp_path / "a", monkeypatch) == {"envpack", "x", "y"}
    assert packed(environment, tmp_path / "b", monkeypatch, less) == set()
    assert packed(other, tmp_path / "c", monkeypatch) == {"y"}


def test_packages_are_gathered_from_several_archives(prefixes, tmp_path, monkeypatch, cache):
    def other_y(prefix):
        (prefix / "lib/python3.8/site-packages/y/__init__.py").write_text("y = 2\n")

    def other_x(prefix):
        (prefix / "lib/x.txt").write_text("x")

    one, two, both = prefixes.make("1"), prefixes.make("2", other_y), prefixes.make("3", other_y)
    assert packed(one, tmp_path / "a", monkeypatch) == {"envpack", "x", "y"}
    assert packed(two, tmp_path / "b", monkeypatch) == {"y"}
    oldest = min((cache / "archives").glob("*.gz"), key=lambda file: file.stat().st_mtime_ns)
    oldest.unlink()
    assert packed(both, tmp_path / "c", monkeypatch) == set()


def packed(environment, archive, monkeypatch, selection=None, **options):
    """Packages that were compressed."""
    found = set()

    def spy(entries):
        found.update(entry.package for entry in entries)
        return portions(entries)

    monkeypatch.setattr("envpack.archive.segments.portions", spy)
    assert pack_archive(environment, archive, selection=selection, **options) is True
    return found


@FORMS
@pytest.mark.parametrize("path", ["lib/changed-by-pip.txt", "lib/large.so"])
@pytest.mark.parametrize(
    "damage",
    [
        lambda file: file.write_bytes(b"X" + file.read_bytes()[1:]),
        lambda file: file.write_bytes(file.read_bytes()[:-1]),
        lambda file: file.write_bytes(file.read_bytes() + b"X"),
        lambda file: file.unlink(),
        lambda file: (file.unlink(), file.symlink_to("/etc/passwd")),
        lambda file: file.symlink_to(file.rename(file.with_name("same content"))),
    ],
    ids=["changed", "shorter", "longer", "gone", "link", "link to the same content"],
)
def test_a_file_that_was_tampered_with_is_not_packed(environment, tmp_path, cache, form, path, damage):
    damage(environment.prefix / path)
    with pytest.raises(EnvironmentBuildError, match=path) as caught:
        pack_archive(environment, tmp_path / "out/env", form=form)
    assert caught.value.kind == "store-damaged"
    assert not (tmp_path / "out").exists()
    assert not list(cache.rglob("*.partial"))


def changed_in_place(archive):
    """So that size and time are what they were."""
    content, times = archive.read_bytes(), archive.stat()
    overwrite(archive, content[:-200] + bytes(100) + content[-100:])
    os.utime(archive, ns=(times.st_atime_ns, times.st_mtime_ns))


def moved_by_one(archive):
    index = json.loads(index_of(archive).read_text())
    index["segments"] = {name: [start - 1, *others] for name, (start, *others) in index["segments"].items()}
    index_of(archive).write_text(json.dumps(index))


@pytest.mark.parametrize(
    "damage",
    [
        changed_in_place,
        moved_by_one,
        lambda archive: archive.unlink(),
        lambda archive: overwrite(archive, b""),
        lambda archive: overwrite(archive, archive.read_bytes()[:-1]),
        lambda archive: overwrite(archive, bytes(archive.stat().st_size)),
        lambda archive: os.truncate(index_of(archive), 50),
        lambda archive: index_of(archive).write_bytes(b""),
        lambda archive: index_of(archive).write_bytes(bytes(index_of(archive).stat().st_size)),
        lambda archive: index_of(archive).write_text("[]"),
        lambda archive: index_of(archive).write_text(index_of(archive).read_text().replace("[", "[-")),
        lambda archive: index_of(archive).write_text(index_of(archive).read_text().replace("]", "9]")),
        lambda archive: index_of(archive).write_text(index_of(archive).read_text().replace("]", ', "x"]')),
        lambda archive: index_of(archive).unlink(),
    ],
)
def test_an_archive_in_the_store_that_is_not_what_it_was_is_not_copied_from(environment, tmp_path, cache, damage):
    pack_archive(environment, tmp_path / "a.tar.gz")
    before = (tmp_path / "a.tar.gz").read_bytes()
    damage(as_of_another(cache))
    assert pack_archive(environment, tmp_path / "b.tar.gz") is True
    assert (tmp_path / "b.tar.gz").read_bytes() == before


def test_a_damaged_archive_is_named_and_forgotten(environment, tmp_path, cache, monkeypatch):
    pack_archive(environment, tmp_path / "a.tar.gz")
    other, steps = as_of_another(cache), Steps()
    changed_in_place(other)
    assert packed(environment, tmp_path / "b.tar.gz", monkeypatch, progress=steps) == {"envpack", "x", "y"}
    assert any(text.startswith(f"{other} is damaged") for text in steps.seen)
    assert not index_of(other).exists()
    assert packed(environment, tmp_path / "c.tar.gz", monkeypatch, Selection(exclude=("/nothing/",))) == set()


@pytest.mark.parametrize("target", ["/usr/lib/libz.so", "../../outside", "../.."])
def test_a_link_that_leaves_the_environment_is_named(prefixes, tmp_path, target):
    environment = prefixes.make("two", lambda prefix: (prefix / "lib/away").symlink_to(target))
    with pytest.raises(EnvironmentBuildError, match="lib/away") as caught:
        pack_archive(environment, tmp_path / "env.tar.gz")
    assert caught.value.kind == "link-leaves-environment"
    assert pack_archive(environment, tmp_path / "env.tar.gz", selection=Selection(("/lib/away",))) is True


def test_models_share_one_archive(environment, tmp_path, cache):
    for name in ("a", "b"):
        assert pack_archive(environment, tmp_path / f"{name}/env.tar.gz", link_mode="hardlink") is True
    assert (tmp_path / "a/env.tar.gz").samefile(tmp_path / "b/env.tar.gz")
    assert names_in(tmp_path / "a") == ["env.tar.gz", "env.tar.gz.json"]
    assert (tmp_path / "a/env.tar.gz").stat().st_mode & 0o777 == 0o444


def test_archive_on_another_file_system_is_a_copy(environment, tmp_path, other_file_system):
    assert pack_archive(environment, other_file_system / "env.tar.gz") is True
    assert pack_archive(environment, other_file_system / "env.tar.gz") is False
    pack_archive(environment, tmp_path / "env.tar.gz")
    assert (other_file_system / "env.tar.gz").read_bytes() == (tmp_path / "env.tar.gz").read_bytes()


def test_up_to_date_archive_is_left_alone_until_it_is_damaged(environment, tmp_path):
    archive = tmp_path / "env.tar.gz"
    pack_archive(environment, archive)
    assert pack_archive(environment, archive) is False
    os.utime(archive, (1, 1))
    assert pack_archive(environment, archive) is False
    before = archive.read_bytes()
    overwrite(archive, b"x" * archive.stat().st_size)  # through the hard link, in the store too
    assert pack_archive(environment, archive) is True
    assert archive.read_bytes() == before
    archive_metadata_file(archive).unlink()
    assert pack_archive(environment, archive) is True
    assert pack_archive(environment, archive, selection=EVERYTHING) is True
    assert pack_archive(environment, archive, selection=EVERYTHING) is False


def test_interrupted_packing_keeps_the_old_archive(environment, prefixes, tmp_path, cache, monkeypatch):
    archive = tmp_path / "out/env.tar.gz"
    pack_archive(environment, archive)
    before = archive.read_bytes()
    other = prefixes.make("two", lambda prefix: (prefix / "lib/new").touch())

    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("envpack.archive.tar_members.padding", interrupt)
    with pytest.raises(KeyboardInterrupt):
        pack_archive(other, archive)
    assert archive.read_bytes() == before
    assert names_in(archive.parent) == ["env.tar.gz", "env.tar.gz.json"]
    assert not list(cache.rglob("*.partial"))


def test_what_does_not_reach_the_disk_while_more_is_packed_is_no_archive(environment, tmp_path, cache, monkeypatch):
    def flush(handle):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("envpack.archive.segments._FLUSH", 1)
    monkeypatch.setattr("os.fdatasync", flush)
    with pytest.raises(StorageError) as caught:
        pack_archive(environment, tmp_path / "env.tar")
    assert caught.value.kind == "disk-full"
    assert not (tmp_path / "env.tar").exists()
    assert list(cache.glob("archives/[!.]*")) == []


class Disk:
    """Makes one flush of many fail, as a disk that becomes full."""

    def __init__(self, monkeypatch, *, failing):
        self.flushes, self._failing = 0, failing
        monkeypatch.setattr("envpack.archive.segments._FLUSH", 10)
        monkeypatch.setattr("os.fdatasync", self.flush)

    def flush(self, handle):
        self.flushes += 1
        if self.flushes == self._failing:
            raise OSError(errno.EIO, os.strerror(errno.EIO))


def written(file, *pieces):
    """The digest of an archive of ``pieces``; each flush ends before the next piece is written."""
    with file.open("wb", buffering=0) as raw, Output(raw, NoProgress(), flushed=True) as out:
        for piece in pieces:
            out.write(piece)
            if out._flushing:
                wait([out._flushing])
    return out.digest.hexdigest()


@pytest.mark.parametrize("failing", [1, 2, 3])
def test_a_failed_flush_is_an_error_the_last_one_too(tmp_path, monkeypatch, failing):
    """The kernel reports it only once, so that the fsync of the whole file would succeed."""
    disk = Disk(monkeypatch, failing=failing)
    with pytest.raises(OSError, match=os.strerror(errno.EIO)):
        written(tmp_path / "file", b"x" * 10, b"y" * 10, b"z" * 10)
    assert disk.flushes == failing


def test_an_archive_is_flushed_while_it_is_written(tmp_path, monkeypatch):
    disk = Disk(monkeypatch, failing=0)
    assert (
        written(tmp_path / "file", b"x" * 9, b"y", b"z" * 9) == hashlib.sha256(b"x" * 9 + b"y" + b"z" * 9).hexdigest()
    )
    assert (disk.flushes, (tmp_path / "file").read_bytes()) == (1, b"x" * 9 + b"y" + b"z" * 9)


def test_a_failed_flush_does_not_hide_the_error_before_it(tmp_path, monkeypatch):
    Disk(monkeypatch, failing=1)
    with pytest.raises(KeyError), (tmp_path / "file").open("wb") as raw, Output(raw, NoProgress(), flushed=True) as out:
        out.write(b"x" * 10)
        raise KeyError


def test_short_writes_are_continued(tmp_path, monkeypatch):
    write = os.write
    monkeypatch.setattr("os.write", lambda handle, content: write(handle, content[:3]))
    assert written(tmp_path / "file", b"0123456789") == hashlib.sha256(b"0123456789").hexdigest()
    assert (tmp_path / "file").read_bytes() == b"0123456789"


def test_conda_pack_packs_all_files_and_an_activate_of_its_own(environment, tmp_path):
    archive = tmp_path / "env.tar.gz"
    assert pack_archive(environment, archive, packer="conda-pack") is True
    assert archive.stat().st_mode & 0o777 == 0o444
    assert "PYTHONNOUSERSITE" not in text(archive, "bin/activate")
    assert "include/x.h" in members(archive)
    assert json.loads(archive_metadata_file(archive).read_text())["made_by"].startswith("conda-pack 0.")
    assert pack_archive(environment, archive, packer="conda-pack") is False
    assert pack_archive(environment, archive) is True


def test_conda_pack_packs_the_files_that_exist(environment, tmp_path):
    """The record of a package lists those that another package has removed."""
    (environment.prefix / "include/x.h").unlink()
    pack_archive(environment, tmp_path / "env.tar.gz", packer="conda-pack")
    assert {"lib/large.so", "include/x.h"} & set(members(tmp_path / "env.tar.gz")) == {"lib/large.so"}


def test_what_is_no_conda_environment_is_refused_by_conda_pack_only(environment, tmp_path):
    (environment.prefix / "conda-meta").rename(tmp_path / "gone")
    with pytest.raises(EnvironmentBuildError) as caught:
        pack_archive(environment, tmp_path / "env.tar.gz", packer="conda-pack")
    assert caught.value.kind == "conda-pack-failed"


@pytest.mark.parametrize("name", [MANIFEST, INVENTORY])
@pytest.mark.parametrize("content", ["", "[]", '{"schema": 1}', "{"])
def test_a_store_that_does_not_describe_itself_is_named(environment, tmp_path, name, content):
    (environment.prefix / name).write_text(content)
    with pytest.raises(EnvironmentBuildError) as caught:
        pack_archive(environment, tmp_path / "env.tar.gz")
    assert (caught.value.kind, caught.value.where) == ("store-damaged", str(environment.prefix))
    assert caught.value.hint == f"remove {environment.prefix} and build again; nothing but envpack may write there"


def test_thousands_of_files_in_the_plain_form_and_compressed(prefixes, tmp_path):
    def many(prefix):
        for number in range(3000):
            (prefix / f"lib/{number}.txt").write_text(str(number) * number)

    environment = prefixes.make("two", many)
    pack_archive(environment, tmp_path / "env.tar.gz")
    with tarfile.open(tmp_path / "env.tar.gz") as archive:
        assert archive.extractfile("lib/2999.txt").read() == b"2999" * 2999
