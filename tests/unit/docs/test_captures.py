"""The blocks that ci/capture_output.py owns are as it expects, and it puts into them what ran."""

import json
import re

import pytest

from ci import capture_output
from tests.tables import every_row
from tests.unit.docs.documents import CHECKOUT, NAMES, read

PAGES = [str(page.relative_to(CHECKOUT)) for page in capture_output.pages()]


@every_row("name", PAGES)
def test_blocks_are_well_formed(name):
    for block in capture_output.blocks(read(name), name):
        assert block.kind == "file" or block.commands, f"{name}: a block without a command"
        if block.kind == "json":
            json.loads("\n".join(block.lines))


def test_no_other_document_has_such_blocks():
    assert [name for name in NAMES if "<!-- capture" in read(name) and name not in PAGES] == []


def test_no_page_shows_a_folder_of_the_machine_that_ran_it():
    for name in PAGES:
        for block in capture_output.blocks(read(name), name):
            paths = re.findall(r"(?<![\w./$-])/(?:home|root|tmp|Users)/[\w-]+", "\n".join(block.lines))
            assert set(paths) <= {capture_output.HOME}, name


@every_row("name", ["README.md", "docs/getting-started.md"])
def test_every_envpack_command_with_output_was_run(name):
    owned = {command for block in capture_output.blocks(read(name), name) for command in block.commands}
    shown = {line.removeprefix("$ ") for line in read(name).splitlines() if line.startswith("$ ")}
    assert shown == owned


@every_row(
    ("text", "reason"),
    [
        ("<!-- capture nowhere -->\n```console\n$ true\n```\n", "unknown scenario nowhere"),
        ("<!-- capture empty -->\n\n```console\n$ true\n```\n", "stands alone on the line above"),
        ("<!-- capture empty -->\n```console\n$ true\n", "stands alone on the line above"),
        ("<!-- capture empty -->\n```text\n$ true\n```\n", "a console block takes"),
        ("<!-- capture empty status=1 -->\n```console\n$ true\n```\n", "a console block takes"),
        ("<!-- file empty ../x -->\n```text\nx\n```\n", "a path inside its scenario"),
    ],
)
def test_a_block_that_is_not_is_named(text, reason):
    with pytest.raises(capture_output.CaptureError, match=f"page.md:1: .*{reason}"):
        list(capture_output.blocks(text, "page.md"))


def test_output_is_replaced_and_nothing_else(tmp_path):
    page = (
        "before\n"
        "<!-- file empty a/b.txt -->\n```text\nin the file\n```\n"
        "<!-- capture empty -->\n```console\n$ cd a\nold\n$ cat \\\n    b.txt\nold\nolder\n$ pwd\n```\n"
        "between\n"
        "<!-- capture empty exit=3 -->\n```console\n$ echo err >&2; exit 3\n```\n"
        '<!-- capture empty json echo \'{"list": [{"a": 1}, {"a": 2}], "few": [1, 2]}\' -->\n```json\n{}\n```\n'
        "after\n"
    )
    new = capture_output.refresh(page, "page.md", tmp_path, {})
    assert "$ cd a\n$ cat \\\n    b.txt\nin the file\n$ pwd\n/home/you/a\n```\nbetween" in new
    assert "$ echo err >&2; exit 3\nerr\n```" in new
    document = json.loads(new.partition("```json\n")[2].partition("```")[0])
    assert document == {"list": [{"a": 1}], "few": [1, 2]}
    assert new.startswith("before\n")
    assert new.endswith("after\n")
    assert capture_output.refresh(new, "page.md", tmp_path, {}) == new


def test_a_command_that_fails_is_not_written_down(tmp_path):
    page = "<!-- capture empty -->\n```console\n$ exit 4\n```\n"
    with pytest.raises(capture_output.CaptureError, match="exit 4 ended with 4, not 0"):
        capture_output.refresh(page, "page.md", tmp_path, {})
