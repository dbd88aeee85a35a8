"""Long steps report how far they are: files of the inventory, bytes of an archive."""

import pytest

from envpack.archive.tarball import pack_archive
from envpack.environment.inventory import find_owners, take_inventory
from tests.steps import Steps


def test_the_inventory_reports_files_and_bytes(prefixes):
    prefix = prefixes.make("k").prefix
    steps = Steps()
    entries = take_inventory(prefix, find_owners(prefix, "3.8"), steps)
    assert steps.advanced[-1] == (len(entries), len(entries), "files", sum(entry.size for entry in entries))


@pytest.mark.parametrize("form", ["tar", "tar.gz"])
def test_packing_reports_the_bytes_of_the_archive(prefixes, tmp_path, form):
    steps = Steps()
    pack_archive(prefixes.make("k"), tmp_path / "env", form=form, progress=steps)
    done = [report[0] for report in steps.advanced]
    assert done == sorted(done)
    assert steps.advanced[-1] == ((tmp_path / "env").stat().st_size, 0, "bytes", 0)
    assert steps.seen == [], "steps do not nest, and the caller is within one"
