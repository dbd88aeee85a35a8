"""What goes wrong in a container only: other paths, another user, a file system that cannot be written to."""

from tests.faults.repositories.broken import ENVIRONMENT, KEYWORD, STUB, Broken, Site
from tests.faults.repositories.code import written

_BIG = 'return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.zeros((1, 4 << 20), np.float32))])]'


def _mode(site: Site):
    site.own(STUB).chmod(0o644)


def _private(site: Site):
    site.own("1/model.py").chmod(0o600)


def _link_out(site: Site):
    file = site.own("1/model.py")
    elsewhere = file.rename(file.parents[3] / "elsewhere.py")
    file.symlink_to(elsewhere)


def _absolute(site: Site):
    folder = site.own_environment()
    site.configure(f"{KEYWORD}/{ENVIRONMENT}", str(folder))


def _good(_: Site):
    pass


def _v(name, what, change, kind, reason, fix, **more):
    return Broken(name, what, change, kind, reason, fix, found_by="verify", runtime="docker", **more)


ENTRIES = (
    _v(
        "mode-on-read-only",
        "the stub is not executable, and its file system is read-only",
        _mode,
        "stub-not-executable",
        "Failed to give execute permission",
        "run chmod 755 on the stub, as its owner",
    ),
    _v(
        "private-for-nobody",
        "the server's user may not read `model.py`",
        _private,
        "not-for-everybody",
        "private_for_nobody/1/model.py can only be read by its owner or group, and the server runs as another user",
        "chmod -R a+rX … private_for_nobody",
    ),
    _v(
        "link-out",
        "`model.py` is a link to a file outside of the repository, which the container does not have",
        _link_out,
        "broken-link",
        "link_out/1/model.py is a link to … elsewhere.py, which the server does not have or may not read",
        "replace the link by what it leads to, as `envpack layout` does, or add --runtime process",
    ),
    _v(
        "absolute-path",
        "`EXECUTION_ENV_PATH` is a path of another machine than the server's",
        _absolute,
        "environment-missing",
        "Failed to get the canonical path for … python3.10",
        "does not exist for the server: start EXECUTION_ENV_PATH with $$TRITON_MODEL_DIRECTORY",
    ),
    _v(
        "writes-beside-itself",
        "the model writes into its own folder, which is read-only",
        written(initialize="open(__file__ + '.cache', 'w')"),
        "read-only",
        "Read-only file system: … /models/writes_beside_itself/1/model.py:8 in initialize",
        "write below /tmp, or to a folder named by a variable",
    ),
    _v(
        "shared-memory-small",
        "`/dev/shm` is too small for an answer",
        written(execute=_BIG),
        "shared-memory-full",
        "Failed to increase the shared memory pool size",
        "enlarge the server's /dev/shm: docker run --shm-size=1g",
        options=("--set", "shm_size=4m"),
        step="inference",
    ),
    _v(
        "image-missing",
        "the image is not there",
        _good,
        "image-missing",
        "the daemon does not have the image localhost/nothing:1",
        "pull it with --set pull=true, name another with --image, or use --runtime process",
        options=("--image", "localhost/nothing:1"),
        step="start",
    ),
    _v(
        "daemon-missing",
        "no daemon is running",
        _good,
        "docker-missing",
        "no container daemon is running",
        "start Docker, or podman's socket",
        variables=(("DOCKER_HOST", "unix:///run/nothing.sock"),),
        step="start",
    ),
    _v(
        "daemon-remote",
        "the daemon runs on another machine",
        _good,
        "docker-remote",
        "the container daemon runs on another machine, which has no access to this model repository",
        "run envpack on that machine, or unset DOCKER_HOST",
        variables=(("DOCKER_HOST", "tcp://192.0.2.1:2376"),),
        step="start",
    ),
    _v(
        "gpu-missing",
        "a GPU is requested and the daemon has none",
        _good,
        "no-gpu",
        "this daemon has no access to a GPU",
        "install nvidia-container-toolkit, run nvidia-ctk runtime configure",
        options=("--gpu",),
        step="start",
    ),
    _v(
        "preload-elsewhere",
        "the library to preload is not in the image",
        _good,
        "preload-missing",
        "/usr/lib/libnothing.so.1 is not in the memory of process",
        "check that the server has the library, for its processor",
        options=("--set", "preload=/usr/lib/libnothing.so.1"),
        step="process",
    ),
    _v(
        "hangs-in-container",
        "an import never ends, in a container",
        written("__import__('time').sleep(1000)"),
        "load-timeout",
        "not loaded after 8 s … /models/hangs_in_container/1/model.py:1 in <module>",
        "find what blocks in /models/hangs_in_container/1/model.py:1 in <module>",
        options=("--timeout", "8"),
    ),
    _v(
        "library-of-the-system",
        "a library that the environment takes from the system is not in the image",
        written("import sqlite3"),
        "library-missing",
        "libsqlite3.so.0: cannot open shared object file",
        "add the package that contains libsqlite3.so.0 to the environment",
    ),
)
