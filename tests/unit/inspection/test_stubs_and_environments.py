"""The findings in the stubs, environments and backends of a repository."""

import gzip
import io
import shutil
import tarfile

import pytest

from envpack.inspection.repository import inspect_repository
from envpack.repository.config_editor import set_backend
from envpack.repository.placement import backend_for, in_model_folder
from envpack.settings.releases import find_release
from envpack.settings.table import Settings
from tests.unit.inspection.findings import kinds, name_environment, named, pack


def program(file, mode, content="#!/bin/sh\n"):
    file.write_text(content)
    file.chmod(mode)


class TestLostModes:
    """Object storage keeps no executable bits."""

    def test_programs_that_a_model_could_start_are_named(self, project, release):
        folder = project.repository / "one/env/bin"
        program(folder / "good", 0o755)
        program(folder / "text", 0o644, "no program")
        for name in ("a", "b", "c", "d"):
            program(folder / name, 0o644)
        (finding,) = inspect_repository(project, release).findings
        assert (finding.severity, finding.kind, finding.where) == ("warning", "modes-lost", folder)
        assert "not executable: a, b, c and 1 more; a model that starts one of them fails" in finding.what

    def test_python_itself_is_needed_by_stubs_that_are_not_beside_the_model(self, project, release, foreign_stub):
        one = project.repository / "one"
        program(one / "env/bin/python3", 0o644)
        assert kinds(project, release) == [("error", "modes-lost")]
        shutil.copy(foreign_stub, one / "triton_python_backend_stub")
        assert ("warning", "modes-lost") in kinds(project, release)


class TestStubs:
    @pytest.fixture
    def stub(self, project, foreign_stub):
        placed = project.repository / "one/triton_python_backend_stub"
        shutil.copy(foreign_stub, placed)
        placed.chmod(0o755)
        return placed

    def test_a_stub_that_needs_libpython_to_start(self, project, release, stub):
        assert kinds(project, release) == [("warning", "stub-needs-libpython")]

    @pytest.mark.parametrize("mode", [0o644, 0o100, 0o744])
    def test_a_mode_that_only_the_owner_can_fix(self, project, release, stub, mode):
        stub.chmod(mode)
        assert ("error", "stub-not-executable") in kinds(project, release)

    def test_a_stub_without_environment_for_another_python_than_the_releases(self, project, release, stub):
        shutil.rmtree(project.repository / "one/env")
        config = project.repository / "one/config.pbtxt"
        config.write_text(config.read_text().partition("parameters")[0])
        assert ("warning", "libpython-missing") not in kinds(project, release)
        found = inspect_repository(project, find_release("25.01")).findings
        (lone,) = (finding for finding in found if finding.kind == "libpython-missing")
        assert (lone.severity, lone.where) == ("warning", stub)
        assert lone.what.endswith("the system of Triton 25.01 has Python 3.12")

    def test_a_stub_for_another_python_than_the_environment(self, project, release, stub):
        for library in (project.repository / "one/env/lib").iterdir():
            other = library.with_name("libpython3.9.so.1.0")
            library.rename(other)
        assert ("error", "python-mismatch") in kinds(project, release)

    def test_no_stub_if_the_releases_own_has_another_python(self, project):
        assert ("error", "python-mismatch") in kinds(project, find_release("25.01"))

    def test_numpy_2_with_the_releases_own_stub(self, project, release):
        manifest = '{"packages": [{"name": "numpy", "version": "2.2.6"}]}'
        (project.repository / "one/env/envpack-environment.json").write_text(manifest)
        assert kinds(project, release) == [("error", "numpy-unsupported")]

    def test_code_that_uses_what_the_releases_own_stub_adds_later(self, project, release):
        code = "import triton_python_backend_utils as pb_utils\ndef check(tensor: pb_utils.Tensor): ...\n"
        (project.repository / "one/1/model.py").write_text(code)
        (found,) = inspect_repository(project, release).findings
        assert (found.severity, found.kind) == ("error", "interface-broken")
        what = "its code uses pb_utils.Tensor when it is imported, and the stub of Triton 24.10 adds it later"
        assert (found.what, found.where) == (what, project.repository / "one/1/model.py:2")
        config = project.repository / "one/config.pbtxt"
        config.write_text(config.read_text().partition("parameters")[0])
        assert [found.what for found in inspect_repository(project, release).findings] == [what], "nor does it then"


def test_a_folder_of_another_system(project, release):
    library = next((project.repository / "one/env/lib").iterdir())
    library.rename(library.with_name("libpython3.10.dylib"))
    found = inspect_repository(project, release).findings
    assert ("environment-unusable", "it is of macOS, and servers run on Linux") in {(f.kind, f.what) for f in found}


class TestArchives:
    @pytest.fixture
    def packed(self, project, environment):
        """The archive path in the first model's configuration."""
        shutil.rmtree(project.repository / "one/env")
        name_environment(project.repository / "one", in_model_folder("env.tar.gz"))
        return project.repository / "one/env.tar.gz"

    def test_good_archives(self, project, release, environment, packed):
        for mode in ("w:gz", "w"):
            pack(environment, packed, mode=mode)
            assert kinds(project, release) == []

    @pytest.mark.parametrize("mode", ["w:gz", "w"])
    def test_numpy_2_in_an_archive_that_envpack_did_not_make(self, project, release, environment, packed, mode):
        numpy = f"lib/python{release.python}/site-packages/numpy-%s.dist-info/METADATA"
        pack(environment, packed, mode=mode, extra=[named(numpy % "1.26.4")])
        assert kinds(project, release) == []
        pack(environment, packed, mode=mode, extra=[named(numpy % "2.2.6")])
        assert kinds(project, release) == [("error", "numpy-unsupported")]

    @pytest.mark.parametrize(
        ("file", "system"), [("lib/libpython3.10.dylib", "macOS"), ("python.exe", "Windows")], ids=["macOS", "Windows"]
    )
    def test_an_archive_of_another_system(self, project, release, environment, packed, file, system):
        pack(environment, packed, extra=[named(file)])
        (finding,) = inspect_repository(project, release).findings
        assert (finding.kind, finding.what) == ("archive-refused", f"it is of {system}, and servers run on Linux")

    def test_a_model_needs_requirements_for_another_environment(self, project, release, packed):
        packed.write_text("hello")
        (finding,) = inspect_repository(project, release).findings
        build = "build it with `envpack build --format tar.gz one`"
        assert finding.fix == f"list the model's packages in its requirements.txt, and {build}"
        for name in ("envpack.lock", "requirements.txt"):
            (packed.parent / name).write_text("numpy\n")
            assert build in {finding.fix for finding in inspect_repository(project, release).findings}
            (packed.parent / name).unlink()
        for name in ("a_requirements.txt", "b_requirements.txt"):
            (packed.parent / name).write_text("numpy\n")
        assert build in {finding.fix for finding in inspect_repository(project, release).findings}

    def test_formats_that_servers_do_not_read(self, project, release, environment, packed):
        from envpack.support import zstd

        plain = io.BytesIO()
        with tarfile.open(fileobj=plain, mode="w") as archive:
            archive.add(environment, ".")
        packed.write_bytes(zstd.compress(plain.getvalue()))
        found = inspect_repository(project, release).findings
        assert [finding.kind for finding in found] == ["archive-unsupported"]
        assert "zstd" in found[0].what
        for mode in ("w:xz", "w:bz2"):
            pack(environment, packed, mode=mode)
            assert kinds(project, release) == [("error", "archive-unsupported")]
        packed.write_text("hello")
        assert kinds(project, release) == [("error", "archive-unsupported")]

    def test_truncated_and_damaged_archives(self, project, release, environment, packed):
        pack(environment, packed)
        whole = packed.read_bytes()
        for part in (whole[:100], whole[: len(whole) // 2], whole[:-20], whole[:1000] + b"damage" + whole[1006:]):
            packed.write_bytes(part)
            assert kinds(project, release) == [("error", "environment-unreadable")]
        packed.write_bytes(gzip.compress(b"no tar at all" * 100))
        assert kinds(project, release) == [("error", "environment-unreadable")]

    @pytest.mark.parametrize(
        "entry",
        [
            named("lib/leads-out", tarfile.SYMTYPE, "/usr/lib/python3"),
            named("lib/leads-up", tarfile.SYMTYPE, "../../secret"),
            named("../outside"),
            named("/absolute"),
        ],
        ids=lambda entry: entry.name,
    )
    def test_members_outside_and_links_to_the_outside(self, project, release, environment, packed, entry):
        pack(environment, packed, extra=[entry])
        assert kinds(project, release) == [("error", "archive-refused")]

    def test_members_below_a_link_are_refused_by_newer_releases(self, project, release, environment, packed):
        extra = [named("lib64", tarfile.SYMTYPE, "lib"), named("lib64/below")]
        pack(environment, packed, extra=extra)
        assert kinds(project, release) == [("warning", "archive-refused")]
        strict = find_release("26.06")
        assert ("error", "archive-refused") in kinds(project, strict)

    def test_a_folder_around_everything(self, project, release, environment, packed):
        with tarfile.open(packed, "w:gz") as archive:
            archive.add(environment, "env")
        assert kinds(project, release) == [("error", "archive-refused")]

    def test_a_folder_for_a_release_that_only_supports_archives(self, project):
        found = kinds(project, find_release("23.05"))
        assert found.count(("error", "folder-unsupported")) == 2


class TestBackends:
    @pytest.fixture
    def backend(self, project, foreign_stub, release, tmp_path):
        """A backend that both models use."""
        found = backend_for(release.python, tmp_path / "backends")
        found.place(foreign_stub)
        for name in ("one", "two"):
            config = project.repository / name / "config.pbtxt"
            config.write_text(set_backend(config.read_text(), found.name, config))
        return found

    def test_a_complete_backend(self, project, release, backend):
        assert kinds(project, release) == [("warning", "stub-needs-libpython")]

    def test_a_backend_in_another_folder(self, project, release, backend, tmp_path):
        backend.folder.parent.rename(tmp_path / "elsewhere")
        assert kinds(project, release) == [("error", "backend-missing")]
        assert kinds(project.saying(Settings(backends=tmp_path / "elsewhere")), release) == [
            ("warning", "stub-needs-libpython")
        ]

    @pytest.mark.parametrize(
        ("name", "kind"),
        [
            ("triton_python_backend_stub", "stub-missing"),
            ("triton_python_backend_utils.py", "backend-incomplete"),
            ("model.py", "backend-incomplete"),
        ],
    )
    def test_a_missing_file(self, project, release, backend, name, kind):
        (backend.folder / name).unlink()
        assert ("error", kind) in kinds(project, release)

    def test_a_missing_library_is_an_error_for_older_servers(self, project, release, backend):
        backend.library.unlink()
        assert kinds(project, release) == [("warning", "stub-needs-libpython")]
        assert ("error", "backend-incomplete") in kinds(project, find_release("23.07"))

    def test_archives_of_several_backends(self, project, release, backend, environment):
        for name, kind in (("one", "python"), ("two", backend.name)):
            model = project.repository / name
            config = model / "config.pbtxt"
            config.write_text(set_backend(config.read_text(), kind, config))
            shutil.rmtree(model / "env")
            pack(environment, model / "env.tar")
            name_environment(model, in_model_folder("env.tar"))
        assert ("warning", "unpacked-at-once") in kinds(project, release)
