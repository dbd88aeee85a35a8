"""A place that is the same on every machine, and the command line in it, in this process."""

import contextlib
import io
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

from envpack.cli.main import run
from tests.cache import kept_cache
from tests.faults.command_line import Ended
from tests.golden.normal import normal_document, normal_text

_VARIABLES = {"COLUMNS": "80", "LC_ALL": "C.UTF-8", "NO_COLOR": "1", "TERM": "dumb", "TZ": "UTC"}
_KEPT = ("PATH", "LD_LIBRARY_PATH", "PYTHONPATH", "VIRTUAL_ENV", "ENVPACK_TEST_CACHE")
# What the user has set about package indexes and compilers, which real builds need.
_OF_BUILDS = ("UV_", "PIP_", "SSL_", "CXX", "http_proxy", "https_proxy", "no_proxy", "PYENV_ROOT", "XDG_DATA_HOME")


@dataclass(frozen=True)
class Place:
    """A folder in which a part works.

    Attributes:
        folder: the folder; it is empty at first, and the working folder.
        shown: the names that stand for paths in golden files.
        real: whether commands use what this machine has.
    """

    folder: Path
    shown: dict[str, str]
    real: bool = False

    @property
    def cache(self):
        """The cache of the commands."""
        return Path(os.environ["ENVPACK_CACHE_DIR"])

    def envpack(self, *words):
        """Run one command line; its exit code and what it wrote."""
        out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True) for _ in range(2))
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = run([str(word) for word in words])
        return Ended(code, *(stream.buffer.getvalue().decode() for stream in (out, err)))

    def text(self, text):
        """A text without what differs between machines."""
        return normal_text(text, self.shown, real=self.real)

    def document(self, ended):
        """Exit code and JSON document of a command, without what differs between machines."""
        document = normal_document(ended.document, self.shown, real=self.real)
        return {"exit code": ended.code, "document": document}


@contextlib.contextmanager
def surroundings():
    """A new place, in which HOME, the cache and the working folder are folders of its own."""
    with _place() as place:
        yield place


@contextlib.contextmanager
def real_surroundings():
    """The same with the cache of the tests, this machine's interpreters, and the user's package indexes."""
    home, before = Path.home(), dict(os.environ)
    with _place() as place:
        os.environ |= {name: value for name, value in before.items() if name.startswith(_OF_BUILDS)}
        os.environ.setdefault("PYENV_ROOT", str(home / ".pyenv"))
        os.environ.setdefault("XDG_DATA_HOME", str(home / ".local/share"))
        os.environ["ENVPACK_CACHE_DIR"] = str(kept_cache())
        yield Place(place.folder, place.shown | {str(kept_cache()): "<cache>"}, real=True)


@contextlib.contextmanager
def _place():
    before, here, mask = dict(os.environ), Path.cwd(), os.umask(0o022)
    with tempfile.TemporaryDirectory(prefix="envpack-golden-") as made:
        root = Path(made).resolve()
        for name in ("home", "cache", "tmp", "work"):
            (root / name).mkdir()
        kept = {name: before[name] for name in _KEPT if name in before}
        own = {"HOME": str(root / "home"), "ENVPACK_CACHE_DIR": str(root / "cache"), "TMPDIR": str(root / "tmp")}
        try:
            _use(kept | _VARIABLES | own, root / "work")
            yield Place(root / "work", {str(root / "work"): "<work>", str(root): "<root>"})
        finally:
            _use(before, here)
            os.umask(mask)


def _use(variables, folder):
    os.environ.clear()
    os.environ.update(variables)
    os.chdir(folder)
    tempfile.tempdir = None
