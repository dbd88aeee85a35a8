"""Files of an existing environment are copied; the original and what it links to never change."""

import json
import shutil
import stat
import time
from pathlib import Path

import pytest

from envpack.conda.engine import PREFIX_PLACEHOLDER
from envpack.environment.prefix_copy import (
    DeclaredFile,
    copy_files,
    insert_placeholder_in_binary,
    insert_placeholder_in_text,
    restored,
)
from envpack.environment.prefix_files import PrefixFile
from envpack.support.elf import runpath_of, set_runpath
from envpack.support.errors import InputError
from envpack.support.progress import SILENT
from tests.steps import Steps
from tests.tables import every_row

PREFIX_PATH = "/opt/python/env"
NEW = PREFIX_PLACEHOLDER.encode()
OLD = PREFIX_PATH.encode()
INSTALLED = OLD + b"/lib\0" + b"\0" * (len(NEW) - len(OLD)) + b"after\0"  # as an installer writes it


@pytest.fixture
def copies(tmp_path):
    """Copies files of an environment, given by path and content, to ``to``; returns the result."""
    source, target = tmp_path / "from", tmp_path / "to"

    def copy(contents, declared=None, *, programs=(), links=(), progress=SILENT):
        files = [PrefixFile(path, (0, 0, 0, 0), target=link) for path, link in dict(links).items()]
        for path, content in contents.items():
            (source / path).parent.mkdir(parents=True, exist_ok=True)
            (source / path).write_bytes(content)
            files.append(PrefixFile(path, (len(content), 0, 0, 0), program=path in programs))
        target.mkdir(exist_ok=True)
        result = copy_files(source, files, target, [Path(PREFIX_PATH)], declared or {}, progress=progress)
        assert {path: (source / path).read_bytes() for path in contents} == contents
        return result

    copy.target = target
    return copy


def text(copies, path):
    return (copies.target / path).read_bytes()


def test_a_text_that_names_the_environment_gets_the_placeholder(copies):
    done = copies({"etc/x": OLD + b"/bin", "etc/y": b"nothing"})
    assert (text(copies, "etc/x"), text(copies, "etc/y")) == (NEW + b"/bin", b"nothing")
    assert done.placeholders == {"etc/x": "text"}
    assert (done.changed, done.left) == ({copies.target / "etc/x"}, [])


def test_lines_of_a_pth_file_become_relative(copies):
    copies({"lib/site-packages/x.pth": OLD + b"/lib/x.egg\n" + OLD + b"/src\nimport sys; f('" + OLD + b"')\n"})
    lines = b"../../lib/x.egg\n../../src\nimport sys; f('" + NEW + b"')\n"
    assert text(copies, "lib/site-packages/x.pth") == lines


def test_a_file_that_contains_the_placeholder_already_is_recorded(copies):
    declared = {name: DeclaredFile("p", PREFIX_PLACEHOLDER) for name in ("a", "b")}
    done = copies({"a": NEW, "b": b"no path", "c": b""}, declared)
    assert done.placeholders == {"a": "text"}
    assert [text(copies, name) for name in "abc"] == [NEW, b"no path", b""]


def test_a_binary_with_room_gets_the_placeholder_at_the_same_length(copies):
    done = copies({"lib/x.so": INSTALLED}, {"lib/x.so": DeclaredFile("p", PREFIX_PLACEHOLDER, binary=True)})
    assert text(copies, "lib/x.so") == NEW + b"/lib\0after\0"
    assert done.placeholders == {"lib/x.so": "binary"}


def test_a_binary_without_room_is_refused(copies):
    """Its package has a shorter placeholder."""
    placeholder = "/opt/" + "p" * 75
    content = (OLD + b"/lib").ljust(len(placeholder) + 5, b"\0") + b"after"
    with pytest.raises(InputError) as caught:
        copies({"lib/x.so": content}, {"lib/x.so": DeclaredFile("p", placeholder, binary=True)})
    assert caught.value.kind == "prefix-unsupported"
    assert caught.value.where.endswith("/from/lib/x.so")
    assert caught.value.hint.endswith("reinstall p")


PACKED = "/home/conda/feedstock_root/x_1/_h_env" + "_placehold" * 21


@every_row(
    ("content", "placeholder", "copied"),
    [
        (b"a=" + PACKED.encode() + b"/b " + OLD, PACKED, b"a=" + NEW + b"/b " + NEW),
        (b"\0" + PACKED.encode() + b"/x\0end", PACKED, b"\0" + (NEW + b"/x").ljust(len(PACKED) + 2, b"\0") + b"\0end"),
        (OLD + b"_of_conda/b", PREFIX_PATH + "_of_conda", NEW + b"/b"),
        (b"a / b", "/", b"a / b"),
    ],
)
def test_the_placeholder_of_a_package_is_replaced_where_no_installer_did(copies, content, placeholder, copied):
    """As in an archive of conda-pack that was unpacked without conda-unpack."""
    copies({"x": content}, {"x": DeclaredFile("p", placeholder, binary=b"\0" in content)})
    assert text(copies, "x") == copied


def test_a_placeholder_of_a_package_that_is_too_short_is_refused(copies):
    old = "/opt/anaconda1anaconda2anaconda3"
    with pytest.raises(InputError) as caught:
        copies({"x": old.encode() + b"/lib\0"}, {"x": DeclaredFile("p", old, binary=True)})
    assert (caught.value.kind, caught.value.hint.endswith("reinstall p")) == ("prefix-unsupported", True)


@every_row("text", [OLD + b"/lib", OLD + b"/src/x.c", OLD + b"-other/x", b"/mnt" + OLD + b"/x"])
def test_a_string_that_no_installer_wrote_stays_in_a_declared_binary(text):
    """It has no zeros in place of a longer placeholder; compilers put the paths of sources into programs."""
    content = INSTALLED + text + b"\0\1"
    found = insert_placeholder_in_binary(content, [Path(PREFIX_PATH)], len(NEW))
    assert found == NEW + b"/lib\0after\0" + text + b"\0\1"


@every_row("content", [OLD * 10_000, (OLD + b"-x") * 10_000])
def test_the_time_for_a_declared_binary_grows_with_its_size_alone(content):
    """Quadratic time takes more than ten seconds of processor time."""
    started = time.process_time()
    assert insert_placeholder_in_binary(content, [Path(PREFIX_PATH)], len(NEW)) == content
    assert restored(content, Path(PREFIX_PATH), PREFIX_PLACEHOLDER, binary=True) == content
    assert time.process_time() - started < 5


@every_row(
    ("before", "after"),
    [
        (b"#!/usr/bin/env perl", None),
        (b"$ENV{'/env'}", b"$ENV{'<>'}"),
        (b"/environment /env2/x /env-data /env.d /my-x/env ./env", None),
        (b"-L/env/lib -I/env/include,-Wl,-rpath,/env/lib", b"-L<>/lib -I<>/include,-Wl,-rpath,<>/lib"),
        (b"/env:/env/x;PREFIX=/env", b"<>:<>/x;PREFIX=<>"),
        (b"It is in /env.", b"It is in <>."),
    ],
)
def test_a_declared_text_keeps_longer_paths_that_contain_the_prefix(before, after):
    found = insert_placeholder_in_text(before, [Path("/env")], declared=True)
    assert found.replace(NEW, b"<>") == (before if after is None else after)
    assert restored(before, Path("/env"), PREFIX_PLACEHOLDER, binary=False) == found


@pytest.mark.parametrize("content", [b"\x7fELF" + OLD, b"\0" + OLD])
def test_an_undeclared_binary_stays_as_it_is_and_is_reported(copies, content):
    done = copies({"x": content, "y": b"\x7fELF"})
    assert (text(copies, "x"), done.left) == (content, ["x"])
    assert (done.placeholders, done.changed) == ({}, set())


def test_a_library_path_into_the_environment_becomes_relative(copies, tmp_path):
    binary = Path(shutil.copyfile(shutil.which("true"), tmp_path / "binary"))
    set_runpath([binary], f"{PREFIX_PATH}/lib/own:/usr/lib")
    done = copies({"lib/site/x": binary.read_bytes()})
    copy = copies.target / "lib/site/x"
    assert (runpath_of(copy), done.left, done.changed) == ("$ORIGIN/../../lib/own:/usr/lib", [], {copy})


def test_a_declared_binary_that_names_the_environment_elsewhere_is_not_reported(copies):
    content = b"\0" + OLD + b" without an end"
    assert copies({"x": content}, {"x": DeclaredFile("p", PREFIX_PLACEHOLDER, binary=True)}).left == []


def test_a_short_path_that_may_mean_something_else_is_not_replaced(copies, monkeypatch):
    monkeypatch.setattr(f"{__name__}.PREFIX_PATH", "/env")
    assert copies({"x": b"use /env/x"}).changed == set()
    assert text(copies, "x") == b"use /env/x"


def test_addresses_in_records_lose_their_passwords(copies):
    record = b'{"url": "https://me:secret@host/t/tk-1/conda/x.conda", "mail": "a@b"}'
    done = copies({"conda-meta/x.json": record, "conda-meta/x.txt": record, "x.json": record})
    assert json.loads(text(copies, "conda-meta/x.json")) == {"url": "https://host/conda/x.conda", "mail": "a@b"}
    assert text(copies, "conda-meta/x.txt") == text(copies, "x.json") == record
    assert done.changed == {copies.target / "conda-meta/x.json"}


def test_a_list_of_installed_files_loses_its_byte_code(copies):
    name = "lib/python3.9/site-packages/x-1.dist-info/RECORD"
    lines = [b"x.py,sha256=a,3", b"__pycache__/x.cpython-39.pyc,,", b"y.pyc,,", b"__pycache__,,", b"z.py,,"]
    done = copies({name: b"\n".join([*lines, b""])})
    assert text(copies, name) == b"x.py,sha256=a,3\nz.py,,\n"
    assert done.changed == set()  # it has no line about itself


def test_programs_can_be_executed_and_everybody_can_read(copies):
    copies({"bin/x": b"#!/bin/sh\n", "lib/y": b"y"}, programs={"bin/x"})
    assert [stat.S_IMODE((copies.target / path).stat().st_mode) for path in ("bin/x", "lib/y")] == [0o755, 0o644]


def test_links_within_the_environment_are_relative(copies):
    inside = {"bin/a": f"{PREFIX_PATH}/lib/b", "top": f"{PREFIX_PATH}/lib/b"}
    links = {**inside, "away": "/etc/hosts", "near": "bin/a", "beside": f"{PREFIX_PATH}-2/x"}
    copies({}, links=links)
    found = {path: str((copies.target / path).readlink()) for path in links}
    assert found == {**links, "bin/a": "../lib/b", "top": "lib/b"}


def test_an_existing_file_is_replaced_and_what_it_is_linked_to_stays(copies, tmp_path):
    (tmp_path / "cached").write_bytes(b"cached")
    copies.target.mkdir()
    (copies.target / "linked").hardlink_to(tmp_path / "cached")
    (copies.target / "symbolic").symlink_to(tmp_path / "cached")
    (copies.target / "link").hardlink_to(tmp_path / "cached")
    copies({"linked": b"new", "symbolic": OLD}, links={"link": "linked"})
    assert (text(copies, "linked"), text(copies, "symbolic"), text(copies, "link")) == (b"new", NEW, b"new")
    assert (tmp_path / "cached").read_bytes() == b"cached"


def test_progress_counts_files_and_bytes(copies):
    steps = Steps()
    copies({"a": b"123", "b": b"45"}, progress=steps)
    assert steps.advanced == [(1, 2, "files", 3), (2, 2, "files", 5)]
