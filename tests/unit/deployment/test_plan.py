import json
from pathlib import Path

import pytest

from envpack.deployment.folder import assemble
from envpack.deployment.plan import docker_command, plan_deployment, server_arguments
from envpack.environment.store import MANIFEST
from envpack.repository.config_editor import set_execution_environment
from envpack.repository.model import open_model
from envpack.repository.placement import point_to_environment
from envpack.settings.project import Project
from envpack.settings.table import Settings
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


def test_a_step_that_the_repository_lacks_is_a_caution(project, release):
    """The server may have it from another repository."""
    (project.repository / "early").rename(project.repository.parent / "early")
    assert plan(project, release).cautions == ("both runs early, which is not in the repository",)
    assert plan(project, release, "late").cautions == ()


def test_a_called_model_that_nobody_named_is_a_caution(project, release):
    """`envpack verify` loads it, too."""
    code = project.repository / "late/1/model.py"
    code.write_text("pb_utils.InferenceRequest(model_name='early')")
    caution = "late calls early, which is not part of the deployment: name it, too"
    assert plan(project, release, "late").cautions == (caution,)
    assert plan(project, release).cautions == ()
    code.write_text("print('early')")
    assert plan(project, release, "late").cautions == ()


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


def test_archives_are_unpacked_one_after_the_other(project, release):
    for name in ("early", "late"):
        (project.repository / name / "env.tar").touch()
        point_to_environment(open_model(project.repository / name), "$$TRITON_MODEL_DIRECTORY/env.tar")
    assert server_arguments(plan(project, release))[-1] == "--model-load-thread-count=1"


OF_ANOTHER_MODEL = "$$TRITON_MODEL_DIRECTORY/../early/python3.8"


def test_the_environment_of_another_model_is_deployed_with_that_model(project, release, tmp_path):
    write_environment_path(project, OF_ANOTHER_MODEL)
    through_dots = Project(repository=project.repository / "../repository")
    for repository in (project, through_dots):
        models = {model.name: model for model in plan(repository, release).models}
        assert models["late"].environment == models["early"].environment
        assert (models["late"].environment / "bin").is_dir()
    manifest = assemble(plan(project, release), tmp_path / "tree")
    assert manifest["models"][2]["environment"] == "../early/python3.8"
    assert (tmp_path / "tree/models/late" / manifest["models"][2]["environment"] / "bin/.hidden").is_file()


def test_the_prefix_of_another_models_environment_is_that_models(project, release):
    write_environment_path(project, OF_ANOTHER_MODEL)
    manifest = project.repository / "early/python3.8" / MANIFEST
    for model, count in (("early", 0), ("late", 2)):
        manifest.write_text(json.dumps({"selection": {"final_prefix": f"/models/{model}/python3.8"}}))
        assert len(plan(project, release).cautions) == count


def test_an_environment_that_is_not_deployed_is_refused_whatever_its_path_begins_with(project, release):
    (project.repository / "shared").mkdir()
    for written, names in (
        (OF_ANOTHER_MODEL, ["late"]),
        ("$$TRITON_MODEL_DIRECTORY/../early/1", ["early", "late"]),
        ("$$TRITON_MODEL_DIRECTORY/../shared", ["early", "late"]),
        ("$$TRITON_MODEL_DIRECTORY/..", ["early", "late"]),
        ("$$TRITON_MODEL_DIRECTORY/../../repository/shared", ["early", "late"]),
        ("$$TRITON_MODEL_DIRECTORY/../../../opt/python3.8", ["early", "late"]),
    ):
        write_environment_path(project, written)
        with pytest.raises((InputError, ModelsError)) as raised:
            plan(project, release, *names)
        error = getattr(raised.value, "errors", {"late": raised.value})["late"]
        assert (error.kind, error.where) == ("environment-elsewhere", str(project.repository / "late")), written
        assert error.message == (
            f"EXECUTION_ENV_PATH names {written}, which is outside its folder and is not the execution environment of "
            "a model in the deployment"
        )
        assert error.hint == "write its requirements, if it has none, and run `envpack build late`"


def test_an_environment_that_becomes_an_archive_may_be_another_models_alone(project, release):
    """An object store gets one beside the model."""
    write_environment_path(project, OF_ANOTHER_MODEL)
    (model,) = plan(project, release, "late", packs=True).models
    assert model.environment == project.repository / "early/python3.8"
    write_environment_path(project, "$$TRITON_MODEL_DIRECTORY/../../python3.8")
    with pytest.raises(ModelsError) as raised:
        plan(project, release, packs=True)
    assert raised.value.errors["late"].kind == "environment-elsewhere"


def write_environment_path(project, written):
    file = project.repository / "late/config.pbtxt"
    file.write_text(set_execution_environment(file.read_text(), written, file))


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


def test_every_model_that_cannot_be_deployed_is_named(project, release, tmp_path):
    (project.repository / "late/config.pbtxt").write_text("max_batch_size: many\n")
    with pytest.raises(ModelsError) as caught:
        plan_deployment(project.saying(Settings(backends=tmp_path / "elsewhere")))
    assert {name: error.kind for name, error in caught.value.errors.items()} == {
        "early": "backend-missing",
        "late": "bad-config",
    }
    assert caught.value.errors["early"].where == str(project.repository / "early")
    assert (caught.value.kind, caught.value.exit_code) == ("backend-missing", 3)
    with pytest.raises(InputError) as alone:
        plan_deployment(project.saying(Settings(backends=tmp_path)), ["late"])
    assert alone.value.kind == "bad-config"


def test_a_repository_without_models_is_an_error(tmp_path, release):
    with pytest.raises(InputError) as caught:
        plan(Project(repository=tmp_path), release)
    assert (caught.value.kind, caught.value.where) == ("repository-empty", str(tmp_path))


def test_each_error_and_caution_says_what_to_run(project, release, tmp_path):
    late, folder = open_model(project.repository / "late"), project.repository / "late"
    for named, kind, message, hint in (
        (
            "$$TRITON_MODEL_DIRECTORY/none",
            "environment-missing",
            "EXECUTION_ENV_PATH names none, which does not exist",
            "run `envpack build late`",
        ),
        (
            f"{folder}/python3.8",
            "environment-elsewhere",
            f"EXECUTION_ENV_PATH names {folder}/python3.8, which will have another path on the server",
            "write its requirements, if it has none, and run `envpack build late`",
        ),
    ):
        point_to_environment(late, named)
        with pytest.raises(InputError) as raised:
            plan(project, release, "late")
        error = raised.value
        assert (error.kind, error.where, error.message, error.hint) == (kind, str(folder), message, hint)
    point_to_environment(late, "/opt/envs/late")
    assert plan(project, release, "late").cautions == (
        "late uses /opt/envs/late, which is not part of the deployment and must exist on the server",
    )
    point_to_environment(late, "$$TRITON_MODEL_DIRECTORY/python3.8")
    (folder / "python3.8" / MANIFEST).write_text(json.dumps({"selection": {"final_prefix": "/other"}}))
    (caution,) = plan(project, release, "late").cautions
    command = "envpack build --set served_from=/models late"
    assert caution == f"files of late's execution environment contain the path /other: run `{command}`"
    with pytest.raises(InputError) as raised:
        plan_deployment(project.saying(Settings(backends=tmp_path / "elsewhere")), ["early"])
    assert raised.value.message == (
        f"config.pbtxt names the backend 'python_3_8', which is not in {tmp_path}/elsewhere"
    )
    assert raised.value.hint == (
        "run `envpack build --set layout=backend early`, or name its folder with --set backends=DIRECTORY"
    )


def test_cautions_are_in_the_order_of_the_models(project, release):
    for name in ("late", "early"):
        point_to_environment(open_model(project.repository / name), f"/opt/{name}")
    assert [caution.split()[0] for caution in plan(project, release).cautions] == ["early", "late"]


def test_models_may_be_at_the_root_of_a_server(project, release):
    for said, path in (("/", "/"), ("/srv/", "/srv"), ("", "/models")):
        assert plan_deployment(project.saying(Settings(served_from=said)), ["late"]).served_from == path
    assert plan(project, release, "late", served_from="/own/").served_from == "/own"
    assert plan(project.saying(Settings(served_from="/said")), release, served_from="/own").served_from == "/said"


def test_the_whole_command_that_serves_a_tree(project, release, tmp_path):
    assert docker_command(plan(project, release), tmp_path) == (
        *("docker", "run", "--rm", "--shm-size=1g", "-p", "8000:8000", "-p", "8001:8001", "-e", "PYTHONNOUSERSITE=1"),
        *("--mount", f"type=bind,source={tmp_path}/models,target=/models,readonly"),
        "--mount",
        f"type=bind,source={tmp_path}/backends/python_3_8,target=/opt/tritonserver/backends/python_3_8,readonly",
        *("nvcr.io/nvidia/tritonserver:24.10-py3", "tritonserver", "--model-repository=/models"),
    )


def test_the_command_mounts_a_tree_whatever_its_path(project, release):
    project = project.saying(Settings(served_from="/a,b"))
    command = docker_command(plan_deployment(project, ["late"]), Path("/srv/at 9:00"))
    assert 'type=bind,source=/srv/at 9:00/models,"target=/a,b",readonly' in command
