"""SHA-256 of what envpack writes of one small environment: an archive, a layer of an image, and what a store holds.

The bytes of a compressed file depend on the version of the compressor, so the digests of such a file are those of the
tar in it. A store names a blob by its own SHA-256; that of a lock, which is not compressed, is here too.
"""

import gzip
import hashlib

from envpack.archive.layer import LayerMember, pack_layer
from envpack.archive.tarball import pack_archive, pack_whole
from envpack.lock.lockfile import Lock
from envpack.requirements.model import PipPackage
from envpack.requirements.target import Target
from envpack.store.shared import open_store
from envpack.support.progress import NoProgress
from envpack.workflow.shared import push_lock
from tests.golden.environment import FILES, make_environment
from tests.golden.json_text import json_text

_LOCK = Lock(
    Target("linux-64", "3.10", "2.35", "12.6"),
    ("https://channel.example/conda",),
    (),
    (PipPackage("six", "1.16.0", "https://files.example.org/six-1.16.0-py2.py3-none-any.whl", "8" * 64, 11053),),
    "0" * 64,
)


def texts(place):
    """All digests."""
    environment = make_environment(place.folder / "environment")
    return {
        "digests.json": json_text(
            {
                "inventory of the environment": environment.content,
                "archives": {form: _archive(place.folder, environment, form) for form in ("tar", "tar.gz")},
                "layer": _layer(place.folder),
                "environment in a store": _whole(place.folder, environment),
                "lock in a store": _lock(place.folder),
            }
        )
    }


def _archive(folder, environment, form):
    file = folder / f"python3.10.{form}"
    pack_archive(environment, file, form=form)
    content = file.read_bytes()
    return {"tar": _sha256(gzip.decompress(content) if form == "tar.gz" else content)}


def _layer(folder):
    members = [LayerMember("environment", "folder")]
    for path, content in FILES.items():
        kind = "program" if path.startswith("bin/") else "file"
        members.append(LayerMember(f"environment/{path.replace('/', '-')}", kind, len(content), content=content))
    members.append(LayerMember("environment/link", "link", target="bin-tool"))
    packed = pack_layer(members, folder / "layer", lambda _: None)
    assert packed.sha256 == _sha256((folder / "layer").read_bytes())
    assert packed.content_sha256 == _sha256(gzip.decompress((folder / "layer").read_bytes()))
    return {"tar": packed.content_sha256}


def _whole(folder, environment):
    """The pieces of an environment that a store keeps as a blob each: what describes it, each package, the end."""
    file = folder / "whole.tar.gz"
    sizes = pack_whole(environment, file, NoProgress())
    content, pieces = file.read_bytes(), []
    for size in sizes:
        pieces.append(_sha256(gzip.decompress(content[:size])))
        content = content[size:]
    return {"pieces of the tar": pieces, "tar": _sha256(gzip.decompress(file.read_bytes()))}


def _lock(folder):
    (folder / "store").mkdir()
    push_lock(open_store(f"file://{folder}/store", push=True), "a-key", _LOCK)
    files = [path for path in (folder / "store").rglob("*") if path.is_file()]
    return {str(path.relative_to(folder / "store")): _sha256(path.read_bytes()) for path in sorted(files)}


def _sha256(content):
    return hashlib.sha256(content).hexdigest()
