"""Which files of an environment are copied; files for passwords are recognised by where tools look for them."""

import json
import os

import pytest

from envpack.environment.prefix_files import Prefix, detect_prefix, holds_credentials, list_files
from envpack.support.errors import InputError


@pytest.mark.parametrize(
    "path",
    [
        "pip.conf",
        "etc/pip.conf",
        ".netrc",
        "home/.pypirc",
        ".condarc",
        "etc/conda/condarc",
        "condarc.d/channels.yml",
        ".config/uv/credentials/index.toml",
        "uv.toml",
        ".git-credentials",
        ".aws/credentials",
        ".docker/config.json",
        ".config/gcloud/application_default_credentials.json",
    ],
)
def test_a_file_for_passwords(path):
    assert holds_credentials(path)


@pytest.mark.parametrize(
    "path",
    [
        "lib/python3.10/site-packages/requests/tests/.netrc",
        "lib/python3.10/site-packages/botocore/.aws/credentials",
        "bin/pip",
        "lib/pip.config",
        "share/doc/netrc",
        "conda-meta/pip-23.0-0.json",
        "share/credentials",
        "etc/config.json",
    ],
)
def test_any_other_file(path):
    assert not holds_credentials(path)


@pytest.mark.parametrize("mode", [None, 0o644], ids=["missing", "not executable"])
def test_a_conda_environment_whose_python_cannot_be_run_is_refused(tmp_path, mode):
    (tmp_path / "conda-meta").mkdir()
    record = {"name": "python", "version": "3.10.1", "subdir": "linux-64"}
    (tmp_path / "conda-meta/python-3.10.1-0.json").write_text(json.dumps(record))
    python = tmp_path / "bin/python3"
    python.parent.mkdir()
    if mode:
        python.touch(mode=mode)
    with pytest.raises(InputError) as caught:
        detect_prefix(tmp_path)
    assert (caught.value.kind, caught.value.where) == ("prefix-unsupported", str(tmp_path))
    assert caught.value.message == "its bin/python3 is missing, or cannot be executed"
    python.touch()
    python.chmod(0o755)
    assert detect_prefix(tmp_path).minor == "3.10"


@pytest.fixture
def files(tmp_path):
    """Lists the files of an environment of a kind in ``tmp_path / "env"``, by path."""

    def paths(kind):
        prefix = Prefix(root=tmp_path / "env", kind=kind, minor="3.10", version="3.10.1", platform="linux-64")
        return [file.path for file in list_files(prefix)]

    (tmp_path / "env/lib").mkdir(parents=True)
    (tmp_path / "env/lib/x").touch()
    return paths


@pytest.mark.parametrize("kind", ["conda", "virtual"])
def test_a_folder_lib64_is_copied(files, tmp_path, kind):
    (tmp_path / "env/lib64").mkdir()
    (tmp_path / "env/lib64/y").touch()
    assert files(kind) == ["lib/x", "lib64/y"]


@pytest.mark.parametrize(
    ("target", "copied"), [("lib", False), ("./lib/", False), ("lib/x", True), ("/usr/lib", True), ("nowhere", True)]
)
def test_a_link_lib64_is_left_out_only_if_it_leads_to_lib(files, tmp_path, target, copied):
    (tmp_path / "env/lib64").symlink_to(target)
    assert files("virtual") == ["lib/x", *(["lib64"] if copied else [])]


@pytest.mark.parametrize(
    ("make", "hint"),
    [
        (lambda file: file.touch(), "rename it"),
        (lambda file: file.mkdir(), "rename it"),
        (lambda file: file.with_name("link").symlink_to(file.name), "change the target of this link, or remove it"),
    ],
    ids=["file", "folder", "target of a link"],
)
def test_a_name_that_is_not_text_is_refused_with_its_place(files, tmp_path, make, hint):
    odd = tmp_path / "env/lib" / os.fsdecode(b"a\xff")
    make(odd)
    with pytest.raises(InputError) as caught:
        files("conda")
    place = next(path for path in odd.parent.iterdir() if path.name != "x")
    assert (caught.value.kind, caught.value.where) == ("name-not-text", ascii(str(place)))
    assert caught.value.hint == hint
