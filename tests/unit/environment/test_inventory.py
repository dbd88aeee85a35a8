import hashlib

from envpack.environment.inventory import Owners, take_inventory


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
