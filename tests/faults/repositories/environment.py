"""Environments that are not there, not whole, or not meant for what they are used for."""

import io
import shutil
import subprocess
import tarfile

from tests.faults.repositories.broken import KEYWORD, Broken, Site

_ACTIVATE = "export PATH={0}/bin:$PATH CONDA_PREFIX={0}\n"


def packed(site: Site, name: str = "environment.tar.gz", extra=(), leave_out: str = "") -> None:
    """A small packed environment: what makes it one, and what breaks it."""
    site.name_environment(f"{KEYWORD}/{name}")
    with tarfile.open(site.model / name, "w:gz" if name.endswith("gz") else "w") as tar:
        for file in ("bin/activate", "bin/python3.10", "lib/libpython3.10.so.1.0"):
            if file != leave_out:
                tar.add(site.kit.environment / file, file)
        for member in extra:
            tar.addfile(member, io.BytesIO(b"x" * member.size))


def _member(name: str, link: str = "") -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.type, member.linkname = (tarfile.SYMTYPE, link) if link else (tarfile.REGTYPE, "")
    member.size = 0 if link else 1
    return member


def _truncated(site: Site):
    packed(site)
    content = (site.model / "environment.tar.gz").read_bytes()
    site.write("environment.tar.gz", content[: len(content) // 2])


def _zstd(site: Site):
    packed(site, "environment.tar")
    tar = site.model / "environment.tar"
    subprocess.run(["zstd", "-q", "--rm", tar, "-o", site.model / "environment.tar.zst"], check=True)
    site.configure("environment.tar", "environment.tar.zst")


def _lfs_pointer(site: Site):
    site.name_environment(f"{KEYWORD}/environment.tar.gz")
    site.write("environment.tar.gz", "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 36000000\n")


def _below(site: Site):
    packed(site)
    tar = site.model / "environment.tar.gz"
    site.write("unpacked/readme", "")
    subprocess.run(["tar", "-C", site.model / "unpacked", "-xzf", tar], check=True)
    subprocess.run(["tar", "-C", site.model, "-czf", tar, "unpacked"], check=True)


def _no_activate(site: Site):
    (site.own_environment() / "bin/activate").unlink()


def _no_libpython(site: Site):
    for library in (site.own_environment() / "lib").glob("libpython3*"):
        library.unlink()


def _no_standard_library(site: Site):
    (site.own_environment() / "lib/python3.10/encodings").rename(site.model / "encodings")


def _elsewhere(site: Site):
    """As a tool that writes the prefix into its scripts, after somebody has moved the folder."""
    environment = site.own_environment()
    other = site.kit.environment
    site.own("python3.10/bin/activate").write_text(_ACTIVATE.format(other) + "export PYTHONNOUSERSITE=1\n")
    assert environment != other


def _user_site(site: Site):
    site.upstream_stub("3.10")
    environment = site.own_environment()
    (environment / "pyvenv.cfg").unlink(missing_ok=True)
    site.own("python3.10/bin/activate").write_text(_ACTIVATE.format("${BASH_SOURCE[0]%/bin/activate}"))


def _numpy2(site: Site):
    site.upstream_stub("3.10")
    site.name_environment(str(site.kit.numpy2))


def _numpy2_default(site: Site):
    (site.model / "triton_python_backend_stub").unlink()
    site.own_environment(site.kit.numpy2)


def _changed_file(site: Site):
    file = f"{site.own_environment().name}/lib/python3.10/site-packages/numpy/version.py"
    with site.own(file).open("a") as module:
        module.write("# corrected by hand\n")


def _no_numpy(site: Site):
    packages = site.own_environment() / "lib/python3.10/site-packages"
    shutil.rmtree(packages / "numpy")


def _numpy_of_another_python(site: Site):
    packages = site.own_environment() / "lib/python3.10/site-packages"
    for library in packages.glob("numpy/**/*.cpython-310-*.so"):
        library.rename(library.with_name(library.name.replace("-310-", "-39-")))


def _no_blas(site: Site):
    packages = site.own_environment() / "lib/python3.10/site-packages"
    for library in packages.glob("numpy.libs/*openblas*"):
        library.unlink()


def _with_space(site: Site):
    site.own_environment().rename(site.model / "python 3.10")
    site.configure("/python3.10", "/python 3.10")


def _with_dollar(site: Site):
    site.own_environment().rename(site.model / "python$310")
    site.configure("/python3.10", "/python$310")


def _relative(site: Site):
    site.own_environment()
    site.configure(f"{KEYWORD}/", "")


def _venv(site: Site):
    """A venv is links into the Python that made it."""
    folder = site.model / "venv"
    subprocess.run([site.kit.environment / "bin/python3.10", "-m", "venv", "--without-pip", folder], check=True)
    site.name_environment(f"{KEYWORD}/venv")


ENTRIES = (
    Broken(
        "environment-missing",
        "`EXECUTION_ENV_PATH` names a path that does not exist",
        lambda s: s.name_environment(f"{KEYWORD}/gone.tar.gz"),
        "environment-missing",
        "EXECUTION_ENV_PATH names $$TRITON_MODEL_DIRECTORY/gone.tar.gz, which does not exist",
        "run `envpack build",
    ),
    Broken(
        "environment-relative",
        "`EXECUTION_ENV_PATH` is a relative path",
        _relative,
        "bad-environment-path",
        "EXECUTION_ENV_PATH 'python3.10' is relative: servers look for it in their working directory",
        "write $$TRITON_MODEL_DIRECTORY/NAME, or an absolute path",
    ),
    Broken(
        "environment-space",
        "the environment's name has a space in it",
        _with_space,
        "bad-path",
        "contains ' ', and servers pass it to a shell unquoted",
        "give the environment a name of letters, digits, '_', '-' and '.'",
    ),
    Broken(
        "environment-dollar",
        "the environment's name has a `$` in it",
        _with_dollar,
        "bad-path",
        "contains '$', and servers pass it to a shell unquoted",
        "give the environment a name of letters, digits, '_', '-' and '.'",
    ),
    Broken(
        "activate-missing",
        "the environment has no `bin/activate`",
        _no_activate,
        "environment-unusable",
        "it has no bin/activate, which every server requires",
        "build it with `envpack build",
    ),
    Broken(
        "environment-changed",
        "a file of the environment was changed after it was built",
        _changed_file,
        "environment-changed",
        "python3.10: lib/python3.10/site-packages/numpy/version.py was changed or removed after the build",
        "run `envpack build",
    ),
    Broken(
        "environment-changed-served",
        "the same, and the model is served",
        _changed_file,
        "environment-changed",
        "python3.10: lib/python3.10/site-packages/numpy/version.py was changed or removed after the build",
        "run `envpack build",
        found_by="verify",
        step="process",
    ),
    Broken(
        "environment-venv",
        "the environment is a venv",
        _venv,
        "libpython-missing",
        "it has no libpython, so the stub loads the libpython of the server's system, if there is one",
        "build one with `envpack build`",
        options=("--strict",),
    ),
    Broken(
        "libpython-missing",
        "the environment has no libpython",
        _no_libpython,
        "libpython-missing",
        "it has no libpython, so the stub loads the libpython of the server's system, if there is one",
        "build one with `envpack build`",
        options=("--strict",),
        also=("environment-changed",),
    ),
    Broken(
        "archive-truncated",
        "the packed environment was cut off while it was copied",
        _truncated,
        "environment-unreadable",
        "this archive cannot be read: Compressed file ended before the end-of-stream marker was reached",
        "copy it again from where it was made, or build it again",
    ),
    Broken(
        "archive-zstd",
        "the packed environment is compressed with zstd",
        _zstd,
        "archive-unsupported",
        "it is compressed with zstd, and servers only read tar and tar.gz",
        "build it with `envpack build --format tar.gz",
    ),
    Broken(
        "archive-pointer",
        "the packed environment is a git-lfs pointer",
        _lfs_pointer,
        "lfs-pointer",
        "it is a git-lfs pointer, not the file itself",
        "fetch the file: `git lfs pull`",
    ),
    Broken(
        "archive-folder",
        "the packed environment has a folder around everything",
        _below,
        "archive-refused",
        "it has no bin/activate at its root",
        "build it with `envpack build",
    ),
    Broken(
        "archive-activate",
        "the packed environment has no `bin/activate`",
        lambda s: packed(s, leave_out="bin/activate"),
        "archive-refused",
        "it has no bin/activate at its root",
        "build it with `envpack build",
    ),
    Broken(
        "archive-traversal",
        "a name in the packed environment leads out of it",
        lambda s: packed(s, extra=[_member("../../etc/cron.d/job")]),
        "archive-refused",
        "../../etc/cron.d/job: its name contains ..",
        "build it with `envpack build",
    ),
    Broken(
        "archive-link",
        "a link in the packed environment leads out of it",
        lambda s: packed(s, extra=[_member("lib/libssl.so", "/opt/conda/lib/libssl.so.3")]),
        "archive-refused",
        "lib/libssl.so: the link leaves the environment: /opt/conda/lib/libssl.so.3",
        "build it with `envpack build",
    ),
    Broken(
        "archive-link-nested",
        "a link in the packed environment leads out of it by way of another link",
        lambda s: packed(s, extra=[_member("lib/up", ".."), _member("lib/out", "up/../etc")]),
        "archive-refused",
        "lib/out: the link leaves the environment: up/../etc, through another link",
        "build it with `envpack build",
    ),
    Broken(
        "archive-below-link",
        "a file in the packed environment lies below a link",
        lambda s: packed(s, extra=[_member("lib64", "lib"), _member("lib64/libx.so")]),
        "archive-refused",
        "lib64/libx.so: it is below a link",
        "build it with `envpack build",
        options=("--triton", "26.06"),
    ),
    Broken(
        "numpy2-default",
        "NumPy 2 with the stub of the release itself",
        _numpy2_default,
        "numpy-unsupported",
        "the environment has NumPy 2, with which the stub of Triton 24.10 returns empty outputs",
        "add envpack's stub to the model: `envpack stub --python 3.10",
        also=("requirements-changed",),
    ),
    Broken(
        "numpy2-upstream",
        "NumPy 2 with a stub of the release itself beside the model",
        _numpy2,
        "numpy-unsupported",
        "the stub of Triton 24.10 itself runs NumPy 2.2.6; under NumPy 2 its outputs are empty",
        "give the model envpack's stub: envpack build … --stub always",
        found_by="verify",
        step="process",
        also=("infer",),
    ),
    Broken(
        "standard-library",
        "a part of Python's standard library is missing",
        _no_standard_library,
        "environment-unusable",
        "Python could not start: failed to get the Python codec of the filesystem encoding",
        "the environment is incomplete or its activate script is wrong",
        found_by="verify",
        also=("files",),
    ),
    Broken(
        "moved-by-hand",
        "`bin/activate` names the folder where the environment was before",
        _elsewhere,
        "wrong-environment",
        "the process was started in … not in",
        "it is not relocatable; rebuild it",
        found_by="verify",
        step="process",
        also=("files",),
    ),
    Broken(
        "user-site",
        "packages of the server's user get into the environment",
        _user_site,
        "user-site-leaks",
        "the model's Python reads packages from ~/.local of the server's user",
        "start the server with PYTHONNOUSERSITE=1, or build the environment with envpack build",
        found_by="verify",
        step="process",
        also=("files",),
    ),
    Broken(
        "numpy-missing",
        "NumPy is missing in the environment",
        _no_numpy,
        "module-missing",
        "NumPy, which every model needs, cannot be imported from … No module named 'numpy'",
        "add numpy to the model's requirements",
        found_by="verify",
        also=("files",),
    ),
    Broken(
        "numpy-of-another-python",
        "NumPy in the environment was installed for another Python",
        _numpy_of_another_python,
        "environment-unusable",
        "NumPy, which every model needs, cannot be imported from … No module named 'numpy.core._multiarray_umath'",
        "NumPy was installed for another Python, without libraries for this one: run envpack build",
        found_by="verify",
        also=("files",),
    ),
    Broken(
        "blas-missing",
        "a shared library of a package is missing",
        _no_blas,
        "library-missing",
        "NumPy, which every model needs, cannot be imported from … cannot open shared object file",
        "add the package that contains … to the environment, or rebuild the environment if it has the package",
        found_by="verify",
        also=("files",),
    ),
)
