"""The environment's own Python is started only for a limited time: a .pth file can wait for ever."""

import re
import shutil
import sys
import sysconfig
import tempfile
import venv
from pathlib import Path

import pytest

from envpack.conda.engine import PREFIX_PLACEHOLDER
from envpack.environment import checks
from envpack.environment.checks import (
    cuda_libraries,
    environment_needs,
    hidden_libraries,
    numpy_abi,
    started_version,
)
from envpack.environment.inventory import Entry, Owners, Package, take_inventory
from envpack.requirements.target import Target
from envpack.support.elf import required_abi
from envpack.support.errors import EnvironmentBuildError
from tests.tables import every_row
from tests.waiting import soon

MINOR = f"{sys.version_info.major}.{sys.version_info.minor}"
ENDS = "it ended with status 0 before it ran a program"


@pytest.fixture
def virtual(tmp_path):
    """A virtual environment with the Python of the tests."""
    venv.create(tmp_path / "env", symlinks=True)
    return tmp_path / "env"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("noisy.pth", "import sys; print('hello')\n"),
        ("noisy.pth", "import sys; sys.stdout.write('hello')\n"),
        ("list.pth", "import sys; print('[1, 2, 3]')\n"),
        ("late.pth", "import atexit; atexit.register(print, 'bye')\n"),
    ],
)
def test_a_python_whose_packages_print_starts(virtual, name, text):
    (virtual / f"lib/python{MINOR}/site-packages" / name).write_text(text)
    assert started_version(virtual, MINOR) == sys.version.split()[0].rstrip("+")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("import os; os._exit(0)\n", ENDS),
        (f"import os; print({checks._MARK + '[['!r}, flush=True); os._exit(0)\n", "envpack-started: [["),
        ("import sys; sys.prefix = '/elsewhere'\n", "its prefix is /elsewhere, and its path /"),
    ],
)
def test_a_python_that_does_not_come_to_its_program_is_named(virtual, text, reason):
    (virtual / f"lib/python{MINOR}/site-packages/start.pth").write_text(text)
    with pytest.raises(EnvironmentBuildError) as caught:
        started_version(virtual, MINOR)
    assert caught.value.kind == "environment-broken"
    assert caught.value.message.startswith("the environment's Python does not start by itself: ")
    assert reason in caught.value.message
    assert "ends it in a .pth file" in caught.value.hint


@pytest.mark.parametrize("name", ["far.pth", "sitecustomize.py"])
def test_a_python_that_imports_from_elsewhere_is_refused(virtual, name):
    if Path(sysconfig.get_path("stdlib"), name).exists():
        pytest.skip("this Python has a sitecustomize of its own, as Debian's")
    line = "import sys; sys.path.append({!r})\n"
    file = virtual / f"lib/python{MINOR}/site-packages" / name
    file.write_text(line.format(f"{PREFIX_PLACEHOLDER}/share/modules"))
    assert started_version(virtual, MINOR)
    file.write_text(line.format("/elsewhere"))
    with pytest.raises(EnvironmentBuildError, match="puts /elsewhere on sys.path") as caught:
        started_version(virtual, MINOR)
    assert caught.value.kind == "points-outside"


@pytest.mark.parametrize(
    ("prepare", "reason"),
    [
        (lambda python: python.unlink(), "No such file or directory"),
        (lambda python: python.chmod(0o644), "Permission denied"),
        (lambda python: python.write_text("hello\n"), "Exec format error"),
    ],
    ids=["missing", "not executable", "no program"],
)
def test_a_python_that_cannot_be_run_is_named(tmp_path, prepare, reason):
    python = tmp_path / "bin/python3"
    python.parent.mkdir()
    python.touch(mode=0o755)
    prepare(python)
    with pytest.raises(EnvironmentBuildError) as caught:
        started_version(tmp_path, "3.10")
    assert (caught.value.kind, caught.value.where) == ("environment-broken", "")
    assert caught.value.message.endswith(f"bin/python3 cannot be run: {reason}")


@pytest.fixture
def endless(tmp_path, monkeypatch):
    """A Python that waits, and writes who it is."""
    monkeypatch.setattr(checks, "_STARTING", 0.5)
    program = tmp_path / "bin/python3"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\necho $$ > {tmp_path}/pid\nexec sleep 600\n")
    program.chmod(0o755)
    return program


def started(python):
    return checks.python_output(python, "print(1)")


def consistent(python):
    return checks.check_consistency(python.parent.parent, python)


@pytest.mark.parametrize("use", [started, consistent])
def test_a_python_that_never_ends_is_ended_and_told(use, endless, tmp_path):
    with pytest.raises(EnvironmentBuildError, match="does not end within") as caught:
        use(endless)
    assert caught.value.kind == "environment-broken"
    assert caught.value.hint == ("look for a .pth file or a sitecustomize.py in its packages that waits for something")
    status = Path("/proc", (tmp_path / "pid").read_text().strip(), "status")
    assert soon(lambda: has_ended(status)), "its parent may have killed it only now"


def has_ended(status):
    try:
        return "State:\tZ" in status.read_text()
    except OSError:
        return True


def installed(prefix, name, installer, *requires):
    record = prefix / f"lib/python3.10/site-packages/{name}-1.0.dist-info"
    record.mkdir(parents=True)
    requirements = "".join(f"Requires-Dist: {text}\n" for text in requires)
    (record / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n{requirements}")
    (record / "INSTALLER").write_text(installer)


@every_row(
    ("wanted", "of_extra", "installer", "is_lost"),
    [
        ("base[x]", "more ; extra == 'x'", "conda", True),
        ("base[x] ; python_version >= '3.10'", "more ; extra == 'x' and sys_platform == 'linux'", "conda", True),
        ("base[x]", "more ; extra == 'x'", "uv", False),  # which resolved it
        ("base[x]", "there ; extra == 'x'", "conda", False),
        ("base[x]", "more ; extra == 'x' and sys_platform == 'win32'", "conda", False),
        ("base[x]", "more ; extra == 'y'", "conda", False),
        ("base[x]", "more", "conda", False),  # conda may have it in another form
        ("base", "more ; extra == 'x'", "conda", False),
        ("base[x] ; extra == 'z'", "more ; extra == 'x'", "conda", False),
        ("absent[x]", "more ; extra == 'x'", "conda", False),
    ],
)
def test_what_an_extra_of_a_conda_package_needs_must_be_there(tmp_path, wanted, of_extra, installer, is_lost):
    prefix = Path(tempfile.mkdtemp(dir=tmp_path))
    installed(prefix, "Own", "uv\n", wanted)
    installed(prefix, "base", installer, of_extra)
    installed(prefix, "There", "conda")
    for name, content in {"old": b"Name: \xe9\n", "none": b"Version: 1\n"}.items():
        installed(prefix, name, "conda")
        (prefix / f"lib/python3.10/site-packages/{name}-1.0.dist-info/METADATA").write_bytes(content)
    (prefix / "lib/python3.10/site-packages/empty-1.0.dist-info").mkdir()
    if not is_lost:
        checks.refuse_lost_extras(prefix, Target("linux-64", "3.10"))
        return
    with pytest.raises(EnvironmentBuildError, match=r"own requires base\[x\], and conda has it without more") as caught:
        checks.refuse_lost_extras(prefix, Target("linux-64", "3.10"))
    assert (caught.value.kind, caught.value.hint[:8]) == ("inconsistent", "add more")


LIBRARY = Path(sys.executable).resolve()  # a program; that makes no difference


@pytest.fixture
def prefix(tmp_path):
    (tmp_path / "env/lib").mkdir(parents=True)
    shutil.copy(LIBRARY, tmp_path / "env/lib/first.so")
    (tmp_path / "env/lib/link.so").symlink_to("first.so")
    (tmp_path / "env/lib/text.so").write_text("no library")
    return tmp_path / "env"


def needs_of(prefix):
    entries = take_inventory(prefix, Owners({"lib/first.so": "x"}, (), {}))
    return environment_needs(prefix, entries, prefix.parent / "needs")


def test_what_the_newest_needs_and_who_needs_it(prefix):
    needs = needs_of(prefix)
    assert needs.glibc == required_abi([LIBRARY]).glibc != ""
    assert needs.file == prefix / "lib/first.so"


def test_no_file_is_asked_again(prefix, monkeypatch):
    requirements = needs_of(prefix)
    monkeypatch.setattr("envpack.environment.checks.is_elf", lambda file: pytest.fail(f"opens {file}"))
    assert needs_of(prefix) == requirements


def test_other_content_is_asked(prefix):
    needs_of(prefix)
    (prefix / "lib/first.so").write_text("no library either")
    assert needs_of(prefix).glibc == ""


def with_an_older_glibc(text):
    return re.sub(r"2\.\d+", "2.1", text, count=1)


@pytest.mark.parametrize("damage", ["", "{", "[]", "[1, 2]", "null", '["2.x", "", ""]', with_an_older_glibc])
def test_a_damaged_answer_is_asked_for_again(prefix, damage):
    requirements = needs_of(prefix)
    for kept in (prefix.parent / "needs").glob("*.json"):
        kept.write_text(damage if isinstance(damage, str) else damage(kept.read_text()))
    assert needs_of(prefix) == requirements


def entries(*paths):
    return [Entry(path, "file", "x") for path in paths]


def test_cuda_libraries_are_found_in_wheels_and_in_conda_packages():
    found = cuda_libraries(
        entries(
            "lib/python3.10/site-packages/nvidia/cudnn/lib/libcudnn_ops_infer.so.8",
            "lib/libcudart.so.12",
            "lib/libcublasLt.so.12.6.1",
            "lib/libcudart_not.txt",
            "lib/python3.10/site-packages/cudart.py",
        )
    )
    assert found == ["libcublasLt.so.12.6.1", "libcudart.so.12", "libcudnn_ops_infer.so.8"]


def test_libraries_of_the_system_count_only_where_loaders_look_first():
    assert hidden_libraries(entries("lib/libssl.so.3", "lib/x/libssl.so.3", "lib/libsslx.so", "lib/libz.so")) == [
        "libssl.so.3",
        "libz.so",
    ]


def test_numpy_names_its_interface_by_its_major_version():
    assert (
        numpy_abi(
            [Package(name="six", version="1.0", source="pip"), Package(name="numpy", version="2.1.3", source="pip")]
        )
        == "2"
    )
    assert numpy_abi([]) == ""
