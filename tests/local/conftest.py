"""The tests of the stub once more, without a server: their fixture `served` is another one here."""

import contextlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cache import kept_cache
from tests.local.served import LocalServed
from tests.local.test_faithful import repository_of
from tests.server.model_environments import ModelEnvironments
from tests.server.stub.conftest import NUMPYS, Servers, deepest, from_the_first, interpreter, served  # noqa: F401 - fixtures

# The oldest, and the newest that needs no container.
PYTHONS = ("3.6", "3.13")


def pytest_generate_tests(metafunc):
    if "numpy" in metafunc.fixturenames:
        pairs = [(python, numpy) for python in PYTHONS for numpy in NUMPYS[python]]
        metafunc.parametrize(("python", "numpy"), pairs, ids=[f"{p}-numpy{n}" for p, n in pairs])
    elif "python" in metafunc.fixturenames:
        metafunc.parametrize("python", from_the_first(metafunc, PYTHONS))


# Tests of what only a server has.
NOT_HERE = {
    "test_from_forked_workers": "a process that the model forks can only reach a server",
    "test_a_pool_of_forked_workers_leaves_the_region_as_it_was": "likewise",
    "test_requests_of_a_batch_are_answered_one_by_one": "nobody batches requests",
    "test_it_lies_in_the_region_as_long_as_it_lives": "there is no region",
    "test_log_lines_name_the_line_that_logs": "a server gives the lines their form",
    "test_a_request_that_is_rescheduled_comes_again": "only a server has iterative sequences",
    "test_a_response_for_a_rescheduled_request_is_refused": "likewise",
    "test_a_rescheduled_request_leaves_no_byte_in_the_region": "likewise",
    # That they are refused here too is in test_faithful.py.
    "test_errors_come_as_responses": "they are compared with the words of the server",
    "test_what_the_server_refuses_is_told": "likewise",
    "test_a_thousand_error_replies_end_neither_stub_nor_server": "likewise",
    "test_programs_started_by_the_model_see_the_library_path_of_the_server": "there is no server",
}


def pytest_collection_modifyitems(config, items):
    """Leave out what is not here, and run all tests of one Python after each other."""
    here = [item for item in items if Path(__file__).parent in item.path.parents]
    left_out = [item for item in here if item.originalname in NOT_HERE]
    config.hook.pytest_deselected(items=left_out)
    ordered = sorted((item for item in here if item not in left_out), key=_python)
    items[:] = [item for item in items if item not in here] + ordered


def _python(item):
    return item.callspec.params.get("python", "") if hasattr(item, "callspec") else ""


class LocalServers(Servers):
    """The models of one Python at a time; no server."""

    def __init__(self, model_environments, folder):
        super().__init__(None, model_environments, folder)

    def get(self, python):
        if self.current is None or self.current.python != python:
            self.close()
            repository = self.folder / python
            if not repository.is_dir():
                self._fill(repository, python)
            # An empty PYTHONNOUSERSITE is none: the stub alone decides about the user site.
            variables = {"HOME": str(self._home_with_user_site(python)), "PYTHONNOUSERSITE": ""}
            self.current = LocalServed(python, repository, self.folder / f"{python}.log", variables)
            self._stack.callback(self.current.close)
        return self.current


@pytest.fixture(scope="session")
def servers(tmp_path_factory):
    servers = LocalServers(ModelEnvironments(kept_cache()), tmp_path_factory.mktemp("repositories"))
    yield servers
    servers.close()


@pytest.fixture(scope="module")
def repository(tmp_path_factory):
    return repository_of(tmp_path_factory.mktemp("run"), ModelEnvironments(kept_cache()))


@pytest.fixture
def command(repository, tmp_path):
    def started(*arguments, **options):
        environment = os.environ | {"ENVPACK_CACHE_DIR": str(kept_cache()), "NO_COLOR": "1"}
        # Programs in the background ignore Ctrl-C.
        line = ["env", "--default-signal=INT", sys.executable, "-m", "envpack", "run"]
        line += ["--repository", repository, *arguments]
        return subprocess.Popen(line, env=environment, cwd=tmp_path, text=True, **options)

    return started


@pytest.fixture
def run(command):
    """Run a model; returns the exit status, standard output and standard error."""

    def ended(*arguments, sent=""):
        pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
        with command(*arguments, **pipes) as child, contextlib.ExitStack() as stack:
            stack.callback(child.kill)
            output, errors = child.communicate(sent, timeout=120)
        return child.returncode, output, errors

    return ended
