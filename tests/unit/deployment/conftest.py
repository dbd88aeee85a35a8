import pytest

from envpack.deployment.images import registry as client
from envpack.deployment.images.address import parse_image_address
from envpack.deployment.plan import plan_deployment
from envpack.repository.model import open_model
from envpack.repository.placement import backend_for, in_model_folder, point_to_environment
from envpack.settings.project import Project
from envpack.settings.releases import find_release
from tests.memory_registry import memory_registry

BACKENDS = {"early": "python_3_8", "late": ""}


@pytest.fixture
def project(tmp_path):
    """A repository of two models with small environments, one of them with its own backend, and an ensemble."""
    repository = tmp_path / "repository"
    stub = tmp_path / "stub"
    stub.write_bytes(b"\x7fELF")
    for name, backend in BACKENDS.items():
        folder = repository / name
        (folder / "1").mkdir(parents=True)
        (folder / "1/model.py").write_text("code")
        (folder / "1/.cache").mkdir()
        (folder / "python3.8/bin").mkdir(parents=True)
        (folder / "python3.8/bin/.hidden").write_text("activate")
        (folder / "python3.8/lib").symlink_to("bin")
        point_to_environment(open_model(folder), in_model_folder("python3.8"), backend)
    (repository / "late/triton_python_backend_stub").write_bytes(b"\x7fELF")
    (repository / "late/triton_python_backend_stub").chmod(0o755)
    (repository / "both").mkdir()
    (repository / "both/1").mkdir()
    steps = ", ".join(f'{{ model_name: "{name}" model_version: -1 }}' for name in BACKENDS)
    (repository / "both/config.pbtxt").write_text(f"ensemble_scheduling {{ step [ {steps} ] }}")
    (repository / ".git").mkdir()
    (repository / "notes").mkdir()
    backend_for("3.8", tmp_path / "backends").place(stub)
    return Project(repository=repository)


@pytest.fixture
def release():
    return find_release("24.10")


@pytest.fixture
def registry(monkeypatch, tmp_path):
    """A registry in this process; the user has no account there, and the cache is empty."""
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path / "docker"))
    monkeypatch.setenv("ENVPACK_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(client, "_PAUSE", 0)
    monkeypatch.setattr(client, "_is_encrypted", lambda *_: False)  # reads all certificates, each time
    with memory_registry() as found:
        yield found


@pytest.fixture
def plan(project, release):
    return plan_deployment(project)


@pytest.fixture
def address(registry):
    return parse_image_address(f"oci://{registry.host}/team/models:1")
