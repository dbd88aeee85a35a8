"""Long steps report how far they are: files of the inventory, bytes of an archive."""

import pytest

from envpack.archive.tarball import pack_archive
from envpack.environment.inventory import find_owners, take_inventory
from envpack.support.progress import NoProgress


class Recorder(NoProgress):
    def __init__(self):
        self.reports, self.steps = [], []

    def begin(self, task):
        self.steps.append(task)

    def advance(self, done, total, unit, *, size=0):
        self.reports.append((done, total, unit, size))


def test_the_inventory_reports_files_and_bytes(prefixes):
    prefix = prefixes.make("k").prefix
    recorder = Recorder()
    entries = take_inventory(prefix, find_owners(prefix, "3.8"), recorder)
    assert recorder.reports[-1] == (len(entries), len(entries), "files", sum(entry.size for entry in entries))


@pytest.mark.parametrize("form", ["tar", "tar.gz"])
def test_packing_reports_the_bytes_of_the_archive(prefixes, tmp_path, form):
    recorder = Recorder()
    pack_archive(prefixes.make("k"), tmp_path / "env", form=form, progress=recorder)
    done = [report[0] for report in recorder.reports]
    assert done == sorted(done)
    assert recorder.reports[-1] == ((tmp_path / "env").stat().st_size, 0, "bytes", 0)
    assert recorder.steps == [], "steps do not nest, and the caller is within one"
