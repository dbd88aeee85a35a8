"""The input that uv receives, and the parsing of its output; uv itself does not run here."""

import dataclasses
import hashlib
import json
import tomllib
from pathlib import Path

import pytest

from envpack.lock import pip
from envpack.lock.pip import build_wheels, install_pip, resolve_pip, to_pylock
from envpack.requirements.model import PipPackage, Requirements
from envpack.requirements.target import Target
from envpack.support.errors import EnvironmentBuildError, InputError
from envpack.support.processes import CompletedProcess
from tests.tables import every_row

TARGET = Target("linux-64", "3.10", "2.35", "")
HASH = "a" * 64
SIX = PipPackage("six", "1.17.0", "https://files.example/six-1.17.0-py3-none-any.whl", HASH, 11)
SIX_ENTRY = f"""
[[packages]]
name = "Six"
version = "1.17.0"
wheels = [{{ url = "{SIX.url}", hashes = {{ sha256 = "{HASH}" }}, size = 11 }}]
"""


class Uv:
    """Records one run of uv with the files that it was given, and writes ``pylock`` as its result."""

    def __init__(self, monkeypatch, pylock="", *, returncode=0, stderr=""):
        self.pylock, self._end = pylock, CompletedProcess(returncode, "", stderr)
        self.arguments, self.files, self.variables, self.runs = [], {}, None, 0
        monkeypatch.setattr(pip, "run_uv", self.run)

    def run(self, arguments, variables=None):
        self.runs += 1
        self.variables = variables
        self.arguments = [str(argument) for argument in arguments]
        paths = [argument for argument in arguments if isinstance(argument, Path)]
        self.files = {path.name: path.read_text() for path in paths if path.exists()}
        paths[-1].write_text(self.pylock)
        return self._end

    def value(self, option):
        return self.arguments[self.arguments.index(option) + 1]


def test_nothing_to_resolve_needs_no_run(monkeypatch):
    uv = Uv(monkeypatch)
    assert resolve_pip(Requirements(constraints=("a<2",)), TARGET) == ()
    assert uv.runs == 0


def test_uv_resolves_for_the_target_and_takes_wheels_only(monkeypatch):
    uv = Uv(monkeypatch, SIX_ENTRY)
    requirements = Requirements(pip=("six>1", "b"), constraints=("six<2", "c<1"))
    wheel = Path("/cache/my_tool-1-py3-none-any.whl")
    assert resolve_pip(requirements, TARGET, wheels=[wheel], provided=["numpy"]) == (SIX,)
    assert uv.arguments[:2] == ["pip", "compile"]
    assert uv.files == {
        "requirements.in": f"six>1\nb\nmy_tool @ file://{wheel}\n",
        "constraints.txt": "six<2\nc<1\n",
        "excludes.txt": "numpy\n",
    }
    assert uv.value("--constraints").endswith("/constraints.txt")
    assert uv.value("--excludes").endswith("/excludes.txt")
    assert uv.value("--python-version") == "3.10"
    assert uv.value("--python-platform") == "x86_64-manylinux_2_35"
    assert uv.value("--only-binary") == ":all:"
    assert uv.value("--format") == "pylock.toml"
    assert uv.value("--output-file").endswith("/pylock.toml")
    assert "--no-header" in uv.arguments
    assert not Path(uv.value("--output-file")).exists()


def test_a_requirement_with_an_index_of_its_own_is_given_as_a_project(monkeypatch):
    uv = Uv(monkeypatch, SIX_ENTRY)
    torch, tool = "https://me:word@torch.example/whl", "https://tool.example"
    indexes = (("torch", torch), ("my-tool", tool), ("my-other", tool))
    lines = ("six>1", f"torch==2 --hash=sha256:{HASH}", "My.Tool<3", "my_other")
    resolve_pip(Requirements(pip=lines, indexes=indexes, index_names={torch: "a name", tool: "corp"}), TARGET)
    assert uv.files["requirements.in"] == "six>1\n"
    assert tomllib.loads(uv.files["pyproject.toml"]) == {
        "project": {"name": "envpack-indexes", "version": "0", "dependencies": ["torch==2", "My.Tool<3", "my_other"]},
        "tool": {
            "uv": {
                "sources": {
                    "torch": {"index": "own-0"},
                    "my-tool": {"index": "corp"},
                    "my-other": {"index": "corp"},
                },
                "index": [
                    {"name": name, "url": url, "explicit": True} for name, url in (("own-0", torch), ("corp", tool))
                ],
            }
        },
    }
    assert "word" not in " ".join(uv.arguments)


def test_locked_versions_are_preferred(monkeypatch):
    uv = Uv(monkeypatch, SIX_ENTRY)
    resolve_pip(Requirements(pip=("six",)), TARGET, prefer=[SIX])
    assert f'url = "{SIX.url}", hashes = {{ sha256 = "{HASH}" }}' in uv.files["pylock.toml"]


def test_secrets_in_options_reach_uv_in_variables_only(monkeypatch):
    uv = Uv(monkeypatch, SIX_ENTRY)
    options = (
        "--index-url https://me:secret@index.example/simple", "--extra-index-url https://a:b@x.example", "--no-index",
        "--find-links /wheels", "--pre", "--trusted-host index.example", "--prefer-binary",
    )  # fmt: skip
    resolve_pip(Requirements(pip=("six",), pip_options=options), TARGET)
    assert uv.files["requirements.in"] == "\n".join([*options[2:4], "six", ""])
    assert uv.variables["UV_DEFAULT_INDEX"] == "https://me:secret@index.example/simple"
    assert uv.variables["UV_INDEX"].split()[0] == "https://a:b@x.example"
    assert "secret" not in " ".join(uv.arguments)
    assert uv.value("--prerelease") == "allow"
    assert uv.variables["UV_INSECURE_HOST"] == "index.example"
    assert "--prefer-binary" not in uv.arguments


def test_settings_that_choose_versions_are_arguments_of_uv(monkeypatch):
    uv = Uv(monkeypatch, SIX_ENTRY)
    options = ("--resolution lowest", "--prerelease allow", "--exclude-newer 1 week", "--exclude-newer-package a=false")
    resolve_pip(Requirements(pip=("six",), pip_options=options), TARGET)
    assert {"--resolution=lowest", "--prerelease=allow", "--exclude-newer=1 week"} < set(uv.arguments)
    assert "--exclude-newer-package=a=false" in uv.arguments
    assert uv.files["requirements.in"] == "six\n"


@pytest.mark.parametrize(
    ("sources", "options", "policy"),
    [
        ((), (), ["--only-binary", ":all:"]),
        (("a", "b"), (), ["--only-binary", ":all:", "--no-binary", "a", "--no-binary", "b"]),
        ((":all:",), (), []),
        ((), ("--no-binary a",), []),
        ((), ("--only-binary a",), []),
        ((), ("--pre",), ["--only-binary", ":all:"]),
    ],
)
def test_only_the_named_packages_are_built_from_source(monkeypatch, sources, options, policy):
    uv = Uv(monkeypatch, SIX_ENTRY)
    resolve_pip(Requirements(pip=("six",), pip_options=options), TARGET, sources=sources)
    start = next((uv.arguments.index(word) for word in ("--only-binary", "--no-binary") if word in uv.arguments), None)
    found = uv.arguments[start : uv.arguments.index("--format")] if start is not None else []
    assert found == policy


def test_every_form_of_a_file_in_pylock_is_read(monkeypatch):
    hashes = f'hashes = {{ sha256 = "{HASH}" }}'
    entries = f"""
[[packages]]
name = "Z_z"
version = "2"
sdist = {{ url = "https://me:secret@files.example/z_z-2.tar.gz", {hashes} }}

[[packages]]
name = "mine"
archive = {{ path = "/cache/with space/mine-1.5-py3-none-any.whl", {hashes}, size = 7 }}

[[packages]]
name = "both"
version = "1"
wheels = [
  {{ url = "https://files.example/both-1-cp310.whl", {hashes} }},
  {{ url = "https://files.example/both-1-any.whl", {hashes} }},
]
sdist = {{ url = "https://files.example/both-1.tar.gz", {hashes} }}
"""
    Uv(monkeypatch, entries)
    assert resolve_pip(Requirements(pip=("mine",)), TARGET) == (
        PipPackage("both", "1", "https://files.example/both-1-cp310.whl", HASH, 0),
        PipPackage("mine", "1.5", "file:///cache/with%20space/mine-1.5-py3-none-any.whl", HASH, 7),
        PipPackage("z-z", "2", "https://files.example/z_z-2.tar.gz", HASH, 0),
    )


def test_a_wheel_of_another_machine_is_named_before_anything_is_installed(tmp_path):
    package = PipPackage("own", "1.0", f"file://{tmp_path}/a%20b/own-1.0-py3-none-any.whl", "a" * 64)
    with pytest.raises(EnvironmentBuildError) as caught:
        install_pip([package], tmp_path, TARGET, python=tmp_path / "python")
    error = caught.value
    what = "the lock names own 1.0 by a path, and there is no such file on this machine"
    fix = "run `envpack lock` here; or where the lock was made, with --store URL --set push=true"
    assert (error.kind, error.message, error.hint) == ("package-missing", what, fix)
    assert error.where == f"{tmp_path}/a b/own-1.0-py3-none-any.whl"


@every_row(
    ("url", "kind"),
    [
        ("https://files.example/own-1.0-py3-none-any.whl?X-Amz-Expires=60", "wheels = [{ url"),
        ("https://files.example/own-1.0-py3-none-any.whl#egg=own", "wheels = [{ url"),
        ("https://files.example/own-1.0.tar.gz?name=own-1.0-py3-none-any.whl", "sdist = { url"),
    ],
)
def test_a_file_is_what_the_path_of_its_address_says(url, kind):
    package = PipPackage("own", "1.0", url, "a" * 64)
    assert f"{kind} = {json.dumps(url)}" in to_pylock([package], TARGET)
    assert package.is_wheel == kind.startswith("wheels")


def test_a_repository_cannot_be_locked(monkeypatch):
    Uv(monkeypatch, '[[packages]]\nname = "A_b"\nvcs = { type = "git" }\n')
    with pytest.raises(EnvironmentBuildError, match="'a-b' is neither a wheel nor a source") as caught:
        resolve_pip(Requirements(pip=("a",)), TARGET)
    assert caught.value.kind == "unresolvable"
    assert caught.value.hint


@pytest.mark.parametrize(
    "line", [f"six --hash=sha256:{HASH}", f"Six==1.17.0 --hash=sha256:{'b' * 64} --hash=sha256:{HASH}"]
)
def test_a_hash_in_the_requirements_must_match(monkeypatch, line):
    Uv(monkeypatch, SIX_ENTRY)
    assert resolve_pip(Requirements(pip=(line, "other")), TARGET) == (SIX,)


@pytest.mark.parametrize(
    ("line", "reason", "where"),
    [
        (f"six --hash=sha256:{'b' * 64}", "none of its hashes matches", SIX.url),
        (f"SIX[x]>1 --hash=sha256:{'b' * 64} --hash=md5:{'a' * 32}", "none of its hashes matches", SIX.url),
        (f"six --hash=md5:{'a' * 32}", "none of its hashes is a SHA-256", ""),
    ],
)
def test_another_hash_than_in_the_requirements_is_rejected(monkeypatch, line, reason, where):
    Uv(monkeypatch, SIX_ENTRY)
    with pytest.raises(EnvironmentBuildError, match=f"'six': {reason}") as caught:
        resolve_pip(Requirements(pip=("other", line)), TARGET)
    assert (caught.value.kind, caught.value.where) == ("hash-mismatch", where)
    assert caught.value.hint


def test_a_failed_run_is_an_error_about_the_requirement(monkeypatch):
    Uv(monkeypatch, returncode=1, stderr="Because you require six<1 and six>2, we can conclude")
    with pytest.raises(EnvironmentBuildError, match="six>2") as caught:
        resolve_pip(Requirements(pip=("b", "six>2")), TARGET)
    assert caught.value.kind == "unresolvable"


class Builder:
    """Stands for `uv build`: writes wheels of these names."""

    def __init__(self, monkeypatch, *names, returncode=0):
        self._names, self._returncode = names, returncode
        monkeypatch.setattr(pip, "run_uv", self.run)

    def run(self, arguments, *, variables):
        self.arguments, self.variables = arguments, variables
        for name in self._names:
            Path(arguments[arguments.index("--out-dir") + 1], name).write_bytes(b"wheel")
        return CompletedProcess(self._returncode, "", "error: Failed to build `/x/tool`")


TOOL = Requirements(projects=(Path("/src/tool"),))


@pytest.mark.parametrize("name", ["tool-1-py3-none-any.whl", "tool-1-cp310-cp310-linux_x86_64.whl"])
def test_a_projects_wheel_is_stored_by_its_content(monkeypatch, tmp_path, name):
    builder = Builder(monkeypatch, name)
    (wheel,) = build_wheels(TOOL, TARGET, Path("/python"), tmp_path)
    assert wheel == tmp_path / "wheels" / hashlib.sha256(b"wheel").hexdigest()[:16] / name
    assert wheel.read_bytes() == b"wheel"
    assert [file.name for file in (tmp_path / "wheels").iterdir()] == [wheel.parent.name]
    assert builder.arguments[:2] == ["build", "--wheel"]
    output = Path(builder.arguments[builder.arguments.index("--out-dir") + 1])
    assert output.parent == tmp_path / "wheels"  # on the same file system, so that the wheel can be moved
    assert builder.arguments[builder.arguments.index("--python") + 1] == Path("/python")
    assert "--no-config" in builder.arguments
    assert builder.arguments[-1] == Path("/src/tool")
    assert build_wheels(TOOL, TARGET, Path("/python"), tmp_path) == (wheel,)


def test_what_builds_a_project_comes_from_the_indexes_of_the_file(monkeypatch, tmp_path):
    builder = Builder(monkeypatch, "tool-1-py3-none-any.whl")
    requirements = dataclasses.replace(TOOL, pip_options=("--index-url https://own.example/simple",))
    build_wheels(requirements, TARGET, Path("/python"), tmp_path)
    assert builder.variables["UV_DEFAULT_INDEX"] == "https://own.example/simple"


def test_a_project_that_tells_uv_where_a_dependency_comes_from_is_refused_unless_that_is_named(monkeypatch, tmp_path):
    """Its wheel only has the name, which a public index may have, too."""
    Builder(monkeypatch, "tool-1-py3-none-any.whl")
    text = '[project]\nname = "tool"\nversion = "1"\ndependencies = ["six", "My.Own>1"]\n[tool.uv.sources]\n'
    (tmp_path / "pyproject.toml").write_text(f'{text}my-own = {{ index = "own" }}\nother = {{ workspace = true }}\n')
    tool = Requirements(projects=(tmp_path,))
    with pytest.raises(InputError) as caught:
        build_wheels(tool, TARGET, Path("/python"), tmp_path / "cache")
    assert caught.value.where == f"{tmp_path / 'pyproject.toml'}:6"
    assert "[tool.uv.sources] decides where my-own comes from" in caught.value.message
    own = PipPackage("my-own", "2", "https://own.example/my_own-2-py3-none-any.whl", HASH)
    for named in ({"pip": ("My_Own>=1",)}, {"locked_pip": (own,)}):
        assert build_wheels(dataclasses.replace(tool, **named), TARGET, Path("/python"), tmp_path / "cache")


@pytest.mark.parametrize(
    ("names", "returncode", "target"),
    [
        (["tool-1-py3-none-any.whl"], 1, TARGET),
        ([], 0, TARGET),
        (["a-1-py3-none-any.whl", "b-1-py3-none-any.whl"], 0, TARGET),
        (["tool-1-cp310-cp310-linux_x86_64.whl"], 0, Target("linux-aarch64", "3.10", "2.35", "")),
    ],
    ids=["failed", "no wheel", "two wheels", "other machine"],
)
def test_a_project_without_one_wheel_for_the_target_is_an_error(monkeypatch, tmp_path, names, returncode, target):
    Builder(monkeypatch, *names, returncode=returncode)
    with pytest.raises(EnvironmentBuildError) as caught:
        build_wheels(TOOL, target, Path("/python"), tmp_path)
    assert (caught.value.kind, caught.value.where) == ("build-failed", str(TOOL.projects[0]))
    assert list((tmp_path / "wheels").iterdir()) == []
