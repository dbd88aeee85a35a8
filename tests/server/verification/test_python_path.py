"""`--env PYTHONPATH=…` with a `sitecustomize`: it reaches every process that runs a model."""

from pathlib import Path, PurePosixPath

import pytest

from envpack.server.choice import ServerSpec
from envpack.settings.table import Settings
from envpack.verification.run import verify
from tests.faults.repositories import Site
from tests.faults.repositories.running import Catalogue, build_kit

SITECUSTOMIZE = """import os
from pathlib import Path

arguments = Path("/proc/self/cmdline").read_bytes().split(b"\\0")
Path({folder!r}, str(os.getpid())).write_bytes(b"\\0".join(arguments[:-1]))
"""
MODEL_FILE, INSTANCE = 1, 8


@pytest.fixture
def repository(server, tmp_path):
    """One model with our stub, and one with the server's own."""
    catalogue = Catalogue((), build_kit(tmp_path / "kit"), tmp_path)
    ours = catalogue.good_model(tmp_path / "models/ours")
    theirs = catalogue.good_model(tmp_path / "models/theirs")
    Site(tmp_path / "models", theirs, catalogue.kit).upstream_stub("3.10")
    return ours.parent


@pytest.mark.thorough
def test_a_sitecustomize_reaches_every_process_of_a_model(repository, tmp_path):
    seen = tmp_path / "seen"
    seen.mkdir()
    (tmp_path / "path").mkdir()
    (tmp_path / "path/sitecustomize.py").write_text(SITECUSTOMIZE.format(folder=str(seen)))
    path = {"PYTHONPATH": str(tmp_path / "path")}
    spec = ServerSpec(Settings(runtime="process"), variables=path, together=False)
    verdict = verify(repository, spec=spec)
    assert verdict.ok, verdict.models
    # Each model is started twice: to complete its configuration, and to serve.
    assert sorted(map(who, seen.iterdir())) == [
        ("ours", "ours"),
        ("ours", "ours_0"),
        ("theirs", "theirs"),
        ("theirs", "theirs_0"),
    ]


def who(file: Path):
    arguments = file.read_bytes().decode().split("\0")
    return PurePosixPath(arguments[MODEL_FILE]).parent.parent.name, arguments[INSTANCE]
