"""The manual pages name every command and option, and man reads them without a warning."""

import importlib.util
import shutil
import subprocess
from pathlib import Path

import click
import pytest

from envpack.cli.main import cli

SCRIPT = Path(__file__).parents[2] / "ci/man_pages.py"


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    spec = importlib.util.spec_from_file_location("man_pages", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.write_pages(tmp_path_factory.mktemp("man"))


def test_there_is_one_page_for_each_command(pages):
    names = {page.name for page in pages}
    assert {"envpack.1", *(f"envpack-{name}.1" for name in cli.list_commands(click.Context(cli)))} <= names


def test_the_page_of_a_command_has_its_options(pages):
    (page,) = (page for page in pages if page.name == "envpack-verify.1")
    command = cli.get_command(click.Context(cli), "verify")
    text = page.read_text(encoding="utf-8").replace("\\-", "-")
    for parameter in command.params:
        if isinstance(parameter, click.Option) and not parameter.hidden:
            assert parameter.opts[0] in text


def test_man_reads_them_without_a_warning(pages):
    if shutil.which("groff") is None:
        pytest.skip("groff is not installed")
    for page in pages:
        command = ["groff", "-man", "-Tutf8", "-Kutf8", "-ww", "-z", page]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, ""), page.name


def test_text_that_looks_like_a_request_is_printed(pages):
    (page,) = (page for page in pages if page.name == "envpack-completion.1")
    assert ".nf\nbash: add to ~/.bashrc" in page.read_text(encoding="utf-8")
