"""Stubs that a server cannot start, or that do not fit; and folders of backends that lack a part."""

import shutil

from envpack.repository.placement import backend_for
from envpack.settings.releases import find_release
from tests.faults.repositories.broken import STUB, Broken, Site
from tests.faults.repositories.environment import packed

_BACKEND = "python_3_10"


def _mode(site: Site):
    site.own(STUB).chmod(0o644)


def _other_python(site: Site):
    site.upstream_stub("3.11")


def _release_file(site: Site):
    site.write(f"{STUB}.release", "23.04\n")


def _one_release(site: Site):
    (site.model / STUB).unlink()
    shutil.copy(site.kit.one_release("26.03"), site.model / STUB)


def _other_machine(site: Site):
    with site.own(STUB).open("r+b") as file:
        file.seek(18)
        file.write((183).to_bytes(2, "little"))  # EM_AARCH64


def _backend(leave_out: str):
    """The model's stub in a backend folder, as `envpack build --set layout=backend` makes it, without one part."""

    def change(site: Site):
        backend = backend_for("3.10", site.repository.parent / "backends")
        backend.place(site.model / STUB, find_release("24.10"))
        (site.model / STUB).unlink()
        site.configure('backend: "python"', f'backend: "{_BACKEND}"')
        (backend.folder / leave_out).unlink()

    return change


def _archives_at_once(site: Site):
    packed(site)
    second = site.model.with_name("second")
    shutil.copytree(site.model, second)
    _backend(f"{STUB}.release")(Site(site.repository, second, site.kit))


ENTRIES = (
    Broken(
        "stub-mode",
        "the stub is not executable: git or a download lost its mode",
        _mode,
        "stub-not-executable",
        "its mode is 0644: a server cannot run it from a read-only mount, or as a user who does not own it",
        "chmod 755",
    ),
    Broken(
        "stub-other-python",
        "the stub is for Python 3.11, the environment has 3.10",
        _other_python,
        "python-mismatch",
        "the stub embeds Python 3.11, but the environment has Python 3.10",
        "compile a stub for it: `envpack stub",
        also=("stub-needs-libpython",),
    ),
    Broken(
        "stub-pointer",
        "the stub is a git-lfs pointer",
        lambda s: s.write(STUB, "version https://git-lfs.github.com/spec/v1\n").chmod(0o755),
        "lfs-pointer",
        "it is a git-lfs pointer, not the file itself",
        "fetch the file: `git lfs pull`",
    ),
    Broken(
        "stub-other-machine",
        "the stub is for another processor",
        _other_machine,
        "machine-mismatch",
        "the stub is for aarch64, but the environment is for x86_64",
        "compile a stub for it: `envpack stub",
    ),
    Broken(
        "stub-release-file",
        "the stub's `.release` file names another release",
        _release_file,
        "release-mismatch",
        "the release file beside the stub names Triton 23.04, but the server is 24.10",
        "write 24.10 into … or delete that file",
    ),
    Broken(
        "stub-one-release",
        "the stub was compiled for another release",
        _one_release,
        "release-mismatch",
        "the stub supports ABI epochs 26.03, but Triton 24.10 has 24.10",
        "compile a stub for all releases, without --triton, or for this one",
    ),
    Broken(
        "stub-upstream",
        "the stub is a release's own and its Python is only in the environment",
        lambda s: s.upstream_stub("3.10"),
        "stub-needs-libpython",
        "it is linked against libpython3.10.so.1.0: if only the environment has that library, the server's trial run"
        " fails",
        "use envpack's stub: `envpack stub --python 3.10",
        options=("--strict",),
    ),
    Broken(
        "backend-missing",
        "the folder of the backend is missing",
        lambda s: s.configure('"python"', '"python_3_12"'),
        "backend-missing",
        "it names the backend 'python_3_12', which is not in",
        "run `envpack build --set layout=backend` for it, or name its folder with --set backends=DIRECTORY",
    ),
    Broken(
        "backend-stub",
        "the folder of the backend has no stub",
        _backend(STUB),
        "stub-missing",
        "it has no triton_python_backend_stub",
        "create the folder again: `envpack build --set layout=backend MODEL`",
    ),
    Broken(
        "backend-utilities",
        "the folder of the backend has no utilities",
        _backend("triton_python_backend_utils.py"),
        "backend-incomplete",
        "it has no triton_python_backend_utils.py: without that file, a server silently uses its own stub",
        "create the folder again: `envpack build --set layout=backend MODEL`",
    ),
    Broken(
        "backend-library",
        "the folder of the backend has no link to the server's library",
        _backend("libtriton_python_3_10.so"),
        "backend-incomplete",
        "it has no libtriton_python_3_10.so",
        "create the folder again: `envpack build --set layout=backend MODEL`",
        options=("--triton", "23.08"),
        also=("release-mismatch",),
    ),
    Broken(
        "backend-bridge",
        "the folder of the backend has no `model.py`",
        _backend("model.py"),
        "backend-incomplete",
        "it has no model.py, which other stubs than envpack's import instead of the model's file since 23.10",
        "create the folder again: `envpack build --set layout=backend MODEL`",
    ),
    Broken(
        "unpacked-at-once",
        "two backends unpack an environment at the same time",
        _archives_at_once,
        "unpacked-at-once",
        "the backends python and python_3_10 unpack archives at the same time, which mixes their files",
        "start the server with … or build with --format dir",
        options=("--strict",),
    ),
)
