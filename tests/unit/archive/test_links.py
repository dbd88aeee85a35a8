"""Links that lead out of an environment are found without a disk, also those that need others for it."""

import os
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from envpack.archive.links import escaping_links


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
