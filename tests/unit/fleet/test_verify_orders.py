"""Which models share a server, and which workers may verify them."""

import pickle
from pathlib import Path

import pytest

from envpack.cli.main import run
from envpack.deployment.signing import Statement, check_statement, read_signing_key, read_trust, sign
from envpack.fleet.orders import verify_tasks
from envpack.settings.project import open_project
from envpack.settings.table import Settings
from envpack.store.location import parse_location
from envpack.support.errors import InputError, UsageError
from tests.faults.broken_models import CONFIG
from tests.signing_keys import write_pair

from .conftest import GPU

ENSEMBLE = """platform: "ensemble"
input [ { name: "IN" data_type: TYPE_FP32 dims: [ -1 ] } ]
output [ { name: "OUT" data_type: TYPE_FP32 dims: [ -1 ] } ]
ensemble_scheduling { step [ { model_name: "fast" model_version: -1
  input_map { key: "IN" value: "IN" } output_map { key: "OUT" value: "OUT" } } ] }
"""


def planned(place, *names, **said):
    folder = Path() if "://" in str(place) else place
    return {task.names: task for task in verify_tasks(open_project(folder, Settings(**said)), str(place), names)}


def test_each_model_has_a_server_of_its_own_or_as_many_as_asked_share_one(add_model, tmp_path):
    for name in "abc":
        add_model(name)
    assert set(planned(tmp_path)) == {("a",), ("b",), ("c",)}
    assert set(planned(tmp_path, group=2)) == {("a", "b"), ("c",)}
    assert set(planned(tmp_path, "b")) == {("b",)}
    keys = {task.key for _ in range(2) for task in planned(tmp_path).values()}
    assert len(keys) == 6, "two callers must not share a verdict"


def test_a_model_on_gpus_goes_to_a_worker_with_one_and_so_does_an_ensemble_with_it(add_model, tmp_path):
    add_model("fast", config=CONFIG + GPU)
    add_model("plain")
    add_model("chain", config=ENSEMBLE)
    tasks = planned(tmp_path, group=4)
    assert set(tasks) == {("chain", "fast"), ("plain",)}
    assert "gpu" in tasks["chain", "fast"].needs
    assert tasks["chain", "fast"].work.args[2].settings.gpu
    assert "gpu" not in tasks["plain",].needs
    assert not tasks["plain",].work.args[2].settings.gpu
    assert all("gpu" in task.needs for task in planned(tmp_path, gpu=True).values())
    assert set(planned(tmp_path, "chain")[("chain",)].needs) == {"platform linux-64", "server", "gpu"}


def test_models_of_other_backends_are_verified_and_unreadable_ones_reported_by_the_first_server(add_model, tmp_path):
    for name in "ab":
        add_model(name)
    add_model("broken", config="max_batch_size: many\n")
    (tmp_path / "network/1").mkdir(parents=True)
    (tmp_path / "network/1/model.onnx").write_text("")
    tasks = planned(tmp_path)
    assert list(tasks) == [("a", "broken"), ("b",), ("network",)]
    assert tasks["a", "broken"].work.args[1] == ("a", "broken")
    assert list(planned(tmp_path, "network")) == [("network",)]
    published = parse_location(f"file://{tmp_path}")
    assert list(planned(published)) == [("a", "broken"), ("b",), ("network",)]
    for place in (tmp_path, published):
        with pytest.raises(InputError) as refused:
            planned(place, "broken")
        assert refused.value.kind == "bad-config"


def test_a_container_needs_a_worker_with_docker(add_model, tmp_path):
    add_model("a")
    for where in ({"runtime": "docker"}, {"image": "triton:1"}):
        assert "docker" in planned(tmp_path, **where)["a",].needs
    assert "server" in planned(tmp_path, runtime="process")["a",].needs
    (tmp_path / "envpack.toml").write_text('image = "triton:1"\n')
    for where in ({"runtime": "process"}, {"server": "/srv/tritonserver"}):  # which count more than the file
        assert "server" in planned(tmp_path, **where)["a",].needs


def test_workers_require_the_signatures_that_the_caller_requires(add_model, tmp_path):
    """A task travels to a worker, so the key does."""
    add_model("a")
    private, public = write_pair(tmp_path)
    (task,) = verify_tasks(open_project(tmp_path, Settings()), str(tmp_path), ("a",), read_trust([public], 2))
    trust = pickle.loads(pickle.dumps(task.work)).args[3]
    assert trust.max_age == 2 * 86400
    signed = Statement("publication", {"a/x": "0" * 64}, "s3://b", time=1e9)
    envelope = sign(signed.document(), [read_signing_key(private)])
    assert check_statement(envelope, trust, "publication", where="a", now=1e9).address == "s3://b"


@pytest.mark.parametrize("option", [("--keep",), ("--set", "port=8000")])
def test_options_for_one_server_are_refused(add_model, tmp_path, capsys, option):
    add_model("a")
    assert run(["verify", "--on", "local:2", "--repository", str(tmp_path), *option]) == 2
    name = option[-1].partition("=")[0] if option[0] == "--set" else option[0]
    assert f"{name} is for a server of this machine" in capsys.readouterr().err


def test_the_port_of_the_file_is_not_for_servers_of_a_cluster(add_model, tmp_path):
    """Several of them can run on one machine."""
    add_model("a")
    (tmp_path / "envpack.toml").write_text("port = 8000\n")
    assert planned(tmp_path)["a",].work.args[2].settings.port is None


def test_published_models_are_served_by_a_process_of_a_worker(add_model, tmp_path):
    add_model("a")
    with pytest.raises(UsageError, match="not in a container"):
        planned(f"file://{tmp_path}", "a", image="triton:1")
    assert "server" in planned(f"file://{tmp_path}", "a")["a",].needs
