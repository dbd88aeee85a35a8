"""What `envpack inspect` finds in folders and archives, good, tampered with and hostile."""

import gzip
import io
import json
import os
import resource
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from envpack.archive import inspection
from envpack.archive.folder import place_folder
from envpack.archive.inspection import inspect_environment, refused_members
from envpack.archive.manifest import archive_metadata_file, is_recorded_archive
from envpack.archive.selection import Selection
from envpack.archive.tarball import pack_archive
from envpack.cli.main import run
from envpack.environment.inventory import INVENTORY
from envpack.environment.store import MANIFEST
from envpack.support.errors import InputError

FORMS = pytest.mark.parametrize("form", ["dir", "tar.gz", "tar"])


@pytest.fixture(params=["dir", "tar.gz", "tar"])
def placed(request, environment, tmp_path):
    target = tmp_path / "placed/env"
    if request.param == "dir":
        place_folder(environment, target)
    else:
        pack_archive(environment, target, form=request.param)
    return target


def found(path, **how):
    result = inspect_environment(path, **how)
    return {(finding.kind, finding.path) for finding in result.findings}


def test_what_envpack_made_is_good(placed, environment):
    result = inspect_environment(placed)
    assert (result.findings, result.is_good(strict=True)) == ([], True)
    assert result.manifest["key"] == environment.key
    assert [(package.name, package.license) for package in result.packages] == [("x", "MIT"), ("y", "MIT")]
    listed = [row for row in json.loads(read(placed, INVENTORY))["files"] if placed.is_dir() or row[1] != "folder"]
    assert result.verified == len(listed) > 10


def test_a_folder_in_the_place_of_a_file_does_not_hide_what_is_in_it(environment, tmp_path):
    target = tmp_path / "placed/env"
    place_folder(environment, target)
    (target / "lib/large.so").unlink()
    (target / "lib/large.so").mkdir()
    (target / "lib/large.so/inside").touch()
    assert found(target) == {("missing", "lib/large.so"), ("added", "lib/large.so/inside")}


@pytest.mark.parametrize(("limit", "accepted"), [(16, True), (15, False)])
def test_the_names_of_folders_need_limited_memory(tmp_path, monkeypatch, limit, accepted):
    monkeypatch.setattr(inspection, "_MOST_CHARACTERS", limit)
    with tarfile.open(tmp_path / "env.tar", "w") as archive:
        for name in ("abcdef/ghi/first", "abcdef/ghi/second"):  # 6 characters, and 10
            archive.addfile(tarfile.TarInfo(name))
    if accepted:
        assert inspect_environment(tmp_path / "env.tar").files == 2
        return
    with pytest.raises(InputError) as caught:
        inspect_environment(tmp_path / "env.tar")
    assert (caught.value.kind, caught.value.where) == ("archive-bomb", str(tmp_path / "env.tar"))
    assert caught.value.message.endswith(": the names of its folders need too much memory")


def read(placed, name):
    if placed.is_dir():
        return (placed / name).read_bytes()
    with tarfile.open(placed) as archive:
        return archive.extractfile(name).read()


def rewritten(placed, changes):
    """The same folder or archive with some files changed (bytes), removed (None) or added."""
    if placed.is_dir():
        for name, content in changes.items():
            (placed / name).unlink(missing_ok=True)
            if content is not None:
                (placed / name).write_bytes(content)
        return placed
    new = placed.with_name("rewritten")
    with tarfile.open(placed) as old, tarfile.open(new, "w:gz") as archive:
        for member in old:
            if changes.get(member.name, b"") is not None:
                content = changes.pop(member.name, None) or (old.extractfile(member).read() if member.isreg() else b"")
                member.size = len(content)
                archive.addfile(member, io.BytesIO(content))
        for name, content in changes.items():
            if content is not None:
                member = tarfile.TarInfo(name)
                member.size = len(content)
                archive.addfile(member, io.BytesIO(content))
    return new


def test_tampering_is_found(placed):
    changes = {"lib/changed-by-pip.txt": b"As tested", "bin/tool": None, "lib/new.py": b"evil", "lib/nothing": b"more"}
    result = inspect_environment(rewritten(placed, changes))
    assert not result.is_good()
    assert {(finding.kind, finding.path) for finding in result.findings if finding.kind != "unproven"} == {
        ("changed", "lib/changed-by-pip.txt"),
        ("missing", "bin/tool"),
        ("added", "lib/new.py"),
        ("changed", "lib/nothing"),
    }


def test_a_list_of_files_that_was_tampered_with_too_is_found(placed):
    listed = json.loads(read(placed, INVENTORY))
    listed["files"] = [row for row in listed["files"] if row[0] != "bin/tool"]
    result = rewritten(placed, {INVENTORY: json.dumps(listed).encode(), "bin/tool": None})
    assert ("changed", INVENTORY) in found(result)


def test_another_archive_than_the_file_beside_it_is_about_is_found(environment, tmp_path):
    pack_archive(environment, tmp_path / "a.tar.gz")
    pack_archive(environment, tmp_path / "b.tar.gz", selection=Selection(include=("**",)))
    shutil.copy(archive_metadata_file(tmp_path / "a.tar.gz"), archive_metadata_file(tmp_path / "b.tar.gz"))
    assert found(tmp_path / "b.tar.gz") == {("changed", "")}
    archive_metadata_file(tmp_path / "b.tar.gz").unlink()
    result = inspect_environment(tmp_path / "b.tar.gz")
    assert (result.is_good(), result.is_good(strict=True)) == (True, False)


def test_an_archive_of_several_models_is_read_once_until_it_changes(environment, tmp_path, monkeypatch):
    read, opened = [], inspection.opened_archive
    monkeypatch.setattr(inspection, "opened_archive", lambda path, *how: read.append(path) or opened(path, *how))
    first, second = tmp_path / "a/env.tar", tmp_path / "b/env.tar"
    pack_archive(environment, first, form="tar")
    second.parent.mkdir()
    second.hardlink_to(first)
    shutil.copy(archive_metadata_file(first), archive_metadata_file(second))
    one, other = inspect_environment(first), inspect_environment(second)
    assert (read, one.path, other.path, one.sha256) == ([first], first, second, other.sha256)
    archive_metadata_file(second).unlink()
    assert found(second) == {("unproven", "")}
    read.clear()
    assert [refused_members(path, strict=True) for path in (first, second, first)] == [(), (), ()]
    assert read == [first, second]  # what is beside them differs
    second.chmod(0o644)
    with second.open("ab") as content:
        content.write(b"x")
    with pytest.raises(InputError, match="data follows after its end") as raised:
        inspect_environment(first)
    assert (raised.value.kind, raised.value.where) == ("environment-unreadable", str(first))


def test_byte_code_that_python_wrote_later_is_for_the_strict(environment, tmp_path):
    place_folder(environment, tmp_path / "env")
    (tmp_path / "env/lib/python3.8/site-packages/y/__pycache__").mkdir()
    (tmp_path / "env/lib/python3.8/site-packages/y/__pycache__/late.pyc").touch()
    result = inspect_environment(tmp_path / "env")
    assert (result.is_good(), result.is_good(strict=True)) == (True, False)


@pytest.mark.parametrize("content", [b"", b"[]", b"{", b"[" * 100_000, b'{"schema": 1, "files": [[1, 2, 3, 4, 5, 6]]}'])
@pytest.mark.parametrize("name", [MANIFEST, INVENTORY])
def test_damaged_descriptions_are_findings(placed, name, content):
    result = inspect_environment(rewritten(placed, {name: content or b" "}))
    assert not result.is_good(strict=True)


def test_packages_that_make_no_sense_are_read_from_the_records_instead(placed):
    manifest = json.loads(read(placed, MANIFEST))
    manifest["packages"][0]["license"] = json.loads("[" * 600 + "]" * 600)
    result = inspect_environment(rewritten(placed, {MANIFEST: json.dumps(manifest).encode()}))
    assert [(package.name, package.license) for package in result.packages] == [("x", ""), ("y", "")]


def test_archive_of_conda_pack_is_shown_as_far_as_possible(environment, tmp_path):
    for name in (MANIFEST, INVENTORY):
        (environment.prefix / name).rename(tmp_path / name)
    subprocess.run(
        [Path(sys.executable).with_name("conda-pack"), "-q", "-p", environment.prefix, "-o", tmp_path / "env.tar.gz"],
        check=True,
        capture_output=True,
    )
    result = inspect_environment(tmp_path / "env.tar.gz")
    assert {(package.name, package.version) for package in result.packages} == {("x", "1"), ("y", "1")}
    assert set(result.count) == {"unproven"}


def archive_of(tmp_path, *members, raw=b""):
    file = tmp_path / "hostile.tar.gz"
    with tarfile.open(file, "w:gz", format=tarfile.GNU_FORMAT) as archive:
        for member, content in members:
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return file


def member(name, kind=tarfile.REGTYPE, target=""):
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return info, b"x" if kind == tarfile.REGTYPE else b""


@pytest.mark.parametrize(
    ("members", "path", "reason"),
    [
        ([member("/etc/passwd")], "/etc/passwd", "absolute"),
        ([member("a/../../b")], "a/../../b", ".."),
        ([member("..", tarfile.DIRTYPE)], "..", ".."),
        ([member("a//b")], "a//b", "canonical"),
        ([member("dev", tarfile.CHRTYPE)], "dev", "device"),
        ([member("pipe", tarfile.FIFOTYPE)], "pipe", "pipe"),
        ([member("l", tarfile.SYMTYPE, "lib"), member("l/x")], "l/x", "below a link"),
        ([member("f"), member("f/x")], "f/x", "below a file"),
        ([member("f"), member("f/deep/er/x")], "f/deep/er/x", "below a file"),
        ([member("d/deep/er"), member("d/deep")], "d/deep", "it is a file, and a member before it makes it a folder"),
        ([member("l", tarfile.SYMTYPE, "lib"), member("l/d", tarfile.DIRTYPE)], "l/d", "below a link"),
        ([member("l", tarfile.SYMTYPE, "lib"), member("l/deep/er/x")], "l/deep/er/x", "below a link"),
        ([member("l", tarfile.SYMTYPE, "/etc")], "l", "leaves the environment"),
        ([member("a/l", tarfile.SYMTYPE, "../../etc")], "a/l", "leaves the environment"),
        ([member("h", tarfile.LNKTYPE, "/etc/passwd")], "h", "hard link"),
        ([member("l", tarfile.SYMTYPE, "x"), member("h", tarfile.LNKTYPE, "l")], "h", "hard link"),
        ([member("a"), member("a")], "a", "twice"),
        ([member("a"), member("./a")], "a", "twice"),
        ([member("a"), member("a", tarfile.DIRTYPE)], "a", "twice"),
        ([member("a", tarfile.DIRTYPE), member("a")], "a", "it is a file, and a member before it makes it a folder"),
        ([member("top/bin/activate")], "", "bin/activate"),
    ],
)
def test_what_servers_refuse_is_found(tmp_path, members, path, reason):
    result = inspect_environment(archive_of(tmp_path, *members))
    assert not result.is_good()
    assert [
        finding
        for finding in result.findings
        if (finding.kind, finding.path) == ("refused", path) and reason in finding.reason
    ]


@pytest.mark.parametrize("name", ["/", "./", "."])
def test_the_root_itself_may_be_a_member(tmp_path, name):
    result = inspect_environment(archive_of(tmp_path, member(name, tarfile.DIRTYPE), member("bin/activate")))
    assert (set(result.count), result.files) == ({"unproven"}, 1)


def test_a_hard_link_to_a_file_before_it_is_that_file(tmp_path):
    result = inspect_environment(
        archive_of(tmp_path, member("bin/activate"), member("h", tarfile.LNKTYPE, "bin/activate"))
    )
    assert (set(result.count), result.files) == ({"unproven"}, 2)
    info, content = member("bin/x")
    info.mode = 0o755
    result = inspect_environment(
        archive_of(tmp_path, member("bin/activate"), (info, content), member("h", tarfile.LNKTYPE, "bin/x"))
    )
    assert (set(result.count), result.files) == ({"unproven"}, 3)


def refused(capsys, file, kind, *options):
    code = run(["inspect", str(file), *options])
    error = capsys.readouterr().err.splitlines()
    assert code == 3
    (line,) = (line for line in error if line.startswith("error:"))
    assert line.endswith(f"({kind})")


@pytest.mark.parametrize("form", ["tar.gz", "tar"])
@pytest.mark.parametrize("share", [0.1, 0.5, 0.9, 0.999])
def test_truncated_archives_are_one_clear_line(environment, tmp_path, capsys, form, share):
    pack_archive(environment, tmp_path / "env", form=form)
    content = (tmp_path / "env").read_bytes()
    (tmp_path / "cut").write_bytes(content[: int(len(content) * share)])
    refused(capsys, tmp_path / "cut", "environment-unreadable")


@pytest.mark.parametrize("position", [0.2, 0.5, 0.8])
def test_damaged_archives_are_one_clear_line(environment, tmp_path, capsys, position):
    pack_archive(environment, tmp_path / "env")
    content = bytearray((tmp_path / "env").read_bytes())
    start = int(len(content) * position)
    content[start : start + 40] = b"\xff" * 40
    (tmp_path / "cut").write_bytes(content)
    refused(capsys, tmp_path / "cut", "environment-unreadable")


@pytest.fixture
def little_memory():
    """Whoever takes it all gets a MemoryError, which no test here accepts."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + (400 << 20), before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_AS, before)


def test_a_bomb_is_refused_before_it_bursts(tmp_path, capsys, little_memory):
    info = tarfile.TarInfo("bin/activate")
    info.size = 1 << 40
    with gzip.open(tmp_path / "bomb", "wb", compresslevel=1) as file:
        file.write(info.tobuf())
        for _ in range(40):
            file.write(bytes(10 << 20))
    refused(capsys, tmp_path / "bomb", "archive-bomb")


def test_a_name_of_a_gigabyte_is_refused(tmp_path, capsys, little_memory):
    info = tarfile.TarInfo("././@LongLink")
    info.type, info.size = tarfile.GNUTYPE_LONGNAME, 1 << 30
    with gzip.open(tmp_path / "bomb", "wb") as file:
        file.write(info.tobuf() + b"a" * 10_000_000)
    refused(capsys, tmp_path / "bomb", "archive-bomb")


def test_a_sparse_file_of_a_petabyte_is_refused(tmp_path, capsys):
    info = tarfile.TarInfo("huge")
    block = bytearray(info.tobuf(tarfile.GNU_FORMAT))
    block[156:157] = tarfile.GNUTYPE_SPARSE
    block[483:495] = b"77777777777\0"
    block[148:156] = b"        "
    block[148:156] = b"%06o\0 " % sum(block)
    (tmp_path / "sparse").write_bytes(bytes(block) + bytes(1024))
    refused(capsys, tmp_path / "sparse", "environment-unreadable")
    with pytest.raises(InputError) as caught:
        inspect_environment(tmp_path / "sparse")
    assert caught.value.hint.startswith("make it again without tar's option --sparse")


def test_content_beyond_the_limit_is_refused(environment, tmp_path, capsys):
    def big(prefix):
        with (prefix / "lib/big").open("wb") as file:
            file.truncate(1 << 20)

    pack_archive(environment, tmp_path / "env", form="tar")
    with pytest.raises(InputError) as caught:
        inspect_environment(tmp_path / "env", limit=1 << 20)
    assert caught.value.kind == "archive-bomb"


@pytest.mark.thorough
def test_a_hundred_thousand_members_are_read(tmp_path, little_memory):
    header = tarfile.TarInfo("lib/000000").tobuf()
    checksum = sum(header) - sum(header[148:156]) + 8 * ord(" ") - sum(b"000000")
    with (tmp_path / "many.tar").open("wb") as archive:
        for number in range(100_000):
            name = b"%06d" % number
            archive.write(header[:4] + name + header[10:148] + b"%06o\0 " % (checksum + sum(name)) + header[156:])
        archive.write(bytes(1024))
    result = inspect_environment(tmp_path / "many.tar")
    assert result.files == 100_000


@pytest.mark.parametrize(
    ("content", "status", "kind"),
    [
        (b"", 5, "not-a-stub"),
        (b"text", 5, "not-a-stub"),
        (bytes(1024), 5, "not-a-stub"),
        (b"\x1f\x8b", 3, "environment-unreadable"),
        (b"\x1f\x8b\x08" + b"\0" * 100, 3, "environment-unreadable"),
    ],
)
def test_what_is_no_archive_is_one_clear_line(tmp_path, capsys, content, status, kind):
    (tmp_path / "file").write_bytes(content)
    assert run(["inspect", str(tmp_path / "file")]) == status
    error = capsys.readouterr().err
    (line,) = (line for line in error.splitlines() if line.startswith("error:"))
    assert line.startswith(f"error: {tmp_path / 'file'}: ")
    assert line.endswith(f"({kind})")
    assert ("an environment or its archive, or a folder with models" in error) == (kind == "not-a-stub")


def test_an_archive_of_another_tool_does_not_tell_how_large_its_packages_are(tmp_path, capsys):
    metadata = tarfile.TarInfo("lib/python3.10/site-packages/six-1.16.0.dist-info/METADATA")
    run(["inspect", str(archive_of(tmp_path, (metadata, b"Name: six\nVersion: 1.16.0\nLicense: MIT\n")))])
    assert "six 1.16.0  MIT" in capsys.readouterr().out


def test_names_cannot_write_to_the_terminal(tmp_path, capsys):
    run(["inspect", str(archive_of(tmp_path, member("a\x1b[2Jb\nc")))])
    assert "\x1b" not in "".join(capsys.readouterr())


@pytest.mark.parametrize("named", ["/env/lib", None])
def test_a_folder_that_cannot_be_read_is_named(tmp_path, monkeypatch, named):
    def refuse(folder):
        raise PermissionError(13, "Permission denied", named)

    monkeypatch.setattr("os.scandir", refuse)
    with pytest.raises(InputError, match="cannot be read: Permission denied") as caught:
        inspect_environment(tmp_path)
    assert (caught.value.kind, caught.value.where) == ("environment-unreadable", named or str(tmp_path))
    assert caught.value.hint


def test_devices_in_a_folder_are_not_waited_for_and_links_not_followed(environment, tmp_path):
    place_folder(environment, tmp_path / "env")
    files = inspect_environment(tmp_path / "env").files
    os.mkfifo(tmp_path / "env/lib/pipe")
    (tmp_path / "env/lib/again").symlink_to(".")
    assert found(tmp_path / "env") == {("refused", "lib/pipe"), ("added", "lib/again")}
    assert inspect_environment(tmp_path / "env").files == files + 1


@FORMS
def test_the_command_line_says_it_all(environment, tmp_path, capsys, form):
    target = tmp_path / "env"
    place_folder(environment, target) if form == "dir" else pack_archive(environment, target, form=form)
    assert run(["inspect", str(target), "--json", "--strict", "--sbom", str(tmp_path / "sbom.json")]) == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["form"], report["manifest"]["key"], report["findings"]) == (form, "one", [])
    assert [component["name"] for component in json.loads((tmp_path / "sbom.json").read_text())["components"]] == [
        "x",
        "y",
    ]
    changed = rewritten(target, {"bin/tool": b"evil"})
    assert run(["inspect", str(changed), "--json", "--sbom", str(tmp_path / "other.json")]) == 1
    assert json.loads(capsys.readouterr().out)["counts"]["changed"] == 1
    assert run(["inspect", str(changed), "--quiet"]) == 1
    assert "bin/tool" in capsys.readouterr().out
    assert not (tmp_path / "other.json").exists()


@pytest.mark.parametrize("options", [("--strict",), ("--sbom", "x")])
def test_options_for_environments_are_refused_for_stubs(tmp_path, capsys, options):
    (tmp_path / "stub").write_bytes(b"\x7fELF")
    assert run(["inspect", str(tmp_path / "stub"), *options]) == 2


def test_files_for_passwords_are_named(environment, tmp_path):
    place_folder(environment, tmp_path / "env")
    (tmp_path / "env/pip.conf").write_text("[global]\nindex-url = https://me:pw@host/simple\n")
    result = inspect_environment(tmp_path / "env")
    assert ("secret", "pip.conf") in {(finding.kind, finding.path) for finding in result.findings}
    assert not result.is_good()
    assert "pw" not in repr(result)


def test_a_link_to_an_archive_is_not_the_archive_that_is_recorded(environment, tmp_path):
    archive, link = tmp_path / "env.tar", tmp_path / "link.tar"
    pack_archive(environment, archive, form="tar")
    link.symlink_to(archive)
    shutil.copy(archive_metadata_file(archive), archive_metadata_file(link))
    assert is_recorded_archive(archive)
    assert not is_recorded_archive(link)
