"""Facts are read from real libraries, in folders and archives, and from stubs that envpack did not compile."""

import re
import shutil
import tarfile
from pathlib import Path

import pytest

from envpack.conda.choice import interpreter_for
from envpack.inspection.facts import read_environment_facts, read_stub_requirements, this_host
from envpack.settings.pythons import SUPPORTED
from envpack.support.errors import EnvpackError, InputError, StubError
from envpack.support.platforms import this_machine


@pytest.fixture(scope="module")
def interpreter():
    for minor in SUPPORTED:
        try:
            return interpreter_for(minor)
        except EnvpackError:
            continue
    pytest.skip("no interpreter with a shared libpython")


@pytest.fixture(scope="module")
def libstdcxx():
    found = [*Path("/usr/lib").glob("*-linux-gnu/libstdc++.so.6"), *Path("/usr/lib64").glob("libstdc++.so.6")]
    if not found:
        pytest.skip("no libstdc++.so.6 on this machine")
    return found[0]


@pytest.fixture
def environment(tmp_path, interpreter, libstdcxx):
    """The relevant part of an execution environment, with conda's layout."""
    library = tmp_path / "environment/lib"
    library.mkdir(parents=True)
    shutil.copy(interpreter.library, library)
    shutil.copy(libstdcxx, library / "libstdc++.so.6.0.99")
    (library / "libstdc++.so.6").symlink_to("libstdc++.so.6.0.99")
    return library.parent


def newest(library):
    versions = re.findall(rb"GLIBCXX_(\d+\.\d+\.\d+)\0", library.read_bytes())
    return max((v.decode() for v in versions), key=lambda version: [int(part) for part in version.split(".")])


@pytest.mark.parametrize("suffix", ["", ".tar", ".tar.gz"])
def test_a_folder_and_an_archive_have_the_same_facts(environment, interpreter, libstdcxx, suffix):
    path = environment
    if suffix:
        path = environment.with_name(f"environment{suffix}")
        how = {"mode": "w:gz", "compresslevel": 1} if suffix.endswith("gz") else {"mode": "w"}
        with tarfile.open(path, **how) as archive:
            archive.add(environment, ".")
    facts = read_environment_facts(path)
    assert facts.path == path
    assert facts.python == interpreter.minor
    assert facts.machine == this_machine()
    assert facts.glibcxx == newest(libstdcxx)
    assert re.fullmatch(r"2\.\d+", facts.glibc)


def test_an_environment_without_libraries_has_no_versions(tmp_path):
    facts = read_environment_facts(tmp_path)
    assert (facts.python, facts.machine, facts.glibcxx) == ("", "", "")


@pytest.mark.parametrize("content", [b"", b"no archive", b"\x1f\x8b\x08\x00\x00\x00\x00\x00damaged"])
def test_a_file_that_is_not_an_archive_is_an_error(tmp_path, content):
    file = tmp_path / "environment.tar.gz"
    file.write_bytes(content)
    with pytest.raises(InputError) as caught:
        read_environment_facts(file)
    assert caught.value.kind == "environment-unreadable"


def test_a_truncated_archive_is_an_error(environment):
    file = environment.with_name("environment.tar.gz")
    with tarfile.open(file, "w:gz", compresslevel=1) as archive:
        archive.add(environment / "lib", "lib/other")
    file.write_bytes(file.read_bytes()[:-1000])
    with pytest.raises(InputError) as caught:
        read_environment_facts(file)
    assert caught.value.kind == "environment-unreadable"


def test_another_stub_is_recognized_by_its_libpython(interpreter, tmp_path):
    """Any program that embeds Python counts, such as an interpreter with a shared libpython."""
    if interpreter.distribution:
        pytest.skip("Debian's interpreter has its library built in, and no other one is here")
    program = tmp_path / "triton_python_backend_stub"
    shutil.copy(interpreter.executable.resolve(), program)
    program.with_name("triton_python_backend_stub.release").write_text("24.04  \nmore\n")
    needs = read_stub_requirements(program)
    assert (needs.python, needs.machine, needs.epochs) == (interpreter.minor, this_machine(), ())
    assert needs.release_file == "24.04"


def test_a_program_without_python_is_not_a_stub():
    with pytest.raises(StubError) as caught:
        read_stub_requirements(Path("/bin/sh"))
    assert caught.value.kind == "not-a-stub"


def test_this_machine_has_a_glibc_version():
    assert re.fullmatch(r"2\.\d+", this_host().glibc)
