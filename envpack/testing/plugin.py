"""The pytest plugin: the fixture `triton_model`, and what `envpack test` reads of each test.

Everything else is imported when a test uses it.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from envpack.testing.model import TritonModel
    from envpack.testing.session import Session


_INI = "envpack_repository"
_SESSION = pytest.StashKey["Session"]()
_POSITION = pytest.StashKey[int]()
_MOST_SHOWN = 4000  # characters of what was printed during a test that failed


def _seconds(word: str) -> Any:
    from envpack.settings.table import FIELDS

    try:
        return FIELDS["timeout"].read_word(word, "the command line")
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("envpack", "models of Triton's Python backend")
    group.addoption(
        "--envpack-repository",
        metavar="DIR",
        help="model repository of the fixture triton_model; default: the setting envpack_repository, else the nearest "
        "folder above the test that holds envpack.toml or model folders",
    )
    group.addoption(
        "--envpack-local",
        action="store_true",
        help="run the models of the fixture triton_model without a server; default: on a real Triton server whenever "
        "one can be started",
    )
    group.addoption("--envpack-gpu", action="store_true", help="give the server of the models all GPUs")
    group.addoption(
        "--triton-server",
        metavar="PATH",
        help="the tritonserver program or installation; default: the one found on this machine",
    )
    group.addoption(
        "--envpack-timeout",
        type=_seconds,
        metavar="SECONDS",
        help="how long a model of the fixture triton_model may take to load, and to answer a request; default: that of "
        "envpack.toml, else 120",
    )
    group.addoption("--envpack-said", metavar="FILE", help=argparse.SUPPRESS)
    group.addoption("--envpack-outcomes", metavar="FILE", help=argparse.SUPPRESS)
    group.addoption("--envpack-caller", type=int, metavar="PID", help=argparse.SUPPRESS)
    parser.addini(_INI, "model repository of the fixture triton_model", type="string", default="")


def pytest_configure(config: pytest.Config) -> None:
    """Record the outcome of each test, and end with the caller, if that is `envpack test`."""
    file = config.getoption("--envpack-outcomes")
    if file and not hasattr(config, "workerinput"):  # xdist's workers report to the first process
        from envpack.support.processes import end_with

        if caller := config.getoption("--envpack-caller"):
            end_with(caller)
        config.pluginmanager.register(Outcomes(Path(file)))


@pytest.fixture(scope="session")
def _envpack_session(request: pytest.FixtureRequest) -> Iterator[Session]:
    from envpack.settings.table import Settings
    from envpack.testing.session import Session

    option = request.config.getoption
    server, timeout = option("--triton-server"), option("--envpack-timeout")
    said = {
        **({"server": Path(server).absolute()} if server else {}),
        **({"timeout": timeout} if timeout is not None else {}),
        **({"gpu": True} if option("--envpack-gpu") else {}),
    }
    file = option("--envpack-said")
    by_caller = json.loads(Path(file).read_text(encoding="utf-8")) if file else {}
    session = Session(Settings(**by_caller | said), is_local=option("--envpack-local"))
    request.config.stash[_SESSION] = session
    request.config.pluginmanager.register(_Interruption(session))
    yield session
    session.close()


class _Interruption:
    """Lets no model keep a run that somebody ends."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def pytest_keyboard_interrupt(self) -> None:
        self._session.kill()


@pytest.fixture
def triton_model(request: pytest.FixtureRequest, _envpack_session: Session) -> TritonModel:
    """Loads models of the repository by name, for example to send requests to them.

    Each model runs in one process for the whole session, in its execution environment, and is loaded again when its
    code changed. A model that cannot be loaded raises envpack.testing.ModelError.
    """
    models = _envpack_session.models_for(_named_repository(request.config), request.path)
    request.node.stash[_POSITION] = models.since
    return models


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Show what the server and its models printed during a test that failed."""
    report = yield
    since = item.stash.get(_POSITION, None)
    if report.when == "call" and report.failed and since is not None:
        printed = item.config.stash[_SESSION].printed(item.path, _named_repository(item.config), since)
        if printed:
            from envpack.support.text import clipped

            report.sections.append(("Triton", clipped(printed, _MOST_SHOWN)))
    return report


def _named_repository(config: pytest.Config) -> Path | None:
    given = config.getoption("--envpack-repository")
    if given:
        return Path(config.invocation_params.dir, given)
    setting = config.getini(_INI)
    return Path(config.inipath.parent if config.inipath else config.rootpath, setting) if setting else None


class Outcomes:
    """A plugin of pytest that writes for `envpack test` what became of each test."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._tests: dict[str, dict[str, Any]] = {}

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self._tests[report.nodeid] = _entry(report.nodeid) | {"outcome": "error", "message": report.longreprtext}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        entry = self._tests.setdefault(report.nodeid, _entry(report.nodeid))
        entry["seconds"] += report.duration
        outcome = _outcome(report)
        if outcome and entry["outcome"] not in ("failed", "error"):
            entry["outcome"] = outcome
            entry["message"] = _message(report)

    def pytest_sessionfinish(self) -> None:
        from envpack.support.replacement import write_text

        write_text(self._file, json.dumps(list(self._tests.values())))


def _entry(test: str) -> dict[str, Any]:
    return {"id": test, "outcome": "", "seconds": 0.0, "message": ""}


def _outcome(report: pytest.TestReport) -> str:
    if report.when != "call":
        return {"failed": "error", "skipped": "skipped"}.get(report.outcome, "")
    if hasattr(report, "wasxfail"):
        return "xfailed" if report.skipped else "xpassed"
    return report.outcome


def _message(report: pytest.TestReport) -> str:
    if report.passed:
        return ""
    if isinstance(report.longrepr, tuple):
        return report.longrepr[2]
    crash = getattr(report.longrepr, "reprcrash", None)
    return str(crash.message) if crash is not None else report.longreprtext
