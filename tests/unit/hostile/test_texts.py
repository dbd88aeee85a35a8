"""Texts from outside: nothing in them controls a terminal, and no secret of an address is left in them."""

import re
import unicodedata

from hypothesis import given, strategies as st

from envpack.cli.console import plain
from envpack.support.redaction import has_secret, public_url, redact
from envpack.support.text import clipped, one_line, printable, printable_line
from tests.hostile import hostile

ODD = st.sampled_from(
    ["\x1b[2J", "\x9b", "\r", "\u202e", "\u200b", "\ufeff", "\U000e0041", "\ud800", "[bold]", "\\[", "\n"]
)


@hostile
@given(st.lists(ODD | st.text(max_size=6), max_size=8).map("".join))
def test_text_is_shown_as_text(text):
    shown = printable(text)
    categories = {unicodedata.category(char) for char in shown} - {unicodedata.category("\n")}
    assert not categories & {"Cf", "Cs", "Zl", "Zp"}
    assert {char for char in shown if unicodedata.category(char) == "Cc"} <= {"\t", "\n", "\r"}
    assert "\r" not in shown.replace("\r\n", "")
    assert "\n" not in printable_line(text)
    assert printable(shown) == shown
    assert len(one_line(text)) <= 302
    assert len(clipped(text, 10)) <= max(len(text), 40)


@hostile
@given(st.lists(ODD | st.text(max_size=6), max_size=8).map("".join))
def test_markup_in_a_text_is_text(text):
    from rich.text import Text

    shown = Text.from_markup(plain(text)).plain
    assert shown.replace("\\", "") == printable_line(text).replace("\\", "")  # rich drops some before a bracket


SECRET = "5ecret"
USERS = st.sampled_from(["me", "me%40x", "", "a.b", "ü"])
PASSWORDS = st.text(alphabet="aZ9/?#@:%&=+'\"<`~$!*.,;-_", max_size=12).map(lambda text: f"x{text}{SECRET}")
HOSTS = st.sampled_from(["host.example", "host:8443", "127.0.0.1:80", "localhost"])
TAILS = st.sampled_from(["", "/simple", "/c/x-1.whl#sha256=0", "/?a=1", "/x y"])
SCHEMES = st.sampled_from(["https://", "HTTP://", "git+https://", "s3://", "https:/", "https:\\\\"])


@hostile
@given(SCHEMES, USERS, PASSWORDS, HOSTS, TAILS, st.sampled_from(["{}", "error: '{}' failed", 'x="{}"', "<{}>"]))
def test_no_password_survives(scheme, user, password, host, tail, around):
    address = f"{scheme}{user}:{password}@{host}{tail}"
    assert SECRET not in redact(around.format(address))
    assert has_secret(address)
    if not re.search(r"@[^@]*[/?#\\]", password):  # else a part of the password is the host, by the standard
        assert SECRET not in public_url(address)


NAMES = st.sampled_from(
    ["sig", "token", "X-Amz-Signature", "x-cos-security-token", "api_key", "client_secret", "AWSAccessKeyId"]
)


@hostile
@given(HOSTS, NAMES, st.sampled_from("?&#;"), st.sampled_from(["", "&x=1", "#y"]))
def test_no_signature_survives(host, name, mark, tail):
    address = f"https://{host}/p?a=1{mark}{name}={SECRET}{tail}"
    assert SECRET not in redact(address)
    assert SECRET not in public_url(address)
    assert has_secret(address)


@hostile
@given(st.text())
def test_other_texts_stay_readable(text):
    public_url(text)
    has_secret(text)
    assert redact(redact(text)) == redact(text)
