"""A damaged document in the cache, such as the empty one that a power failure leaves, is none: builds make it again."""

from pathlib import Path

import pytest

from envpack.archive import manifest, segments
from envpack.conda.fetched import fetched_folders
from envpack.conda.probe import ProbeMemory
from envpack.deployment.images.layers import LayerMemory
from envpack.environment import prefix_files
from envpack.environment.build import find_intact
from envpack.environment.inventory import INVENTORY
from envpack.environment.store import MANIFEST, damaged_files, index_of, read_index
from envpack.lock import resolve
from envpack.stub.recipe import is_intact
from envpack.support.memory import remembered
from envpack.support.progress import NoProgress
from tests.tables import every_row

PREFIX, ARCHIVE, SEGMENTS = Path("environments/key"), Path("archives/a.tar"), "archives/a.tar.segments"
DOCUMENTS = ("", "{}", "[]", "5", "null", '"text"', "[[]]", "[{}]", "NaN", '{"schema": 1}', '{"schema": 1, "files": 5}')
# A document of the cache, the function that reads it in a cache, and what it returns if the document is damaged.
READERS = {
    "environment": (PREFIX / MANIFEST, lambda cache: find_intact(cache / PREFIX, cache, NoProgress()), None),
    "inventory": (PREFIX / INVENTORY, lambda cache: damaged_files(cache / PREFIX), (INVENTORY,)),
    "index": (index_of(PREFIX), lambda cache: read_index(cache / PREFIX), {}),
    "prefix": ("prefixes/a.json", lambda cache: prefix_files._remembered(cache / "prefixes/a.json"), {}),
    "archive": (f"{ARCHIVE}.json", lambda cache: "key" in manifest.read_metadata(cache / ARCHIVE), False),
    "segments": (SEGMENTS, lambda cache: segments._read(cache / SEGMENTS, cache / ARCHIVE), {}),
    "selection": (f"selections/a/{MANIFEST}", lambda cache: manifest._cached(cache / "selections/a", ""), None),
    "stub": ("stubs/a/sha256.json", lambda cache: is_intact(cache / "stubs/a"), False),
    "interpreter": ("pythons/3.9/envpack-python.json", lambda _: list(fetched_folders()), []),
    "interpreters": ("interpreters.json", lambda _: ProbeMemory().facts(Path("/bin/false")), None),
    "digests": ("publications/a.json", lambda cache: remembered(cache / "publications/a.json"), {}),
    "images": ("publications/images.json", lambda _: LayerMemory().save(), None),
    "lock": ("solutions/a.lock", lambda cache: resolve._remembered(cache / "solutions/a.lock"), None),
}


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("ENVPACK_CACHE_DIR", str(tmp_path))
    for file in (PREFIX / INVENTORY, ARCHIVE, Path("selections/a") / INVENTORY, Path("stubs/a/stub")):
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_text("content")
    return tmp_path


@every_row(("name", "document"), [(name, document) for name in READERS for document in DOCUMENTS])
def test_a_damaged_document_is_none(cache, name, document):
    place, read, nothing = READERS[name]
    (cache / place).parent.mkdir(parents=True, exist_ok=True)
    (cache / place).write_text(document)
    assert read(cache) == nothing
