"""The folder of an environment, in files that must name it."""

import pytest

from envpack.conda.install import PREFIX_PLACEHOLDER
from envpack.environment.relocation import check_prefix, replace_placeholder
from envpack.support.errors import UsageError

OLD = PREFIX_PLACEHOLDER.encode()


def test_texts_get_the_folder_wherever_they_name_it():
    assert replace_placeholder(b"a=" + OLD + b"/x\nb=" + OLD, "/m/env", "text") == b"a=/m/env/x\nb=/m/env"


def test_texts_in_binary_files_keep_their_length():
    content = b"\x7fELF\0" + OLD + b"/lib:" + OLD + b"/bin\0after\0"
    found = replace_placeholder(content, "/m/env", "binary")
    assert len(found) == len(content)
    assert found.startswith(b"\x7fELF\0/m/env/lib:/m/env/bin\0\0")
    assert found.endswith(b"\0after\0")


def test_a_folder_of_the_longest_name_fits():
    longest = "/" + "x" * (len(PREFIX_PLACEHOLDER) - 1)
    check_prefix(longest)
    assert replace_placeholder(OLD + b"\0", longest, "binary") == longest.encode() + b"\0"


def test_a_longer_folder_is_refused():
    with pytest.raises(UsageError) as caught:
        check_prefix("/" + "ü" * 100)
    assert caught.value.kind == "path-too-long"
