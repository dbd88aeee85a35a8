"""Files of others are read with limits."""

import errno
import os
import tracemalloc
from pathlib import Path

import pytest

from envpack.support.bounded_reading import (
    first_endless,
    parse_json,
    parse_toml,
    read_bytes,
    read_json,
    read_source,
    read_text,
)


def test_a_regular_file_is_read_also_through_a_link(tmp_path):
    (tmp_path / "file").write_text('{"ä": 1}', encoding="utf-8")
    (tmp_path / "link").symlink_to("file")
    assert read_text(tmp_path / "link") == '{"ä": 1}'
    assert read_json(tmp_path / "link") == {"ä": 1}
    (tmp_path / "latin").write_bytes(b"\xe4")
    with pytest.raises(UnicodeDecodeError):
        read_text(tmp_path / "latin")
    assert read_text(tmp_path / "latin", errors="replace") == "�"
    assert read_text(tmp_path / "latin", encoding="latin-1") == "ä"


def test_a_python_file_is_read_in_its_own_encoding(tmp_path):
    for number, content in enumerate((b"\xef\xbb\xbf# \xc3\xa4\r\n", b"# coding: latin-1\n# \xe4\n", b"# \xc3\xa4\n")):
        (tmp_path / f"{number}.py").write_bytes(content)
        assert read_source(tmp_path / f"{number}.py").endswith("# ä\n")
    for content in (b"# \xe4\n", b"# coding: nonsense\n"):
        (tmp_path / "bad.py").write_bytes(content)
        with pytest.raises(ValueError, match="invalid|unknown encoding|codec can't decode"):
            read_source(tmp_path / "bad.py")


def test_a_small_file_takes_little_memory_whatever_the_limit(tmp_path):
    (tmp_path / "file").write_bytes(b"x" * (3 << 20))
    tracemalloc.start()
    try:
        assert len(read_bytes(tmp_path / "file", most=1 << 30)) == 3 << 20
        assert tracemalloc.get_traced_memory()[1] < 16 << 20
    finally:
        tracemalloc.stop()


def test_toml_may_begin_with_a_byte_order_mark():
    assert parse_toml('\ufeffa = "\ufeff"\n') == {"a": "\ufeff"}


@pytest.mark.timeout(20)
@pytest.mark.parametrize("what", ["pipe", "folder", "device"])
def test_nothing_else_is_read_or_waited_for(tmp_path, what):
    file = tmp_path / "file"
    if what == "pipe":
        os.mkfifo(file)
    elif what == "folder":
        file.mkdir()
    else:
        file.symlink_to("/dev/zero")
    with pytest.raises(OSError, match="not a regular file|Is a directory") as caught:
        read_bytes(file)
    assert caught.value.filename == str(file)


def test_what_never_ends_is_found_before_a_program_reads_it(tmp_path):
    (tmp_path / "file").write_text("")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("pipe")
    (tmp_path / "nothing").symlink_to(os.devnull)
    others = [tmp_path / name for name in ("file", "nothing", "absent", "file/below", "nul\0")]
    assert first_endless([*others, tmp_path]) is None
    for endless in (tmp_path / "pipe", tmp_path / "link", Path("/dev/zero")):
        assert first_endless([*others, endless, tmp_path / "pipe"]) == endless


def test_a_file_above_the_limit_is_refused_also_if_it_grows(tmp_path):
    (tmp_path / "file").write_bytes(b"x" * 11)
    assert read_bytes(tmp_path / "file", most=11) == b"x" * 11
    with pytest.raises(OSError, match="larger than 10 bytes") as caught:
        read_bytes(tmp_path / "file", most=10)
    assert caught.value.errno == errno.EFBIG


@pytest.mark.parametrize("text", ["[" * 100_000, '{"a":' * 100_000, b"[" * 100_000])
def test_deep_nesting_is_a_wrong_value(text):
    with pytest.raises(ValueError, match="nested too deeply"):
        parse_json(text)
