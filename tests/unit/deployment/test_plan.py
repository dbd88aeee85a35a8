import json

import pytest

from envpack.deployment import docker_command, plan_deployment, server_arguments
from envpack.environment.store import MANIFEST
from envpack.repository import open_model, point_to_environment
from envpack.settings import Project, Settings
from envpack.support.errors import InputError, ModelsError


def plan(project, release, *names, **options):
    return plan_deployment(project, names, **options)


def test_a_plan_has_all_models_and_their_backends(project, release):
    deployment = plan(project, release)
    assert [(model.name, model.backend) for model in deployment.models] == [
        ("both", ""),
        ("early", "python_3_8"),
        ("late", "python"),
    ]
    assert [backend.name for backend in deployment.backends] == ["python_3_8"]
    assert (deployment.served_from, deployment.cautions, deployment.unpacking) == ("/models", (), ())


def test_named_models_include_the_steps_of_ensembles(project, release):
    assert [model.name for model in plan(project, release, "late").models] == ["late"]
    assert plan(project, release, "late").backends == ()
    assert [model.name for model in plan(project, release, "both").models] == ["both", "early", "late"]


def test_models_of_other_backends_go_along(project, release):
    for name in ("net", "unconfigured"):
        (project.repository / name / "1").mkdir(parents=True)
        (project.repository / name / "1/model.onnx").write_bytes(b"graph")
    (project.repository / "net/config.pbtxt").write_text('platform: "onnxruntime_onnx"')
    models = {model.name: model for model in plan(project, release).models}
    assert list(models) == ["both", "early", "late", "net", "unconfigured"]
    assert [(models[name].backend, models[name].environment) for name in ("net", "unconfigured")] == [
        ("onnxruntime", None),
        ("onnxruntime", None),
    ]
    assert [model.name for model in plan(project, release, "net").models] == ["net"]


def test_the_start_command_mounts_each_part_and_keeps_archives_apart(project, release, tmp_path):
    deployment = plan(project, release)
    command = " ".join(docker_command(deployment, tmp_path / "tree"))
    assert f"-v {tmp_path}/tree/models:/models:ro " in command
    backend = "backends/python_3_8"
    assert f"-v {tmp_path}/tree/{backend}:/opt/tritonserver/{backend}:ro " in command
    assert command.endswith("nvcr.io/nvidia/tritonserver:24.10-py3 tritonserver --model-repository=/models")
    for name in ("early", "late"):
        (project.repository / name / "env.tar").touch()
        point_to_environment(open_model(project.repository / name), "$$TRITON_MODEL_DIRECTORY/env.tar")
    assert server_arguments(plan(project, release))[-1] == "--model-load-thread-count=1"


@pytest.mark.parametrize(
    ("named", "kind"),
    [
        ("$$TRITON_MODEL_DIRECTORY/none", "environment-missing"),
        ("{repository}/late/python3.8", "environment-elsewhere"),
    ],
)
def test_an_environment_that_the_server_cannot_find_is_an_error(project, release, named, kind):
    model = open_model(project.repository / "late")
    point_to_environment(model, named.format(repository=project.repository))
    with pytest.raises(ModelsError) as caught:
        plan(project, release)
    assert list(caught.value.errors) == ["late"]
    assert (caught.value.kind, caught.value.where) == (kind, str(model.folder))


def test_an_environment_outside_the_deployment_is_a_caution(project, release):
    point_to_environment(open_model(project.repository / "late"), "/opt/envs/late")
    (caution,) = plan(project, release).cautions
    assert "late uses /opt/envs/late" in caution


def test_a_backend_that_is_not_for_python_is_a_caution(project, release, tmp_path):
    (project.repository / "forest/1").mkdir(parents=True)
    (project.repository / "forest/config.pbtxt").write_text('backend: "fil"\n')
    assert plan(project, release).cautions == ()
    (project.repository.parent / "backends/fil").mkdir()
    (caution,) = plan(project, release).cautions
    assert caution.startswith("forest needs ")
    assert caution.endswith("backends/fil, which is not part of the deployment and must be on the server")


def test_files_with_another_prefix_are_a_caution(project, release):
    manifest = project.repository / "late/python3.8" / MANIFEST
    for prefix, count in (("/models/late/python3.8", 0), ("/srv/late/python3.8", 1), ("", 0)):
        manifest.write_text(json.dumps({"selection": {"final_prefix": prefix}}))
        assert len(plan(project, release).cautions) == count
    manifest.write_text(json.dumps({"selection": {"final_prefix": "/srv/late/python3.8"}}))
    assert plan(project.saying(Settings(served_from="/srv/")), release).cautions == ()


def test_a_missing_backend_is_an_error(project, release, tmp_path):
    with pytest.raises(ModelsError) as caught:
        plan_deployment(project.saying(Settings(backends=tmp_path / "elsewhere")))
    (name, error), *others = caught.value.errors.items()
    assert "'python_3_8'" in error.message
    assert (name, error.kind, error.where) == ("early", "backend-missing", str(project.repository / "early"))
    assert others == []


def test_every_model_that_cannot_be_deployed_is_named(project, release, tmp_path):
    (project.repository / "late/config.pbtxt").write_text("max_batch_size: many\n")
    with pytest.raises(ModelsError) as caught:
        plan_deployment(project.saying(Settings(backends=tmp_path / "elsewhere")))
    assert {name: error.kind for name, error in caught.value.errors.items()} == {
        "early": "backend-missing",
        "late": "bad-config",
    }
    assert (caught.value.kind, caught.value.exit_code) == ("backend-missing", 3)
    with pytest.raises(InputError) as alone:
        plan_deployment(project.saying(Settings(backends=tmp_path)), ["late"])
    assert alone.value.kind == "bad-config"


def test_a_repository_without_models_is_an_error(tmp_path, release):
    with pytest.raises(InputError) as caught:
        plan(Project(repository=tmp_path), release)
    assert (caught.value.kind, caught.value.where) == ("repository-empty", str(tmp_path))
