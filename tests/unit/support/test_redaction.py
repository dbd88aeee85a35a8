"""No secret of an address is shown or written."""

import pytest

from envpack.support.errors import InputError
from envpack.support.redaction import has_secret, public_url, redact


@pytest.mark.parametrize(
    ("address", "shown", "public"),
    [
        ("https://pypi.example/simple", "https://pypi.example/simple", "https://pypi.example/simple"),
        ("https://me:pw@host:8443/simple", "https://***@host:8443/simple", "https://host:8443/simple"),
        ("https://token@host/simple", "https://***@host/simple", "https://host/simple"),
        ("https://me:p@ss@w@host/simple", "https://***@host/simple", "https://host/simple"),
        ("https://me:pa/ss@host/simple", "https://***@host/simple", "https://host/simple"),
        ("https://me:p?a#s/s@host/simple", "https://***@host/simple", "https://host/simple"),
        ("https://me:@host/", "https://***@host/", "https://host/"),
        ("git+ssh://git@host/repo@v1.0", "git+ssh://***@host/repo@v1.0", "git+ssh://host/repo@v1.0"),
        ("https://host/repo@v1.0", "https://host/repo@v1.0", "https://host/repo@v1.0"),
        ("https://host/t/tk-123/conda/x.conda", "https://host/t/***/conda/x.conda", "https://host/conda/x.conda"),
        ("oci://host:5000/a/b@sha256:0af1", "oci://host:5000/a/b@sha256:0af1", "oci://host:5000/a/b@sha256:0af1"),
        ("oci://me:pw@host/a:1@sha256:0af1", "oci://***@host/a:1@sha256:0af1", "oci://host/a:1@sha256:0af1"),
        ("https://me:pw@sha256:80", "https://***@sha256:80", "https://sha256:80"),
        ("https://h/b?sv=1&sig=Ab%2F&x", "https://h/b?sv=***&sig=***&x", "https://h/b?sv=1&x"),
        ("https://h/b?X-Amz-Signature=1f&v=2", "https://h/b?X-Amz-Signature=***&v=***", "https://h/b?v=2"),
    ],
)
def test_secrets_of_an_address_are_hidden_and_the_rest_stays(address, shown, public):
    assert redact(address) == shown
    assert redact(f"error: '{address}' cannot be read\n") == f"error: '{shown}' cannot be read\n"
    assert public_url(address) == public
    assert has_secret(address) == (address != public)


def test_text_without_addresses_stays():
    for text in ("", "me@example.org", "a/t/b/c", "key=value", "C:\\x?y=z"):
        assert redact(text) == public_url(text) == text
        assert not has_secret(text)


def test_the_path_below_a_host_is_secret_if_the_user_says_so(monkeypatch):
    address = "https://Pypi.Example:443/AbCdEf/simple/numpy"
    assert redact(address) == address
    monkeypatch.setenv("ENVPACK_SECRET_HOSTS", "other.example, pypi.example")
    assert redact(address) == public_url(address) == "https://Pypi.Example:443/***"
    assert redact("https://pypi.example.org/simple") == "https://pypi.example.org/simple"


def test_an_error_shows_no_secret_in_any_part():
    address = "https://me:pw@host/simple?sig=abc"
    error = InputError("x", address, f"open {address}", address, details=f"log\n{address}\n")
    for text in (str(error), error.message, error.where, error.hint, error.details, repr(error)):
        assert "pw" not in text
        assert "abc" not in text
    assert error.details == "log\nhttps://***@host/simple?sig=***\n"


@pytest.mark.parametrize(
    "text", ["https://" + "a:" * 200_000, "://" * 200_000, "https://h/" + "?a=" * 100_000, "x" * 30 + "+" * 400_000]
)
@pytest.mark.timeout(60)
def test_long_texts_take_no_longer_than_their_length(text):
    """A pattern that looks back at every character would take minutes."""
    assert len(redact(text)) <= len(text) * 2
    assert len(public_url(text)) <= len(text)


@pytest.mark.parametrize(
    "url",
    [
        "file:///mnt/t/models/x-1.0-py3-none-any.whl",
        "s3://bucket/t/models",
        "s3://http://127.0.0.1:9000/bucket/t/models/m",
        "oci://registry.example:5000/t/models:1",
    ],
)
def test_a_folder_that_is_called_t_is_no_token(url):
    assert (redact(url), has_secret(url), public_url(url)) == (url, False, url)
