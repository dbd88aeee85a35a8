"""The situations in which the demo is tried."""

import contextlib
import hashlib
import json
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from bare.company import Authority, proxy
from bare.roots import USER, Root
from envpack.conda.interpreters import Interpreter, available_interpreters
from tests.environment.python_downloads import download, write_archive
from tests.web import serve

# Parts of a standard library that no model of the demo imports, and what belongs to the machine that it comes from.
_LEFT_OUT = shutil.ignore_patterns("site-packages", "test", "tests", "__pycache__", "config-*", "idlelib", "tkinter")


@dataclass(frozen=True)
class Surroundings:
    """What surrounds a case while it runs.

    Attributes:
        variables: for the commands.
        check: raises AssertionError, after the commands, if the case was not what it should have been.
    """

    variables: dict[str, str]
    check: Callable[[str], None] = lambda _: None


Prepare = Callable[[Root], AbstractContextManager[Surroundings]]


@dataclass(frozen=True)
class Case:
    """A situation.

    Attributes:
        what: the situation in words.
        user: who runs the commands.
        home: HOME of that user.
        folder: where the clone goes, below ``home``.
        headers: whether the system has python3-dev.
        refused: what the demo must say instead of a verdict, before it installs anything; then its hint is followed.
        prepare: makes the surroundings.
    """

    what: str
    user: int = USER
    home: str = "/home/user"
    folder: str = "envpack"
    headers: bool = True
    refused: str = ""
    prepare: Prepare = lambda _: contextlib.nullcontext(Surroundings({}))


@contextlib.contextmanager
def _elsewhere(root: Root) -> Iterator[Surroundings]:
    root.add_folder("/srv/people/me", USER)
    shutil.rmtree(root.folder / "home/user")

    def check(_: str) -> None:
        assert not (root.folder / "home/user").exists(), "the user's folder was used all the same"

    yield Surroundings({}, check)


@contextlib.contextmanager
def _behind_proxy(root: Root, authority: Authority | None = None) -> Iterator[Surroundings]:
    """Without a name server in the root, nothing leads out but the proxy."""
    (root.folder / "etc/resolv.conf").write_text("")
    with proxy(authority) as (url, hosts):

        def check(_: str) -> None:
            assert hosts, "nothing came through the proxy"

        yield Surroundings({"HTTPS_PROXY": url, "HTTP_PROXY": url, "NO_PROXY": "127.0.0.1,localhost"}, check)


@contextlib.contextmanager
def _behind_authority(root: Root) -> Iterator[Surroundings]:
    with tempfile.TemporaryDirectory() as folder:
        authority = Authority(Path(folder))
        root.trust(authority.certificate)
        with _behind_proxy(root, authority) as surroundings:
            yield surroundings


@contextlib.contextmanager
def _unreadable_pyenv(root: Root) -> Iterator[Surroundings]:
    root.add_folder("/opt/pyenv/versions", 0)
    (root.folder / "opt/pyenv").chmod(0o700)

    def check(said: str) -> None:
        assert "warning: PYENV_ROOT=/opt/pyenv cannot be read" in said, "the folder is not named"

    yield Surroundings({"PYENV_ROOT": "/opt/pyenv"}, check)


@contextlib.contextmanager
def _own_list(root: Root) -> Iterator[Surroundings]:
    """A list of downloads with the Pythons of this machine, which uv installs in the root."""
    (root.folder / "etc/uv").mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, serve(Path(folder)) as site:
        offered = {}
        for interpreter in _newest():
            archive = _whole_archive(interpreter, Path(folder))
            digest = hashlib.sha256(archive.read_bytes()).hexdigest()
            offered |= download(interpreter.version, site.url(f"/{archive.name}"), digest)
        (Path(folder) / "list.json").write_text(json.dumps(offered))

        def check(said: str) -> None:
            assert "  fetch Python 3." in said, "no Python was fetched"
            assert any(path.endswith(".tar.gz") for path in site.requested), site.requested

        yield Surroundings({"UV_PYTHON_DOWNLOADS_JSON_URL": site.url("/list.json")}, check)


def _newest() -> list[Interpreter]:
    """An interpreter of each minor version that can be moved to another system."""
    found = [one for one in available_interpreters() if one.library and not one.distribution]
    return list({one.minor: one for one in found}.values())


def _whole_archive(interpreter: Interpreter, folder: Path) -> Path:
    with tempfile.TemporaryDirectory() as scratch:
        library = shutil.copytree(interpreter.stdlib, Path(scratch) / "library", ignore=_LEFT_OUT)
        return write_archive(interpreter, library, folder / f"python-{interpreter.minor}.tar.gz")


CASES = {
    "root": Case("as root", user=0, home="/root"),
    "user": Case("as an ordinary user"),
    "home": Case("HOME is not the user's folder", home="/srv/people/me", prepare=_elsewhere),
    "proxy": Case("the network is behind a proxy", prepare=_behind_proxy),
    "authority": Case("the proxy's certificates are a company's, known to the system only", prepare=_behind_authority),
    "umlauts": Case("the folder has umlauts", folder="Projekte/Späße"),
    "blanks": Case("the folder has blanks", folder="Meine Projekte/Späße", refused="the path contains ' '"),
    "pyenv": Case("PYENV_ROOT is a folder that the user may not read", prepare=_unreadable_pyenv),
    "fetched": Case("without python3-dev; uv fetches Pythons from a list", headers=False, prepare=_own_list),
}
