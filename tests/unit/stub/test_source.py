"""The digest of the sources decides whether a cached stub is still the right one."""

import shutil

from envpack.stub.recipe import source_digest, source_folder


def test_any_change_of_any_source_changes_the_digest(tmp_path):
    original = source_folder()
    shutil.copytree(original / "stub_src", tmp_path / "stub_src")
    shutil.copy(original / "CMakeLists.txt", tmp_path)
    assert source_digest(tmp_path) == source_digest(original)
    with (tmp_path / "stub_src/abi/records_24_10.h").open("a") as file:
        file.write("\n")
    assert source_digest(tmp_path) != source_digest(original)


def test_a_change_of_the_documentation_does_not(tmp_path):
    original = source_folder()
    shutil.copytree(original / "stub_src", tmp_path / "stub_src")
    shutil.copy(original / "CMakeLists.txt", tmp_path)
    with (tmp_path / "stub_src/README.md").open("a") as file:
        file.write("One more sentence.\n")
    assert source_digest(tmp_path) == source_digest(original)
