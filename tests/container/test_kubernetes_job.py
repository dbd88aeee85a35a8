"""The Kubernetes Job runs as written: its init script, then its container, here with Docker."""

import json
import subprocess
import sys
from pathlib import Path

import docker
import pytest

from envpack.fleet.kubernetes_verify import verification_job
from envpack.settings.project import Project
from envpack.settings.table import Settings

pytestmark = pytest.mark.thorough

CHECKOUT = Path(__file__).parents[2]
WHEEL = "/models/triton_envpack-0.1.0-py3-none-any.whl"


def test_the_job_verifies_in_the_image_that_will_serve(daemon, repository, tmp_path):
    project = Project(repository=repository, said=Settings(image=daemon.image))
    pod = verification_job(project, (), envpack_wheel=WHEEL)["spec"]["template"]["spec"]
    tools = tmp_path / "tools"
    prepare(pod["initContainers"][0]["command"][-1], tools)
    (container,) = pod["containers"]
    places = {"models": repository, "tools": tools}
    running = daemon.client.containers.run(
        container["image"],
        [*container["command"], "--json"],
        environment={variable["name"]: variable["value"] for variable in container["env"]},
        mounts=[
            docker.types.Mount(mount["mountPath"], str(places[mount["name"]]), type="bind", read_only=mount["readOnly"])
            for mount in container["volumeMounts"]
            if mount["name"] in places
        ],
        tmpfs={"/tmp": "exec,mode=1777"},
        user=str(pod["securityContext"]["runAsUser"]),
        read_only=container["securityContext"]["readOnlyRootFilesystem"],
        cap_drop=container["securityContext"]["capabilities"]["drop"],
        security_opt=["no-new-privileges"],
        init=True,
        detach=True,
    )
    try:
        ended = running.wait(timeout=120)
        out = running.logs(stdout=True, stderr=False)
        assert ended["StatusCode"] == 0, running.logs()[-2000:]
        verdict = json.loads(out)["verdict"]
        assert verdict["runtime"] == "process"
        assert [(model["name"], model["ok"]) for model in verdict["models"]] == [("double", True)]
    finally:
        running.remove(force=True)


def prepare(script, tools):
    """Run the init container's script with this machine's Python in place of its image's, and this checkout."""
    assert WHEEL in script
    base = Path(sys.base_prefix)
    script = script.replace(WHEEL, "@wheel@").replace("/usr/local", str(base)).replace("/envpack", str(tools))
    script = script.replace("@wheel@", str(CHECKOUT)).replace("python3 -m pip", f"{sys.executable} -m pip")
    script = script.replace("--no-cache-dir", "--no-compile")
    tools.mkdir()
    subprocess.run(["sh", "-ec", script], check=True, capture_output=True)
