"""What a model may give to load_model(), what counts as a change of a model's files, and models on another server."""

import json
import os

import pytest

from envpack.local import ModelFailed, ModelSource, Request
from envpack.local.overrides import opened_override, stamp_of
from envpack.local.remote import RemoteModel
from envpack.server import RequestError, Tensor

from .conftest import numbers, request, tensor

CONFIG = json.dumps({"name": "m", "backend": "python", "max_batch_size": 3})


def test_files_are_there_during_the_block_with_the_configuration():
    files = {"file:1/model.py": b"code", "file:/2/data/x.bin": b"\x00"}
    with opened_override("m", CONFIG, files) as override:
        folder = override.folder
        found = {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}
        assert folder.name == "m"
        assert found.pop("config.pbtxt").decode() == str(override.config)
        assert found == {"1/model.py": b"code", "2/data/x.bin": b"\x00"}
        assert (override.config.name, override.config.max_batch_size) == ("m", 3)
    assert not folder.parent.exists()


def test_without_files_there_is_no_folder():
    with opened_override("m", '{"backend": "python"}', {}) as override:
        assert (override.folder, override.config.name) == (None, "m")


@pytest.mark.parametrize(
    ("config", "files"),
    [
        ("{", {}),
        ('{"unknown": 1}', {}),
        ('{"name": "other"}', {}),
        (CONFIG, {"1/model.py": b""}),
        (CONFIG, {"file:../m2/1/model.py": b""}),
        (CONFIG, {"file:": b""}),
        (CONFIG, {"file:/": b""}),
    ],
)
def test_what_a_server_does_not_take_is_refused(config, files):
    with (
        pytest.raises(ModelFailed, match="^failed to load 'm', failed to poll from model repository$"),
        opened_override("m", config, files),
    ):
        pass


def test_a_change_of_a_models_own_files_is_a_change(tmp_path):
    (tmp_path / "1/data").mkdir(parents=True)
    (tmp_path / "python3.10").mkdir()
    for name in ("1/model.py", "1/data/x", "1/model.pyc", "config.pbtxt", "python3.10/file", "notes.txt"):
        (tmp_path / name).write_text("old")
    before = stamp_of(tmp_path)
    assert [name for name, *_ in before] == [
        str(tmp_path / name) for name in ("1/data/x", "1/model.py", "config.pbtxt")
    ]
    for name in ("1/model.pyc", "python3.10/file", "notes.txt"):
        (tmp_path / name).write_text("other content")
    assert stamp_of(tmp_path) == before
    os.utime(tmp_path / "1/data/x", ns=(0, 5))
    changed = stamp_of(tmp_path)
    assert changed != before
    (tmp_path / "config.pbtxt").write_text("longer")
    os.utime(tmp_path / "config.pbtxt", ns=(0, before[2][1]))
    assert stamp_of(tmp_path) != changed


def test_a_source_names_its_code(repository):
    repository.add("m", version="3")
    source = repository.source("m")
    assert source.file == repository.folder / "m/3/model.py"
    source.config.default_model_filename = "own.py"
    assert source.file.name == "own.py"
    assert isinstance(source, ModelSource)


# Models on another server


class Client:
    """A server with one model, in place of a connection to it."""

    def __init__(self, config=None, answer=()):
        self.config_of, self.answer, self.asked, self.version = config, answer, [], ""

    def config(self, name):
        if self.config_of is None:
            raise RequestError(f"no {name}", status=400)
        return self.config_of

    def of_version(self, version):
        self.version = version
        return self

    def infer(self, name, inputs, **options):
        self.asked.append((name, inputs, options))
        if isinstance(self.answer, RequestError):
            raise self.answer
        return self.answer


OUTPUTS = (Tensor("OUT", "INT32", (1,), (7,)), Tensor("REST", "INT32", (1,), (8,)))


def test_a_request_goes_to_the_server_and_its_answer_comes_back():
    client = Client({}, OUTPUTS)
    model = RemoteModel(client, "m")
    ((response, last),) = model.stream(Request((tensor("IN", 5),), parameters='{"p": 1}'))
    assert ([output.name for output in response.outputs], last) == (["OUT", "REST"], True)
    assert client.asked == [("m", [Tensor("IN", "INT32", (1,), (5,))], {"binary": True, "parameters": {"p": 1}})]
    asked = request("m", 5, outputs=frozenset({"OUT"}), correlation_id=4, flags=1, version=3)
    ((response, _),) = model.stream(asked)
    assert numbers(response) == [7]
    sequence = {"sequence_id": 4, "sequence_start": True, "sequence_end": False}
    assert (client.asked[1][2]["parameters"], client.version) == (sequence, "3")
    list(model.stream(request("m", 5, correlation_id="s", flags=2)))
    assert client.asked[2][2]["parameters"] == {"sequence_id": "s", "sequence_start": False, "sequence_end": True}
    assert [model.serves(version) for version in (-1, 0, 4)] == [True, False, True]


def test_what_the_server_rejects_is_the_response():
    ((response, _),) = RemoteModel(Client({}, RequestError("bad shape")), "m").stream(request("m", 5))
    assert (response.error, response.outputs) == ("bad shape", ())


def test_a_decoupled_model_cannot_be_asked_over_http():
    model = RemoteModel(Client({"model_transaction_policy": {"decoupled": True}}), "m")
    assert model.decoupled
    with pytest.raises(
        ModelFailed, match="^'m' is decoupled, and HTTP cannot carry its responses; run it here as well$"
    ):
        list(model.stream(request("m", 1)))


def test_models_that_only_a_server_has_are_asked_there(repository):
    with repository.server(remote=Client({}, OUTPUTS)) as server:
        assert numbers(server.infer(request("away", 5, outputs=frozenset({"OUT"})))) == [7]
        with pytest.raises(ModelFailed, match="^Request for unknown model: 'away' is not found$"):
            server.own_model("away")
        server.unload("away")
    with repository.server(remote=Client()) as server, pytest.raises(ModelFailed, match="^no away$"):
        server.model("away")


def test_an_ensemble_may_run_a_model_of_the_server(repository):
    from .test_ensemble import ensemble_config, step

    repository.add("e", "", ensemble_config(step("away", "IN:IN", "OUT:OUT")))
    with repository.server(remote=Client({}, OUTPUTS)) as server:
        assert numbers(server.infer(request("e", 5))) == [7]
