"""Records of installed packages, written at random: an environment that has them is read, or refused in one line."""

import json
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from envpack.archive.comparison import read_record
from envpack.environment.checks import refuse_external_references
from envpack.environment.inventory import find_owners, installed_packages, take_inventory
from envpack.environment.prefix_copy import changed_files, copy_files, declared_files, named_prefix_paths
from envpack.environment.prefix_files import activation_variables, detect_prefix, list_files
from envpack.environment.relocation import relocate
from tests.hostile import VALUES, damaged, hostile, read_or_refused, trees, with_one_value_replaced
from tests.unit.lock.test_lock import LOCK

SITE = "lib/python3.10/site-packages"
RECORD = {
    "name": "python",
    "version": "3.10.1",
    "build": "0",
    "subdir": "linux-64",
    "url": "https://me:word@host/t/tk/linux-64/python-3.10.1-0.conda",
    "files": ["bin/tool", "lib/x.py"],
    "paths_data": {
        "paths": [
            {"_path": "bin/tool", "prefix_placeholder": "/opt/placehold", "file_mode": "text", "sha256": "0" * 64},
            {"_path": "lib/x.py", "path_type": "hardlink", "sha256_in_prefix": "1" * 64},
        ]
    },
}
TEXTS = st.text(max_size=30) | st.sampled_from(["x,", '"', "x" * 140_000, "../../../etc/passwd,,", "\0", "\r", "é"])


def write(root, **files):
    for name, content in {
        "bin/python3": b"",
        "bin/tool": b"#!/old/bin/python\n",
        "lib/x.py": b"x = 1\n",
        f"{SITE}/y.py": b"",
        **files,
    }.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(content)
    (root / "bin/python3").chmod(0o755)


def take_over(root, to):
    """Everything that `--from-prefix` reads of an environment, in its order."""
    prefix = detect_prefix(root)
    files = list_files(prefix)
    refuse_external_references(root, "3.10", find_owners(root, "3.10"))
    paths, declared = named_prefix_paths(prefix), declared_files(prefix)
    copy_files(root, files, to, paths, declared)
    changed_files(prefix, declared, {file.path: "2" * 64 for file in files if not file.target}, paths)
    activation_variables(root)


def finish(root):
    """Everything that a build reads of the packages that it has installed."""
    relocate(root, [root], minor="3.10")
    owners = find_owners(root, "3.10")
    refuse_external_references(root, "3.10", owners)
    installed_packages(root, "3.10", take_inventory(root, owners), LOCK)


@pytest.fixture(params=[take_over, finish], ids=["take over", "finish"])
def use(request, tmp_path):
    """Writes a fresh environment for each example, since reading changes what is installed, and reads it."""

    def used(**files):
        with tempfile.TemporaryDirectory(dir=tmp_path) as folder:
            root = Path(folder, "prefix")
            write(root, **files)
            with read_or_refused():
                request.param(root, *([Path(folder, "copy")] if request.param is take_over else []))

    return used


@hostile
@given(with_one_value_replaced(RECORD, VALUES | trees))
def test_records_of_conda_with_one_value_replaced(use, record):
    use(**{"conda-meta/python-3.10.1-0.json": json.dumps(record).encode()})


@hostile
@given(damaged(json.dumps(RECORD).encode()))
def test_damaged_records_of_conda(use, content):
    use(**{"conda-meta/python-3.10.1-0.json": content})


@pytest.mark.thorough
@hostile
@given(st.lists(TEXTS, max_size=5).map("\n".join).map(str.encode) | st.binary(max_size=60))
def test_records_of_wheels(use, content):
    names = ("RECORD", "METADATA", "INSTALLER", "direct_url.json", "entry_points.txt")
    conda = {"conda-meta/python-3.10.1-0.json": json.dumps(RECORD).encode()}
    for name in names:
        use(**conda, **{f"{SITE}/x-1.dist-info/RECORD": b"x.py,,\n", f"{SITE}/x-1.dist-info/{name}": content})


@hostile
@given(trees)
def test_origins_of_wheels(use, origin):
    files = {f"{SITE}/x-1.dist-info/RECORD": b"x.py,,\n", f"{SITE}/x-1.dist-info/direct_url.json": json.dumps(origin)}
    record = {"conda-meta/python-3.10.1-0.json": json.dumps(RECORD)}
    use(**{name: text if isinstance(text, bytes) else text.encode() for name, text in (files | record).items()})


@hostile
@given(st.binary(max_size=60) | TEXTS.map(lambda text: text.encode("utf-8", "surrogatepass")))
def test_path_files(use, content):
    use(**{f"{SITE}/x.pth": content, "conda-meta/python-3.10.1-0.json": json.dumps(RECORD).encode()})


@hostile
@given(damaged(b"home = /usr/bin\ninclude-system-site-packages = false\nversion_info = 3.10.1\n"))
def test_settings_of_virtual_environments(tmp_path, content):
    write(tmp_path, **{"pyvenv.cfg": content, "bin/activate": content * 40})
    with read_or_refused():
        named_prefix_paths(detect_prefix(tmp_path))


@hostile
@given(with_one_value_replaced(RECORD), st.binary(max_size=80))
def test_records_in_archives(record, content):
    for path in ("conda-meta/x.json", f"{SITE}/x-1.dist-info/METADATA"):
        for text in (json.dumps(record).encode(), content, b"Name: " + content + b"\nVersion: 1\n"):
            read_record(path, text)
