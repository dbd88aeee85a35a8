"""Headers of tar files, read back by others, and names that servers refuse."""

import hashlib
import os
import subprocess
import tarfile
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from envpack.archive import segments, tar_members
from envpack.archive.tar_members import END, check_entries, escaping_links, header, padding
from envpack.environment.inventory import Entry
from envpack.support.errors import EnvironmentBuildError

ENTRIES = [
    Entry("bin/python", "link", "x", target="python3.10"),
    Entry("n" * 100, "file", "x", 0),
    Entry("n" * 101, "file", "x", 0),
    Entry("deep/" * 60 + "name", "program", "x", 0),
    Entry("l/" * 60 + "link", "link", "x", target="../" * 50 + "t" * 120),
    Entry("l100", "link", "x", target="t" * 100),
    Entry("ümlaut/" * 14 + "日本", "file", "x", 0),
    Entry("empty folder", "folder", "x"),
    Entry("f/" * 49 + "f" * 2, "folder", "x"),  # 100 bytes, and 101 with the slash
]


def test_headers_are_read_back_as_they_were_meant(tmp_path):
    file = tmp_path / "x.tar"
    file.write_bytes(b"".join(map(header, ENTRIES)) + END)
    with tarfile.open(file) as archive:
        found = archive.getmembers()
    assert [(member.name, member.linkname) for member in found] == [(entry.path, entry.target) for entry in ENTRIES]
    modes = {"file": 0o644, "program": 0o755, "link": 0o777, "folder": 0o755}
    assert [member.mode for member in found] == [modes[entry.kind] for entry in ENTRIES]
    listed = subprocess.run(["tar", "tf", file, "--quoting-style=literal"], capture_output=True, check=True).stdout
    assert listed.decode().splitlines() == [entry.path + "/" * (entry.kind == "folder") for entry in ENTRIES]


def test_the_bytes_of_headers_never_change():
    """If they must, raise RECIPE in segments.py: segments with other bytes are not copied then."""
    large = Entry("large", "file", "x", 8 << 30)
    digest = hashlib.sha256(b"".join(map(header, [*ENTRIES, large]))).hexdigest()
    assert digest == "e09eab45af85fa0d76bf37fb20121086565fb704eefe6ebf7a15f22826e099f7"
    assert bytes(1024) == END
    assert segments.RECIPE == 3


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ([], []),
        ([4, 6, 1, 2], [([4, 6], 0, 0), ([1, 2], 0, 0)]),
        ([4, 7], [([4], 0, 0), ([7], 0, 0)]),
        ([10, 0, 1], [([10, 0], 0, 0), ([1], 0, 0)]),
        ([1, 25, 2], [([1], 0, 0), ([25], 0, 10), ([25], 10, 20), ([25], 20, 25), ([2], 0, 0)]),
        ([20], [([20], 0, 10), ([20], 10, 20)]),
    ],
)
def test_small_files_share_a_portion_and_large_ones_are_divided(monkeypatch, sizes, expected):
    monkeypatch.setattr(tar_members, "PORTION", 10)
    found = tar_members.portions(Entry(str(number), "file", "x", size) for number, size in enumerate(sizes))
    assert [([entry.size for entry in part.entries], part.start, part.stop) for part in found] == expected


@pytest.mark.parametrize("size", [0, 1, 511, 512, 513, (8 << 30) - 1, 8 << 30, 1 << 40])
def test_sizes_are_read_back(size):
    info = tarfile.TarInfo.frombuf(header(Entry("x", "file", "x", size)), "utf-8", "surrogateescape")
    assert (info.size, info.mtime) == (size, 315532800)
    assert (size + len(padding(size % 512))) % 512 == 0


def test_names_that_are_no_text_keep_their_bytes():
    info = tarfile.TarInfo.frombuf(header(Entry("a\udcff", "file", "x")), "utf-8", "surrogateescape")
    assert info.name == "a\udcff"


@pytest.mark.parametrize(
    "entries",
    [
        [Entry("/absolute", "file", "x")],
        [Entry("a/../../b", "file", "x")],
        [Entry("../b", "file", "x")],
        [Entry("a//b", "file", "x")],
        [Entry("./b", "file", "x")],
        [Entry("..", "file", "x")],
        [Entry("a", "file", "x"), Entry("a", "file", "x")],
        [Entry("l", "link", "x", target="lib"), Entry("l/x", "file", "x")],
        [Entry("a/l", "link", "x", target="lib"), Entry("a/l/x/y/z", "file", "x")],
        [Entry("a/l/x/y", "file", "x"), Entry("a/l", "link", "x", target="lib")],
    ],
)
def test_names_that_servers_refuse(entries):
    with pytest.raises(EnvironmentBuildError) as caught:
        check_entries(entries)
    assert caught.value.kind == "bad-archive"
    assert "--set exclude=" in caught.value.hint


@pytest.mark.parametrize("target", ["/etc", "../..", "../../x", "../x/../../y"])
def test_links_that_leave(target):
    with pytest.raises(EnvironmentBuildError, match="package-x") as caught:
        check_entries([Entry("a/l", "link", "package-x", target=target)])
    assert caught.value.kind == "link-leaves-environment"


def test_links_that_stay():
    check_entries([Entry("a/l", "link", "x", target="../b"), Entry("a/m", "link", "x", target="..")])


@pytest.mark.parametrize(
    ("links", "escaping"),
    [
        ({"lib/a": "b"}, []),
        ({"lib/a": "../b"}, []),
        ({"lib/a": "../../b"}, ["lib/a"]),
        ({"a": "/etc"}, ["a"]),
        ({"a": "b/../../c"}, ["a"]),
        ({"a": "b//../.."}, ["a"]),
        ({"a": "./../b"}, ["a"]),
        ({"a": "b/./../.."}, ["a"]),
        ({"a": ".", "b": "a/.."}, ["b"]),
        ({"lib/up": "..", "lib/a": "up/../etc"}, ["lib/a"]),
        ({"lib/up": "..", "lib/a": "up/etc"}, []),
        ({"a": "/etc", "b": "a/passwd"}, ["a", "b"]),
        ({"a": "b", "b": "a"}, []),
        ({"a": "a/../.."}, []),
        ({"a/b/c": "../..", "d": "a/b/c/.."}, ["d"]),
    ],
)
def test_links_are_followed_part_by_part(links, escaping):
    assert list(escaping_links(links)) == escaping


def test_links_that_double_the_way_are_given_up_soon():
    links = {f"l{number}": f"l{number + 1}/l{number + 1}" for number in range(100)}
    assert list(escaping_links(links)) == []


@pytest.mark.parametrize("count", [1, 40, 41, 42])
def test_as_many_links_are_followed_as_the_kernel_follows(tmp_path, count):
    root = tmp_path / "root"
    root.mkdir()
    links = {**{f"l{number}": f"l{number + 1}" for number in range(count - 1)}, f"l{count - 1}": ".."}
    for path, target in links.items():
        (root / path).symlink_to(target)
    handle = os.open(root, os.O_RDONLY)
    try:
        os.stat("l0", dir_fd=handle)
        follows = True
    except OSError:
        follows = False
    finally:
        os.close(handle)
    assert follows == (count <= 40)
    assert ("l0" in escaping_links(links)) == follows


@given(
    st.dictionaries(
        st.sampled_from(["a", "b", "d/a", "d/b", "d/e/a"]),
        st.lists(st.sampled_from(["a", "b", "d", "e", "..", "."]), min_size=1, max_size=4).map("/".join),
    )
)
def test_the_kernel_agrees(tmp_path_factory, links):
    """A link that stays inside leads where the kernel would go: below the root, if it leads anywhere."""
    root = tmp_path_factory.mktemp("links") / "root"
    (root / "d/e").mkdir(parents=True)
    for path, target in links.items():
        (root / path).symlink_to(target)
    escaping = set(escaping_links(links))
    for path in links:
        try:
            place = os.path.realpath(root / path, strict=True)
        except OSError:
            continue  # it leads nowhere
        assert Path(place).is_relative_to(root) or path in escaping
