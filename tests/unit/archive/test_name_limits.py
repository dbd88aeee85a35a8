"""Names in an archive: their depth, and the memory and time that all of them together take, have limits."""

import io
import tarfile

import pytest

from envpack.archive import inspection
from envpack.archive.inspection import inspect_environment
from envpack.support.errors import InputError


@pytest.fixture
def archive(tmp_path):
    """Writes an archive with these empty files and links; returns its path."""

    def written(names, links=()):
        file = tmp_path / "env.tar"
        with tarfile.open(file, "w", format=tarfile.GNU_FORMAT) as content:
            for name in names:
                content.addfile(tarfile.TarInfo(name), io.BytesIO(b""))
            for name, target in links:
                info = tarfile.TarInfo(name)
                info.type, info.linkname = tarfile.SYMTYPE, target
                content.addfile(info)
        return file

    return written


def refused(file):
    return {found.path[:9]: found.reason for found in inspect_environment(file).findings if found.kind == "refused"}


def test_names_of_a_real_depth_are_taken(archive):
    assert refused(archive(["bin/activate", "a/" * 100 + "x"], [("l", "a/" * 100 + "x")])) == {}


def test_deep_names_and_targets_are_refused_one_by_one(archive):
    reason = "its name or its target has more than 128 folders"
    assert refused(archive(["bin/activate", "a/" * 129 + "x"], [("l", "a/" * 129)])) == {
        "a/a/a/a/a": reason,
        "l": reason,
    }


def test_what_all_targets_take_has_a_limit(archive, monkeypatch):
    file = archive(["bin/activate"], [(f"l{n}", "20/long/long/name") for n in range(20)])
    assert "refused" not in {found.kind for found in inspect_environment(file).findings if found.path}
    monkeypatch.setattr(inspection, "_MOST_TARGETS", 100)
    with pytest.raises(InputError, match="the targets of its links have more than 100 characters") as caught:
        inspect_environment(file)
    assert (caught.value.kind, caught.value.where) == ("archive-bomb", str(file))
