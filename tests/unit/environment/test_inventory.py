import hashlib
import os

import pytest

from envpack.environment.inventory import Owners, take_inventory
from envpack.support.errors import InputError


def test_every_file_has_its_digest_whatever_its_size_and_however_many(tmp_path):
    contents = {f"{number:03}": b"x" * number for number in range(200)}
    for size in ((1 << 20) - 1, 1 << 20, (1 << 20) + 1, 3 << 20):
        contents[f"large-{size}"] = bytes(size - 1) + b"e"
    for name, content in contents.items():
        (tmp_path / name).write_bytes(content)
    found = take_inventory(tmp_path, Owners({}, (), {}))
    assert [entry.path for entry in found] == sorted(contents)
    assert [(entry.size, entry.sha256) for entry in found] == [
        (len(contents[entry.path]), hashlib.sha256(contents[entry.path]).hexdigest()) for entry in found
    ]


@pytest.mark.parametrize("link", [False, True], ids=["file", "target of a link"])
def test_a_name_that_is_not_text_is_refused_with_its_place(tmp_path, link):
    """A package can contain one; the environment is removed, so the path in it is what helps."""
    odd = tmp_path / "lib" / os.fsdecode(b"a\xff")
    odd.parent.mkdir()
    odd.touch() if not link else odd.with_name("link").symlink_to(odd.name)
    with pytest.raises(InputError) as caught:
        take_inventory(tmp_path, Owners({}, (), {}))
    assert (caught.value.kind, caught.value.where) == ("name-not-text", "'lib/link'" if link else r"'lib/a\udcff'")
    assert caught.value.hint == "choose another version of the package that installs it"
