"""The order in which requirements become a lock, and what each step receives; no tool and no network is used."""

import dataclasses
from pathlib import Path

import pytest

from envpack.conda.settings import CondaSettings
from envpack.lock.lockfile import Lock, digest_requirements
from envpack.lock.resolve import LockOptions, lock_memory, lock_requirements
from envpack.requirements.model import CondaPackage, PipPackage, Requirements
from envpack.requirements.target import Target
from envpack.support.errors import EnvironmentBuildError, InputError, UsageError
from envpack.support.memory import remember
from tests.steps import Steps

TARGET = Target("linux-64", "3.10", "2.35", "")
SETTINGS = CondaSettings(alias="https://channels.example")


def conda(name, **changes):
    fields = {"version": "1", "build": "0", "subdir": "linux-64", "url": f"file:///{name}.conda", "sha256": "a" * 64}
    return CondaPackage(**{"name": name, **fields, **changes})


def wheel(name):
    return PipPackage(name, "1", f"https://files.example/{name}-1-py3-none-any.whl", "b" * 64, 1)


class Tools:
    """Replaces the programs that resolve, build and install, and records the arguments of each call."""

    def __init__(self, monkeypatch, tmp_path):
        self.asked, self.provides = {}, ()
        self.conda, self.pip, self.wheels = (conda("zlib"), conda("python")), (wheel("b"), wheel("a")), ()
        monkeypatch.setattr("envpack.conda.resolve.resolve_conda", self.resolve_conda)
        monkeypatch.setattr("envpack.conda.engine.install_conda", self.install_conda)
        monkeypatch.setattr("envpack.lock.resolve.resolve_pip", self.resolve_pip)
        monkeypatch.setattr("envpack.lock.resolve.build_wheels", self.build_wheels)
        monkeypatch.setattr("envpack.lock.resolve.interpreter_for", self.interpreter_for)
        monkeypatch.setattr("envpack.lock.resolve.host_platform", lambda: "linux-64")
        monkeypatch.setattr("envpack.conda.channels.local_channel", self.local_channel)
        self.folder, self.progress, self.has_managed = tmp_path, Steps(), True

    def resolve_conda(self, specs, channels, target, **options):
        self.asked["conda"] = {"specs": list(specs), "channels": channels.urls, "target": target, **options}
        return self.conda

    def install_conda(self, packages, prefix, target, **options):
        self.asked["install"] = {"packages": tuple(packages), "prefix": prefix, **options}
        for name in self.provides:
            (prefix / f"lib/python3.10/site-packages/{name}").mkdir(parents=True)

    def resolve_pip(self, requirements, target, **options):
        self.asked["pip"] = {"requirements": requirements, "target": target, **options}
        return self.pip

    def build_wheels(self, requirements, target, python, cache):
        self.asked["build"] = (requirements.projects, target, python, cache)
        return (Path("/cache/tool.whl"),)

    def interpreter_for(self, python, *, preference, progress, glibc="", allowed=""):
        self.asked["preference"] = preference
        self.asked.setdefault("preferences", []).append(preference)
        self.asked["glibc"] = glibc

        @dataclasses.dataclass
        class Interpreter:
            executable: Path
            managed: bool

        return Interpreter(Path(f"/pythons/{python}"), self.has_managed)

    def local_channel(self, interpreter, *, cache, progress):
        self.asked["channel"] = (interpreter.executable, cache)

        @dataclasses.dataclass
        class Local:
            channel: Path

        return Local(Path("/cache/channel"))

    def options(self, **changes):
        return LockOptions(**{"channels": ("forge",), "settings": SETTINGS, "cache": self.folder / "cache", **changes})

    def lock(self, requirements, target=TARGET, **changes):
        return lock_requirements(requirements, target, self.options(**changes), self.progress)


@pytest.fixture
def tools(monkeypatch, tmp_path):
    return Tools(monkeypatch, tmp_path)


def test_a_resolution_to_a_wheel_that_was_pruned_is_not_remembered(tools, tmp_path):
    """Nothing could install it, and the wheel of a project can be built again."""
    options, requirements, wheel = tools.options(), Requirements(pip=("a",)), tmp_path / "own-1-py3-none-any.whl"
    lock = options.resolve_once(requirements, TARGET, tools.progress)
    own = dataclasses.replace(lock, pip=(PipPackage("own", "1", wheel.as_uri(), "d" * 64),))
    remember(lock_memory(requirements, TARGET, options), {"lock": own.text})
    assert options.remembered(requirements, TARGET) is None
    wheel.touch()
    assert options.remembered(requirements, TARGET) == own
    wheel.unlink()
    assert options.resolve_once(requirements, TARGET, tools.progress) == lock
    assert options.remembered(requirements, TARGET) == lock


def test_a_python_that_could_not_be_fetched_is_not_tried_twice(tools, monkeypatch):
    """Each attempt takes half a minute without a network."""
    monkeypatch.setattr("envpack.lock.resolve.reason_to_fetch", lambda *_: "there is none")
    monkeypatch.setattr("envpack.lock.resolve.interpreter_here", lambda *_, **__: None)
    monkeypatch.setattr("envpack.lock.resolve.fingerprint", lambda _: "its files")
    options = tools.options(channels=("local",), python_preference="managed")
    for tools.has_managed, second in ((True, "managed"), (False, "only-system")):
        tools.asked["preferences"] = []
        options.resolve_once(Requirements(pip=(f"for-{second}",)), TARGET, tools.progress)
        assert tools.asked["preferences"] == ["managed", second]


def test_the_first_resolution_is_remembered(tools):
    options, requirements = tools.options(), Requirements(pip=("a",))
    assert options.remembered(requirements, TARGET) is None
    lock = options.resolve_once(requirements, TARGET, tools.progress)
    assert options.remembered(requirements, TARGET) == lock
    tools.asked.clear()
    assert options.resolve_once(requirements, TARGET, tools.progress) == lock
    assert tools.asked == {}
    assert options.remembered(Requirements(pip=("b",)), TARGET) is None
    assert tools.options(channels=("other",)).remembered(requirements, TARGET) is None


def test_a_resolution_is_not_remembered_for_other_indexes(tools, monkeypatch):
    options, requirements = tools.options(), Requirements(pip=("a",))
    monkeypatch.setenv("UV_INDEX", "https://me:secret@own.example/simple")
    lock = options.resolve_once(requirements, TARGET, tools.progress)
    monkeypatch.setenv("UV_INDEX", "https://own.example/simple")
    assert options.remembered(requirements, TARGET) == lock
    monkeypatch.setenv("UV_INDEX", "https://another.example/simple")
    assert options.remembered(requirements, TARGET) is None


def test_a_lock_has_every_package_by_name(tools):
    requirements = Requirements(conda=("zlib >1",), pip=("b", "a"))
    assert tools.lock(requirements, channels=("forge", "https://me:secret@c.example/x")) == Lock(
        TARGET,
        ("https://channels.example/forge", "https://c.example/x"),
        (conda("python"), conda("zlib")),
        (wheel("a"), wheel("b")),
        digest_requirements(requirements, ("forge", "https://c.example/x")),
    )
    assert tools.asked["conda"]["specs"] == ["python 3.10.*", "zlib >1"]
    assert tools.asked["conda"]["target"] == tools.asked["pip"]["target"] == TARGET
    assert tools.asked["conda"]["cache"] == tools.folder / "cache"
    assert tools.asked["conda"]["settings"] is SETTINGS
    assert tools.asked["pip"]["requirements"] is requirements


def test_a_locked_package_without_a_hash_is_refused_before_anything_is_resolved(tools):
    requirements = Requirements(locked_conda=(conda("python", sha256=""),), pip=("a",), source=Path("/list.txt"))
    with pytest.raises(InputError, match="python 1 has no hash") as caught:
        tools.lock(requirements)
    assert (caught.value.kind, caught.value.where, tools.asked) == ("bad-requirements", "/list.txt", {})


def test_pip_resolves_nothing_without_requirements(tools):
    assert tools.lock(Requirements()).pip == ()
    assert "pip" not in tools.asked


def test_locked_packages_are_not_resolved_again(tools):
    requirements = Requirements(locked_conda=(conda("x"), conda("python")), locked_pip=(wheel("z"), wheel("c")))
    lock = tools.lock(requirements)
    assert [package.name for package in lock.conda] == ["python", "x"]
    assert [package.name for package in lock.pip] == ["c", "z"]
    assert tools.asked == {}
    assert [package.name for package in tools.lock(dataclasses.replace(requirements, pip=("a",))).pip] == [
        "a", "b", "c", "z",
    ]  # fmt: skip


@pytest.mark.parametrize(("allowed", "refused"), [((), "other"), (("Other",), "source"), (("source", "other"), "")])
def test_sources_in_a_lock_are_built_only_if_they_may_be(tools, allowed, refused):
    sources = [PipPackage(name, "1", f"https://x/{name}-1.tar.gz", "a" * 64) for name in ("other", "source")]
    requirements = Requirements(
        locked_pip=(wheel("z"), *sources), places={"other": "/m/pylock.toml:4", "source": "/m/pylock.toml:9"}
    )
    assert tools.lock(requirements, sources=(":all:",)).pip == (*sources, wheel("z"))
    if not refused:
        assert tools.lock(requirements, sources=allowed).pip == (*sources, wheel("z"))
        return
    with pytest.raises(EnvironmentBuildError, match=f"no wheel of {refused} 1 for Python 3.10 on linux-64") as error:
        tools.lock(requirements, sources=allowed)
    assert (error.value.kind, error.value.where) == ("wheel-missing", requirements.places[refused])
    assert f"--allow-source {refused}" in error.value.hint


def test_a_projects_wheel_is_built_for_the_target_and_required(tools):
    assert tools.lock(Requirements(projects=(Path("/src/tool"),))).pip
    assert tools.asked["build"] == ((Path("/src/tool"),), TARGET, Path("/pythons/3.10"), tools.folder / "cache")
    assert tools.asked["pip"]["wheels"] == (Path("/cache/tool.whl"),)
    tools.lock(Requirements(pip=("a",)))
    assert tools.asked["pip"]["wheels"] == ()


@pytest.mark.parametrize("when", ["build_wheels", "resolve_pip"])
def test_a_lock_fits_the_sources_that_its_wheel_was_built_from_and_no_others(tools, tmp_path, monkeypatch, when):
    project, built, requirements = tmp_path / "tool", [], Requirements(projects=(tmp_path / "tool",))
    (project / "data").mkdir(parents=True)
    source, build, options = project / "data/tool.py", tools.build_wheels, tools.options()
    source.write_text("before")

    def edited(*arguments, **options):
        source.write_text("after")
        return getattr(tools, when)(*arguments, **options)

    def built_wheels(*arguments):
        built.append(source.read_text())
        return (edited if when == "build_wheels" else build)(*arguments)

    monkeypatch.setattr("envpack.lock.resolve.resolve_pip", edited if when == "resolve_pip" else tools.resolve_pip)
    monkeypatch.setattr("envpack.lock.resolve.build_wheels", built_wheels)
    lock = options.resolve_once(requirements, TARGET, tools.progress)
    for text in ("before", "after"):
        source.write_text(text)
        fits = lock.requirements_digest == digest_requirements(requirements, options.channels)
        assert fits == (text == built[-1])
        assert options.remembered(requirements, TARGET) in ((lock, None) if fits else (None,))


def test_a_project_that_changes_with_each_build_of_its_wheel_is_built_twice_and_locked(tools, tmp_path, monkeypatch):
    (tmp_path / "tool").mkdir()
    log = tmp_path / "tool/log.txt"

    def build_wheels(*_):
        log.write_text(f"{log.read_text() if log.exists() else ''}built\n")
        return ()

    monkeypatch.setattr("envpack.lock.resolve.build_wheels", build_wheels)
    requirements, options = Requirements(projects=(tmp_path / "tool",)), tools.options()
    lock = options.resolve_once(requirements, TARGET, tools.progress)
    assert log.read_text() == "built\nbuilt\n"
    assert lock.requirements_digest == digest_requirements(requirements, options.channels)


def test_required_hashes_are_checked_before_anything_is_resolved_or_built(tools):
    with pytest.raises(EnvironmentBuildError, match="'a' has no hash") as caught:
        tools.lock(Requirements(pip=("a",), pip_options=("--require-hashes",), projects=(Path("/src/tool"),)))
    assert (caught.value.kind, tools.asked) == ("hash-missing", {})


def test_a_lock_without_python_is_refused(tools):
    with pytest.raises(InputError, match="no package python") as caught:
        tools.lock(Requirements(locked_conda=(conda("numpy"),), source=Path("/m/pixi.lock")))
    assert caught.value.where == "/m/pixi.lock"


def test_python_packages_of_conda_are_not_resolved_again_unless_pip_requires_them(tools):
    tools.provides = ("NumPy-1.dist-info", "z_z-1.dist-info", "scipy-1.dist-info")
    (tools.folder / "cache/.envpack.abcdefg8.partial/lib").mkdir(parents=True)  # of a process that was killed
    tools.lock(Requirements(pip=("scipy>1 --hash=x", "a")))
    assert tools.asked["pip"]["provided"] == ("numpy", "z-z")
    assert tools.asked["install"]["packages"] == tools.conda
    assert tools.asked["install"]["settings"] is SETTINGS
    assert not tools.asked["install"]["prefix"].exists()
    assert list((tools.folder / "cache").iterdir()) == []


def test_python_packages_of_conda_with_records_of_setup_py_are_not_resolved_again(tools):
    tools.provides = ("PyYAML-5.4.1-py3.10.egg-info", "torch-1.13.1-py3.10.egg-info", "own.egg-info", "a.b-c-info")
    tools.lock(Requirements(pip=("pytorch-lightning",)))
    assert tools.asked["pip"]["provided"] == ("own", "pyyaml", "torch")


def test_a_pip_requirement_for_another_target_replaces_no_package_of_conda(tools):
    tools.provides = ("numpy-1.dist-info", "scipy-1.dist-info")
    tools.lock(Requirements(pip=("a", 'numpy; sys_platform == "win32"', 'scipy; python_version >= "3.10"')))
    assert tools.asked["pip"]["provided"] == ("numpy",)


def test_a_project_beside_a_lock_brings_no_second_version_of_its_packages(tools):
    tools.conda = (conda("python"),)
    locked = PipPackage("six", "1.16.0", "https://x/six-1.16.0-py3-none-any.whl", "a" * 64)
    lock = tools.lock(Requirements(projects=(Path("/src/tool"),), locked_pip=(locked,)))
    assert tools.asked["pip"]["provided"] == ("six",)
    assert locked in lock.pip


def test_python_alone_is_not_installed_to_see_what_it_provides(tools):
    tools.conda = (conda("python"),)
    tools.lock(Requirements(pip=("a",)))
    assert tools.asked["pip"]["provided"] == ()
    assert "install" not in tools.asked


def test_channels_credentials_are_used_to_install(tools):
    tools.lock(Requirements(pip=("a",)), channels=("https://c:d@channel.example/y",))
    installed = tools.asked["install"]
    assert installed["credentials"] == {"channel.example": {"BasicHTTP": {"username": "c", "password": "d"}}}
    assert installed["cache"] == installed["prefix"].parent == tools.folder / "cache"
    assert installed["prefix"].name.endswith(".partial")


def test_every_step_is_reported(tools):
    tools.lock(Requirements(conda=("x",), pip=("a", "b"), projects=(Path("/src/tool"),)))
    assert tools.progress.seen == [
        "resolve Python 3.10 and 1 conda requirement: 2 packages",
        "build 1 local project: 1 wheel",
        "resolve 2 pip requirements: 2 packages",
    ]
    tools.progress.seen, tools.conda = [], (conda("python"),)
    tools.lock(Requirements())
    assert tools.progress.seen == [
        "resolve Python 3.10 and 0 conda requirements: 1 package",
    ]


def test_a_failed_installation_leaves_nothing(tools, monkeypatch):
    def fails(*_, **__):
        raise OSError("failed")

    monkeypatch.setattr("envpack.conda.engine.install_conda", fails)
    with pytest.raises(OSError, match="failed"):
        tools.lock(Requirements(pip=("a",)))
    assert list((tools.folder / "cache").iterdir()) == []


def of_forge(name):
    return conda(name, url=f"{SETTINGS.alias}/forge/linux-64/{name}.conda")


def test_packages_of_a_channel_that_is_not_named_any_more_are_not_kept(tools):
    others = (conda("zlib", url=f"{SETTINGS.alias}/forge-2/linux-64/zlib.conda"), conda("local"))
    tools.lock(Requirements(), previous=Lock(TARGET, (), (*others, of_forge("python")), ()))
    assert tools.asked["conda"]["prefer"] == [of_forge("python")]


def test_packages_of_the_previous_lock_are_kept_but_for_those_to_update(tools):
    previous = Lock(TARGET, (), (of_forge("python"), of_forge("zlib")), (wheel("a"), wheel("b-b")))
    tools.lock(Requirements(pip=("a",)), previous=previous)
    assert tools.asked["conda"]["prefer"] == list(previous.conda)
    assert tools.asked["pip"]["prefer"] == list(previous.pip)
    tools.lock(Requirements(pip=("a",)), previous=previous, update=("ZLIB", "B_b"))
    assert tools.asked["conda"]["prefer"] == [of_forge("python")]
    assert tools.asked["pip"]["prefer"] == [wheel("a")]
    tools.lock(Requirements(pip=("a",)))
    assert tools.asked["conda"]["prefer"] == tools.asked["pip"]["prefer"] == []


@pytest.mark.parametrize("previous", [None, Lock(TARGET, (), (conda("zlib"),), (wheel("a"),))])
def test_only_a_locked_package_can_be_updated(tools, previous):
    with pytest.raises(UsageError, match="'Other' is not in the lock") as caught:
        tools.lock(Requirements(), previous=previous, update=("a", "Other") if previous else ("Other",))
    assert caught.value.kind == "not-locked"
    assert caught.value.hint.startswith("name a package" if previous else "leave out --update")


def test_sources_are_passed_to_pip(tools):
    tools.lock(Requirements(pip=("a",)), sources=("a",))
    assert tools.asked["pip"]["sources"] == ("a",)


def test_the_local_channel_has_the_interpreter_of_this_machine(tools):
    lock = tools.lock(Requirements(), channels=("local", "forge"))
    assert lock.channels == ("file:///cache/channel", "https://channels.example/forge")
    assert tools.asked["channel"] == (Path("/pythons/3.10"), tools.folder / "cache")
    assert tools.asked["glibc"] == "2.35"


def test_the_local_channel_is_for_this_machine_only(tools):
    with pytest.raises(UsageError, match="none for linux-aarch64") as caught:
        tools.lock(Requirements(), Target("linux-aarch64", "3.10"), channels=("local",))
    assert caught.value.kind == "no-channel"
    assert caught.value.hint
    assert "channel" not in tools.asked


@pytest.mark.parametrize(
    ("requirements", "kind"),
    [
        (Requirements(platform="linux-aarch64", source=Path("/r.txt")), "other-platform"),
        (Requirements(locked_conda=(conda("python"),), python="3.9", source=Path("/r.txt")), "other-python"),
        (Requirements(locked_conda=(conda("x", sha256=""),), source=Path("/r.txt")), "bad-requirements"),
    ],
)
def test_requirements_that_do_not_fit_the_target_are_rejected(tools, requirements, kind):
    with pytest.raises(InputError) as caught:
        tools.lock(requirements)
    assert (caught.value.kind, caught.value.where) == (kind, "/r.txt")
    assert caught.value.hint
    with pytest.raises(InputError) as caught:
        tools.lock(dataclasses.replace(requirements, source=None))
    assert caught.value.where == ""


@pytest.mark.parametrize(
    "requirements",
    [
        Requirements(platform="linux-64"),
        Requirements(locked_conda=(conda("python"),), python="3.10"),
        Requirements(locked_conda=(conda("python"),)),
        Requirements(python="3.9"),
        Requirements(locked_conda=(conda("python", sha256="", md5="c" * 32),)),
    ],
)
def test_requirements_that_fit_the_target_are_locked(tools, requirements):
    assert tools.lock(requirements).conda


def test_credentials_come_from_the_settings_and_the_channels(tools):
    settings = CondaSettings(channels=("https://a:b@settings.example/x", "local"))
    options = tools.options(settings=settings, channels=("local", "https://c:d@channel.example/y"))
    assert options.credentials == {
        "settings.example": {"BasicHTTP": {"username": "a", "password": "b"}},
        "channel.example": {"BasicHTTP": {"username": "c", "password": "d"}},
    }
