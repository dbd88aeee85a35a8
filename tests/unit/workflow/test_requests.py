"""What a build request is resolved from: options first, then envpack.toml, then what the model has."""

import json

import pytest

from envpack.repository.model import open_model
from envpack.repository.placement import point_to_environment
from envpack.settings.project import open_project
from envpack.settings.table import Settings
from envpack.support.errors import InputError, UsageError
from envpack.workflow.requests import build_request, kept_environment

CONFIG = 'backend: "python"\ninput { name: "X" data_type: TYPE_FP32 dims: [1] }\n'
LOCKED = f"""lock-version = "1.0"
created-by = "uv"
[[packages]]
name = "numpy"
version = "1.26.4"
wheels = [
  {{url = "https://f.example/numpy-1.26.4-cp310-cp310-manylinux2014_x86_64.whl", hashes = {{sha256 = "{"a" * 64}"}}}},
  {{url = "https://f.example/numpy-1.26.4-cp310-cp310-manylinux2014_aarch64.whl", hashes = {{sha256 = "{"b" * 64}"}}}},
]
"""
WARM = 'parameters { key: "ENVPACK_START" value { string_value: "warm" } }\n'


@pytest.fixture
def repository(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    folder = tmp_path / "repository"
    (folder / "m/1").mkdir(parents=True)
    (folder / "m/config.pbtxt").write_text(CONFIG)
    (folder / "m/1/model.py").touch()
    return folder


def request_for(repository, **options):
    return build_request(open_project(repository, Settings(**options)), open_model(repository / "m"))


@pytest.mark.parametrize("is_model_linked", [True, False])
def test_a_link_to_a_path_that_a_shell_splits_takes_no_folder(repository, is_model_linked):
    spaced = repository.with_name("my models")
    linked = repository / "m" if is_model_linked else repository
    linked.rename(spaced)
    linked.symlink_to(spaced)
    with pytest.raises(InputError) as caught:
        request_for(repository)
    real = spaced if is_model_linked else spaced / "m"
    assert (caught.value.kind, caught.value.where) == ("bad-path", str(repository / "m"))
    what = f"links lead to '{real}', which contains ' ', and servers pass it to a shell unquoted"
    assert (caught.value.message, "--format tar.gz" in caught.value.hint) == (what, True)
    for options in ({"format": "tar.gz"}, {"served_from": "/models"}):  # unpacked, or elsewhere on the server
        assert request_for(repository, **options).placement.model.folder == repository / "m"


def test_a_path_that_separates_folders_takes_no_folder(repository):
    odd = repository / "a:b"
    (repository / "m").rename(odd)
    project = open_project(repository, Settings())
    with pytest.raises(InputError) as caught:
        build_request(project, open_model(odd))
    error = caught.value
    assert (error.kind, error.where) == ("bad-path", str(odd))
    assert error.message == f"the path '{odd}' contains ':', which separates the folders of PATH and LD_LIBRARY_PATH"
    assert "or build an archive: `envpack build --format tar.gz`" in error.hint
    archive = open_project(repository, Settings(format="tar.gz"))
    assert build_request(archive, open_model(odd)).placement.model.folder == odd


def place(repository, name, minor):
    """Let the model have an environment of envpack, as far as its metadata goes."""
    path = repository / "m" / name
    if name.endswith((".tar", ".tar.gz")):
        path.touch()
        metadata = path.with_name(f"{name}.json")
    else:
        path.mkdir()
        metadata = path / "envpack-environment.json"
    metadata.write_text(json.dumps({"schema": 3, "minor": minor}))
    point_to_environment(open_model(repository / "m"), f"$$TRITON_MODEL_DIRECTORY/{name}")


def python_of(request):
    return request.source.target.python, request.python.source


def test_without_anything_the_release_decides(repository):
    assert python_of(request_for(repository)) == ("3.10", "Triton 24.10")
    assert python_of(request_for(repository, triton="25.08")) == ("3.12", "Triton 25.08")


@pytest.mark.parametrize(
    ("name", "form"), [("python3.9", "dir"), ("python3.9.tar", "tar"), ("python3.9.tar.gz", "tar.gz")]
)
def test_the_environment_that_the_model_has_is_remembered(repository, name, form):
    place(repository, name, "3.9")
    request = request_for(repository)
    assert python_of(request) == ("3.9", "the environment that the model has")
    assert request.placement.archive_format == form


def test_wheels_of_a_lock_are_chosen_for_the_platform_that_is_asked_for(repository):
    (repository / "m/pylock.toml").write_text(LOCKED)
    wheels = {}
    for platform in ("linux-64", "linux-aarch64"):
        request = request_for(repository, python="3.10", platform=platform)
        (wheel,) = request.source.requirements.locked_pip
        wheels[platform] = wheel.url.rpartition("-")[2]
    assert wheels == {"linux-64": "manylinux2014_x86_64.whl", "linux-aarch64": "manylinux2014_aarch64.whl"}


def test_the_newest_python_that_is_here_counts_only_where_python_comes_from_this_machine(repository, monkeypatch):
    monkeypatch.setattr("envpack.workflow.requests.usable_pythons", lambda preference, glibc: {"3.11", glibc})
    (repository / "m/environment.yml").write_text("dependencies: ['python>=3.11', numpy]\n")
    assert python_of(request_for(repository))[0] == "3.11"
    (repository / "envpack.toml").write_text('channels = ["https://channel.example"]\n')
    assert python_of(request_for(repository))[0] != "3.11"


def test_an_environment_that_envpack_did_not_make_decides_nothing(repository):
    (repository / "m/python3.12").mkdir()
    point_to_environment(open_model(repository / "m"), "$$TRITON_MODEL_DIRECTORY/python3.12")
    assert python_of(request_for(repository)) == ("3.10", "Triton 24.10")


def test_requirements_come_before_what_the_model_has_and_settings_must_lie_in_their_range(repository):
    place(repository, "python3.12", "3.12")
    (repository / "m/environment.yml").write_text("dependencies: [python=3.11, numpy]\n")
    assert python_of(request_for(repository)) == ("3.11", "environment.yml")
    (repository / "m/environment.yml").write_text("dependencies: ['python>=3.8,<3.11', numpy]\n")
    assert python_of(request_for(repository)) == ("3.10", "Triton 24.10")
    (repository / "envpack.toml").write_text('[models.m]\npython = "3.9"\n')
    assert python_of(request_for(repository)) == ("3.9", "envpack.toml")
    assert python_of(request_for(repository, python="3.8")) == ("3.8", "--python")
    with pytest.raises(InputError, match=r"Python 3.12 \(--python\) is outside of >=3.8,<3.11"):
        request_for(repository, python="3.12")


@pytest.mark.parametrize(
    ("name", "text", "python"),
    [
        (".python-version", "3.11.7\n", "3.11"),
        (".python-version", "pypy3.9-7.3.11\n# of the team\n 3.9  # served\n3.11\n", "3.9"),
        (".python-version", "cpython-3.12.1-linux-x86_64-gnu\n", "3.12"),
        ("runtime.txt", "python-3.8.10\n", "3.8"),
    ],
)
def test_a_file_for_pyenv_uv_or_heroku_names_the_python(repository, name, text, python):
    place(repository, "python3.12", "3.12")
    requirements = repository / "m/requirements.txt"
    requirements.write_text("numpy\n")
    requirements.with_name(name).write_text(text)
    assert python_of(request_for(repository)) == (python, name)
    assert python_of(request_for(repository, python="3.10")) == ("3.10", "--python")


def test_a_file_for_pyenv_must_name_a_python_that_the_requirements_allow(repository):
    file, environment = repository / "m/.python-version", repository / "m/environment.yml"
    file.write_text("3.9\n")
    environment.write_text("dependencies: [python=3.11, numpy]\n")
    assert python_of(request_for(repository)) == ("3.11", "environment.yml")
    environment.write_text("dependencies: ['python>=3.10', numpy]\n")
    with pytest.raises(InputError, match=r"Python 3.9 \(.python-version\) is outside of >=3.10"):
        request_for(repository)
    file.write_text("my-project\npypy3.9\n")
    assert python_of(request_for(repository)) == ("3.10", "Triton 24.10")
    file.write_text("3.5.2\n")
    with pytest.raises(UsageError, match=r"m/.python-version: Python version '3.5' is too old"):
        request_for(repository)


def test_a_project_sets_form_compiler_and_exclusions_and_a_model_overrides_or_adds(repository):
    (repository / "envpack.toml").write_text(
        'format = "tar"\ntoolchain = "zig"\nexclude = ["*.pyi"]\n[models.m]\nformat = "tar.gz"\nexclude = ["docs/"]\n'
    )
    request = request_for(repository, exclude=("*.md",))
    assert (request.placement.archive_format, request.source.toolchain) == ("tar.gz", "zig")
    assert request.placement.selection.exclude == ("*.pyi", "docs/", "*.md")
    request = request_for(repository, format="dir", toolchain="system")
    assert (request.placement.archive_format, request.source.toolchain) == ("dir", "system")


def test_requirements_and_python_of_all_models_count_less_than_what_one_of_them_has(repository):
    file, of_all, named = repository / "m/requirements.txt", repository / "all.txt", repository / "named.txt"
    for place, text in ((of_all, "numpy==1.26.4\n"), (named, "numpy==1.26.3\n")):
        place.write_text(text)
    (repository / "envpack.toml").write_text('requirements = "all.txt"\npython = "3.11"\n')
    assert python_of(request_for(repository)) == ("3.11", "envpack.toml")
    assert request_for(repository).source.requirements.source.samefile(of_all)
    file.write_text("numpy\n")
    assert request_for(repository).source.requirements.source.samefile(file)
    with (repository / "envpack.toml").open("a") as settings:
        settings.write('[models.m]\nrequirements = "named.txt"\npython = "3.12"\n')
    assert python_of(request_for(repository)) == ("3.12", "envpack.toml")
    assert request_for(repository).source.requirements.source.samefile(named)


def test_a_file_beside_the_repository_is_named_without_the_way_to_it(repository):
    content = repository.parent / "content"
    content.write_text("dependencies: [numpy]\n")
    (repository.parent / "environment.yml").symlink_to(content)
    (repository / "envpack.toml").write_text('requirements = "../environment.yml"\n')
    requirements = request_for(repository).source.requirements
    assert (requirements.source, requirements.conda) == (repository.parent / "environment.yml", ("numpy",))


def test_requirements_of_all_models_do_not_replace_an_environment_that_is_taken_over_or_kept(repository):
    (repository / "all.txt").write_text("numpy\n")
    prefix = repository.parent / "venv"
    (repository / "envpack.toml").write_text(f'requirements = "all.txt"\n[models.m]\nfrom_prefix = "{prefix}"\n')
    assert request_for(repository).source.prefix == prefix
    (repository / "envpack.toml").write_text('requirements = "all.txt"\n')
    foreign = repository.parent / "foreign.tar.gz"
    foreign.touch()
    point_to_environment(open_model(repository / "m"), str(foreign))
    assert kept_environment(open_project(repository), open_model(repository / "m")) == foreign


def test_a_model_starts_as_the_option_the_model_or_the_project_says_or_as_it_is_configured(repository):
    request = request_for(repository)
    assert (request.placement.said.start, request.placement.starts_warm) == ("", False)
    (repository / "envpack.toml").write_text('start = "warm"\n')
    assert (request_for(repository).placement.said.start, request_for(repository).placement.starts_warm) == (
        "warm",
        True,
    )
    (repository / "envpack.toml").write_text('start = "warm"\n[models.m]\nstart = "cold"\n')
    assert request_for(repository).placement.said.start == "cold"
    assert request_for(repository, start="warm").placement.said.start == "warm"
    (repository / "envpack.toml").unlink()
    (repository / "m/config.pbtxt").write_text(CONFIG + WARM)
    request = request_for(repository)
    assert (request.placement.said.start, request.placement.starts_warm) == ("", True)
    assert not request_for(repository, start="cold").placement.starts_warm


def test_without_a_new_stub_a_model_with_envpacks_stub_can_start_warm(repository):
    (repository / "m/triton_python_backend_stub").touch()
    assert request_for(repository, start="warm", stub="never").placement.starts_warm


@pytest.mark.parametrize(
    "text",
    [
        'format = "zip"',
        "exclude = '*.pyi'",
        "exclude = ['']",
        'link_mode = "symlink"',
        'start = "hot"',
        '[models.m]\nformat = "zip"',
        "[models.m]\nstart = true",
    ],
)
def test_wrong_settings_are_refused_with_their_file(repository, text):
    (repository / "envpack.toml").write_text(text)
    with pytest.raises(InputError) as caught:
        open_project(repository)
    assert caught.value.kind == "bad-project-file"
    assert "envpack.toml" in caught.value.where
