"""Which files the facts come from, in folders and archives; the ELF parser is replaced by one for marked texts."""

import gzip
import io
import json
import os
import tarfile

import pytest

from envpack.archive import reading
from envpack.environment.inventory import INVENTORY, Entry
from envpack.environment.store import MANIFEST, SCHEMA
from envpack.inspection import facts
from envpack.inspection.facts import (
    StubRequirements,
    image_host,
    read_environment_facts,
    read_stub_requirements,
    this_host,
)
from envpack.inspection.files import find_missing_environment
from envpack.inspection.preflight import find_unsafe_archive
from envpack.repository.model import Model
from envpack.settings.releases import find_release
from envpack.support.errors import InputError, StubError
from envpack.support.platforms import this_machine
from tests.unit.inspection.test_preflight import model_in


class Parser:
    """Stands for elftools: the content of a library is the JSON of its facts."""

    def __init__(self, file):
        self.facts = json.load(file)

    def __getitem__(self, name):
        return self.facts[name]


@pytest.fixture(autouse=True)
def parser(monkeypatch):
    monkeypatch.setattr("elftools.elf.elffile.ELFFile", Parser)
    for name in ("needed_glibc", "needed_glibcxx", "provided_glibcxx", "needed_libraries"):
        monkeypatch.setattr(facts, name, lambda elf, key=name: elf.facts[key])
    monkeypatch.setattr(facts, "machine_named", lambda machine: f"machine {machine}")


def libpython(glibc="2.17"):
    return json.dumps({"e_machine": "EM", "needed_glibc": glibc}).encode()


def libstdcxx(version="3.4.30"):
    return json.dumps({"provided_glibcxx": version}).encode()


FILES = {"lib/libpython3.9.so.1.0": libpython(), "lib/libstdc++.so.6.0.30": libstdcxx()}
FACTS = ("3.9", "machine EM", "2.17", "3.4.30", "")


def folder(root, files):
    for name, content in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(content)
    return root


def archive(file, members):
    """An archive of these members, in order."""
    with tarfile.open(file, "w") as packed:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            packed.addfile(info, io.BytesIO(content))
    return file


def read(path):
    found = read_environment_facts(path)
    assert found.path == path
    return found.python, found.machine, found.glibc, found.glibcxx, found.needed_glibcxx


@pytest.mark.parametrize("prefix", ["", "./"])
def test_facts_of_a_folder_and_an_archive(tmp_path, prefix):
    assert read(folder(tmp_path / "env", FILES)) == FACTS
    assert read(archive(tmp_path / "env.tar", {prefix + name: FILES[name] for name in FILES})) == FACTS


@pytest.mark.parametrize(
    "name",
    [
        "libpython3.9.so.1.0", "lib/x/libpython3.9.so.1.0", "lib/libpython3.9.so", "lib/libpython3.9d.so.1.0",
        "lib/libpython3.so.1.0", "x/lib/libpython3.9.so.1.0",
    ],
)  # fmt: skip
def test_other_names_are_not_the_environments_libpython(tmp_path, name):
    assert read(archive(tmp_path / "env.tar", {name: libpython()})) == ("", "", "", "", "")


@pytest.mark.parametrize("name", ["libstdc++.so.6", "libstdc++.so.6.0.30"])
def test_libstdcxx_has_a_version_or_none(tmp_path, name):
    assert read(folder(tmp_path / "env", {f"lib/{name}": libstdcxx()})) == ("", "", "", "3.4.30", "")
    assert read(folder(tmp_path / "other", {"lib/libstdc++.so.5": libstdcxx()}))[3] == ""


def test_a_library_without_versions_does_not_hide_another(tmp_path):
    files = {"lib/libstdc++.so.6.0.30": libstdcxx(), "lib/libstdc++.so.6.0.31": libstdcxx("")}
    assert read(folder(tmp_path / "env", files))[3] == "3.4.30"


def test_damaged_libraries_and_folders_are_ignored(tmp_path):
    env = folder(tmp_path / "env", {**FILES, "lib/libpython3.9.so.1.0": b"damaged"})
    (env / "lib/libpython3.10.so.1.0").mkdir()
    assert read(env) == ("", "", "", "3.4.30", "")


def inventory(*entries):
    return json.dumps({"schema": 1, "files": entries}).encode()


def listed(name, kind="file"):
    return Entry(name, kind, "x")


def truncated(file):
    """The archive without its end: reading that far is an error."""
    file.write_bytes(file.read_bytes()[: -20 * 512 - 100])
    return file


def test_an_archive_is_read_until_its_libraries_were_found(tmp_path):
    members = {**FILES, "lib/large": bytes(1 << 16)}
    assert read(truncated(archive(tmp_path / "env.tar", members))) == FACTS


@pytest.mark.parametrize("kind", ["file", "program"])
def test_an_inventory_shows_that_no_more_libraries_follow(tmp_path, kind):
    names = inventory(
        listed("lib/libpython3.9.so.1.0", kind), listed("lib/large"), listed("lib/libstdc++.so.6", "link")
    )
    members = {INVENTORY: names, "lib/libpython3.9.so.1.0": libpython(), "lib/large": bytes(1 << 16)}
    assert read(truncated(archive(tmp_path / "env.tar", members)))[:2] == ("3.9", "machine EM")


def test_an_environment_whose_inventory_has_no_libraries_is_not_read_further(tmp_path):
    members = {INVENTORY: inventory(listed("lib/large")), "lib/large": bytes(1 << 16)}
    assert read(truncated(archive(tmp_path / "env.tar", members))) == ("", "", "", "", "")


def test_libraries_that_the_inventory_lists_are_all_read(tmp_path):
    members = {INVENTORY: inventory(*map(listed, FILES)), "lib/other": b"x", **FILES}
    assert read(archive(tmp_path / "env.tar", members)) == FACTS


@pytest.mark.parametrize("content", [b"damaged", b"{}"])
def test_a_damaged_inventory_is_ignored(tmp_path, content):
    assert read(archive(tmp_path / "env.tar", {INVENTORY: content, **FILES})) == FACTS


def test_a_library_larger_than_any_real_one_is_not_read(tmp_path, monkeypatch):
    monkeypatch.setattr(facts, "_LARGEST_LIBRARY", len(libpython()))
    assert read(archive(tmp_path / "a.tar", FILES))[0] == "3.9"
    monkeypatch.setattr(facts, "_LARGEST_LIBRARY", len(libpython()) - 1)
    assert read(archive(tmp_path / "b.tar", FILES))[0] == ""


def test_an_archive_that_would_fill_a_disk_is_found_wherever_that_begins(tmp_path, monkeypatch):
    monkeypatch.setattr(reading, "_FREE", 1 << 20)
    model = model_in(tmp_path, environment="bomb.tar.gz")
    path = tmp_path / "bomb.tar.gz"
    monkeypatch.setattr(Model, "environment", path)
    with tarfile.open(archive(tmp_path / "bomb.tar", {**FILES, "lib/large": bytes(2 << 20)})) as packed:
        assert packed.getnames()[-1] == "lib/large"
    path.write_bytes(gzip.compress((tmp_path / "bomb.tar").read_bytes()))
    assert read(path) == FACTS  # the bomb is behind what the facts need
    bomb = find_unsafe_archive(model, None)
    assert (bomb.kind, str(path) in bomb.what) == ("archive-bomb", True)


def unsafe(tmp_path, monkeypatch, path, release=None):
    monkeypatch.setattr(Model, "environment", path)
    return find_unsafe_archive(model_in(tmp_path), release)


def test_a_truncated_archive_is_not_given_to_the_server(tmp_path, monkeypatch):
    path = truncated(archive(tmp_path / "env.tar", {**FILES, "lib/large": bytes(1 << 16)}))
    assert unsafe(tmp_path, monkeypatch, path).kind == "environment-unreadable"


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        (b"damaged", "archive-unsupported"),
        (b"", "archive-unsupported"),
        (b"PK\x03\x04", "archive-unsupported"),
        (b"version https://git-lfs.github.com/spec/v1\n", "lfs-pointer"),
    ],
)
def test_what_is_no_archive_is_not_given_to_the_server_which_would_unpack_none_after_it(
    tmp_path, monkeypatch, content, kind
):
    path, model = tmp_path / "env.tar", model_in(tmp_path)
    for environment in (None, path):
        monkeypatch.setattr(Model, "environment", environment)
        assert find_unsafe_archive(model, None) is None
    path.write_bytes(content)
    found = find_unsafe_archive(model, None)
    assert (found.kind, found.what.startswith(f"{path}: it is ")) == (kind, True)


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("$$TRITON_MODEL_DIRECTORY/gone", "$$TRITON_MODEL_DIRECTORY/gone, which does not exist"),
        ("$$TRITON_MODEL_DIRECTORY/1", None),
        ("$$TRITON_MODEL_DIRECTORY/../../gone", None),  # which a container may have
        ("/gone", None),
        ("gone", None),
    ],
)
def test_an_environment_that_is_not_in_the_models_folder_is_in_no_servers(tmp_path, monkeypatch, written, expected):
    monkeypatch.setattr(Model, "written_environment", written)
    missing = find_missing_environment(model_in(tmp_path))
    assert (missing and missing.what.removeprefix("EXECUTION_ENV_PATH names ")) == expected
    assert missing is None or missing.fix == "run `envpack build m`"


def test_members_that_would_land_outside_of_the_environment_are_not_given_to_the_server(tmp_path, monkeypatch):
    model = model_in(tmp_path)
    monkeypatch.setattr(Model, "environment", tmp_path / "env.tar")

    def found(*members, release="24.10"):
        with tarfile.open(tmp_path / "env.tar", "w") as tar:
            tar.addfile(tarfile.TarInfo("bin/activate"))
            for name, target in members:
                info = tarfile.TarInfo(name)
                if target:
                    info.type, info.linkname = tarfile.SYMTYPE, target
                tar.addfile(info)
        mismatch = find_unsafe_archive(model, find_release(release))
        return mismatch and mismatch.what.removeprefix(f"{tmp_path / 'env.tar'}: ")

    assert found(("lib/a", ""), ("lib/link", "a")) is None
    assert found(("../a", "")) == "../a: its name contains .."
    assert found(("lib", "/etc")) == "lib: the link leaves the environment: /etc"
    assert found(("a", "."), ("b", "a/..")) == "b: the link leaves the environment: a/.., through another link"
    assert found(("lib", ""), ("lib/a", "")) == "lib/a: it is below a file"
    assert found(("lib64", "lib"), ("lib64/a", "")) is None
    assert found(("lib64", "lib"), ("lib64/a", ""), release="26.06") == "lib64/a: it is below a link"


def test_a_negative_size_is_not_given_to_the_server(tmp_path, monkeypatch):
    path = archive(tmp_path / "env.tar", FILES)
    content = bytearray(path.read_bytes())
    content[124:136] = (-512 & (1 << 96) - 1).to_bytes(12, "big")  # in base 256
    content[148:156] = b" " * 8
    content[148:156] = b"%06o\0 " % sum(content[:512])
    path.write_bytes(content)
    assert unsafe(tmp_path, monkeypatch, path).kind == "environment-unreadable"


def test_files_beside_and_instead_of_a_stub_that_are_pipes_are_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "triton_python_backend_stub")
    os.mkfifo(tmp_path / "triton_python_backend_stub.release")
    with pytest.raises(StubError, match="it is not a file"):
        read_stub_requirements(tmp_path / "triton_python_backend_stub")


def test_links_in_archives_are_not_read(tmp_path):
    with tarfile.open(tmp_path / "env.tar", "w") as packed:
        info = tarfile.TarInfo("lib/libpython3.9.so.1.0")
        info.type, info.linkname = tarfile.SYMTYPE, "x"
        packed.addfile(info)
    assert read(tmp_path / "env.tar")[0] == ""


MANIFEST_OF = {
    "schema": SCHEMA, "key": "k", "python": "3.9.1", "minor": "3.9", "packages": [], "glibc": "2.28",
    "glibcxx": "3.4.21", "platform": "linux-64", "size": 1, "content": "x", "stand_ins": 0,
}  # fmt: skip


def test_what_envpack_recorded_precedes_what_libpython_needs(tmp_path):
    env = folder(tmp_path / "env", {**FILES, MANIFEST: json.dumps(MANIFEST_OF).encode()})
    assert read(env) == ("3.9", "machine EM", "2.28", "3.4.30", "3.4.21")
    packed = archive(tmp_path / "env.tar", FILES)
    (tmp_path / "env.tar.json").write_text('{"glibc": "2.29", "glibcxx": "3.4.22"}')
    assert read(packed) == ("3.9", "machine EM", "2.29", "3.4.30", "3.4.22")


@pytest.mark.parametrize("content", ["{", "[]", "{}"])
def test_metadata_that_makes_no_sense_are_ignored(tmp_path, content):
    (tmp_path / "env.tar.json").write_text(content)
    assert read(archive(tmp_path / "env.tar", FILES)) == FACTS


def test_a_path_that_does_not_exist_is_an_error(tmp_path):
    with pytest.raises(InputError, match="cannot be read: No such file") as caught:
        read_environment_facts(tmp_path / "nothing")
    assert (caught.value.kind, caught.value.where) == ("environment-unreadable", str(tmp_path / "nothing"))


def test_a_folder_that_cannot_be_read_is_an_error(tmp_path, monkeypatch):
    def glob(*_):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("pathlib.Path.glob", glob)
    with pytest.raises(InputError, match="cannot be read: Permission denied") as caught:
        read_environment_facts(tmp_path)
    assert (caught.value.kind, caught.value.where) == ("environment-unreadable", str(tmp_path))


class Inspected:
    machine, python, glibc, epochs = "x86_64", "3.9", "2.17", ("24.10", "23.04")


def stub_in(tmp_path, content=b"", release=None):
    (tmp_path / "triton_python_backend_stub").write_bytes(content)
    if release is not None:
        (tmp_path / "triton_python_backend_stub.release").write_text(release)
    return tmp_path / "triton_python_backend_stub"


@pytest.mark.parametrize(("release", "read_as"), [(None, ""), ("", ""), ("24.10 \nmore\n", "24.10")])
def test_our_own_stub_describes_itself(tmp_path, monkeypatch, release, read_as):
    monkeypatch.setattr(facts, "inspect_stub", lambda path: Inspected)
    path = stub_in(tmp_path, release=release)
    assert read_stub_requirements(path) == StubRequirements(
        path=path, machine="x86_64", python="3.9", glibc="2.17", glibcxx="", epochs=("24.10", "23.04"),
        release_file=read_as,
    )  # fmt: skip


def test_a_release_file_that_is_no_text_names_no_release(tmp_path, monkeypatch):
    monkeypatch.setattr(facts, "inspect_stub", lambda path: Inspected)
    path = stub_in(tmp_path)
    path.with_name("triton_python_backend_stub.release").write_bytes(b"24\xff10\n")
    assert read_stub_requirements(path).release_file == "24\ufffd10"


OTHER = {"e_machine": "EM", "needed_glibc": "2.34", "needed_glibcxx": "3.4.29"}


def test_another_stub_is_described_by_its_libraries(tmp_path):
    libraries = ["libc.so.6", "libpython3.10.so.1.0", "libpython3.11.so.1.0"]
    path = stub_in(tmp_path, json.dumps({**OTHER, "needed_libraries": libraries}).encode(), "24.10")
    assert read_stub_requirements(path) == StubRequirements(
        path=path, machine="machine EM", python="3.10", glibc="2.34", glibcxx="3.4.29", epochs=(), release_file="24.10"
    )


@pytest.mark.parametrize("content", [b"", json.dumps({**OTHER, "needed_libraries": ["libpython3.so"]}).encode()])
def test_a_program_without_python_is_no_stub(tmp_path, content):
    with pytest.raises(StubError) as caught:
        read_stub_requirements(stub_in(tmp_path, content))
    assert caught.value.kind == "not-a-stub"


def test_the_host_of_a_release_is_its_image():
    host = image_host(find_release("24.10"))
    assert (host.name, host.glibc, host.machine) == ("the image of Triton 24.10", "2.35", "")
    assert host.glibcxx == find_release("24.10").glibcxx


def test_this_machine_is_a_host(monkeypatch):
    monkeypatch.setattr("os.confstr", lambda name: "glibc 2.99" if name == "CS_GNU_LIBC_VERSION" else None)
    host = this_host()
    assert (host.name, host.glibc, host.glibcxx, host.machine) == ("this machine", "2.99", "", this_machine())
    monkeypatch.setattr("os.confstr", lambda name: None)
    assert this_host().glibc == ""
