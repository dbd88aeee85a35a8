"""What envpack did not make is refused, or moved aside; it is never deleted."""

import json
import os
import shutil

import pytest

from envpack.environment.store import MANIFEST
from envpack.repository.model import open_model
from envpack.repository.placement import backend_for
from envpack.support.bounded_reading import sha256_of
from envpack.support.errors import InputError
from envpack.support.placed_files import STUB_NAME
from envpack.workflow.placement import foreign_paths, foreign_stub, refuse_foreign, refuse_own_source
from envpack.workflow.recipe import TakenOver
from tests.unit.workflow.test_placement import request_for


@pytest.fixture
def model(tmp_path):
    (tmp_path / "models/core/1").mkdir(parents=True)
    (tmp_path / "models/core/1/model.py").touch()
    return open_model(tmp_path / "models/core")


def foreign(model, minor="3.10", **changes):
    return [path.name for path in foreign_paths(request_for(model, **changes), minor)]


def test_a_folder_without_our_manifest_is_foreign(model):
    folder = model.folder / "python3.10"
    assert foreign(model) == []
    folder.mkdir()
    assert foreign(model) == []  # nothing could be lost
    (folder / "thesis.txt").write_text("years of work")
    assert foreign(model) == ["python3.10"]
    for manifest in ("", "[]", '"key"', "{}", '{"schema": 1}'):
        (folder / MANIFEST).write_text(manifest)
        assert foreign(model) == ["python3.10"]
    (folder / MANIFEST).write_text('{"key": "x", "schema": 0}')  # of any version of envpack
    assert foreign(model) == []


def test_a_folder_in_the_place_of_a_file_is_foreign_even_if_it_is_empty(model):
    for name in (STUB_NAME, "python3.10.tar.gz", "python3.10.tar.gz.json"):
        (model.folder / name).mkdir()
    assert foreign(model, archive_format="tar.gz") == ["python3.10.tar.gz", "python3.10.tar.gz.json", STUB_NAME]
    assert list(foreign_stub(model.folder)) == [model.folder / STUB_NAME]


@pytest.mark.parametrize("leads_to", ["nowhere", "elsewhere"])
def test_a_link_is_foreign_wherever_it_leads(model, leads_to, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / MANIFEST).write_text('{"key": "x"}')
    (model.folder / "python3.10").symlink_to(tmp_path / leads_to)
    assert foreign(model) == ["python3.10"]


def test_an_archive_is_ours_while_the_metadata_beside_it_describes_it(model):
    archive = model.folder / "python3.10.tar.gz"
    archive.write_bytes(b"\x1f\x8b not really")
    assert foreign(model, archive_format="tar.gz") == ["python3.10.tar.gz"]
    metadata = {"key": "x", "size": archive.stat().st_size, "sha256": sha256_of(archive), "mtime_ns": 0}
    (model.folder / "python3.10.tar.gz.json").write_text(json.dumps(metadata))
    assert foreign(model, archive_format="tar.gz") == []  # also after a copy, which changes its time
    archive.write_bytes(b"\x1f\x8b yours now!!")
    assert foreign(model, archive_format="tar.gz") == ["python3.10.tar.gz"]
    archive.unlink()
    assert foreign(model, archive_format="tar.gz") == []
    (model.folder / "python3.10.tar.gz.json").write_text('{"mine": 1}')
    assert foreign(model, archive_format="tar.gz") == ["python3.10.tar.gz.json"]


def test_a_stub_of_another_origin_is_foreign_and_a_damaged_one_of_ours_is_not(model):
    stub = model.folder / STUB_NAME
    shutil.copy("/bin/true", stub)
    assert (foreign(model), list(foreign_stub(model.folder))) == ([STUB_NAME], [stub])
    assert foreign(model, stub="never") == []
    stub.write_bytes(b"\x7fELF cut off after envpack_stub_run")
    assert foreign(model) == []


def test_a_backend_folder_that_holds_neither_our_stub_nor_our_model_py_is_foreign(model, tmp_path):
    backend = backend_for("3.10", tmp_path / "backends")
    (tmp_path / "stub").write_bytes(b"envpack_stub_run")
    backend.place(tmp_path / "stub")
    assert foreign(model, backends=tmp_path / "backends") == []
    backend.stub.unlink()
    assert foreign(model, backends=tmp_path / "backends") == []
    (backend.folder / "model.py").write_text("# somebody's own")
    assert foreign(model, backends=tmp_path / "backends") == ["python_3_10"]


def test_what_is_foreign_is_named_and_left_alone(model):
    (model.folder / "python3.10").mkdir()
    (model.folder / "python3.10/thesis.txt").touch()
    with pytest.raises(InputError, match="this folder exists, and envpack did not make it") as caught:
        refuse_foreign([model.folder / "python3.10"], force=False)
    assert (caught.value.kind, caught.value.where) == ("not-ours", str(model.folder / "python3.10"))
    assert (model.folder / "python3.10/thesis.txt").exists()


def test_force_renames_and_never_over_something(model):
    for content in ("first", "second"):
        (model.folder / "python3.10").write_text(content)
        refuse_foreign([model.folder / "python3.10"], force=True)
    (model.folder / "python3.10").symlink_to("nowhere")
    refuse_foreign([model.folder / "python3.10"], force=True)
    assert not os.path.lexists(model.folder / "python3.10")
    assert (model.folder / "python3.10.saved-1").read_text() == "first"
    assert (model.folder / "python3.10.saved-2").read_text() == "second"
    assert os.readlink(model.folder / "python3.10.saved-3") == "nowhere"


@pytest.mark.parametrize("inside", ["", "lib/venv"])
def test_an_environment_is_not_taken_over_from_where_it_goes(model, tmp_path, inside):
    source = model.folder / "python3.10" / inside
    source.mkdir(parents=True)
    (tmp_path / "alias").symlink_to(source)
    for prefix in (source, tmp_path / "alias"):
        taken = TakenOver(prefix=prefix, python="", platform="", triton="24.10")
        with pytest.raises(InputError, match="would replace the environment that it takes over"):
            refuse_own_source(taken, request_for(model), "3.10")
        refuse_own_source(taken, request_for(model), "3.11")
