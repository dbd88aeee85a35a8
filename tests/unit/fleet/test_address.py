"""Addresses of clusters."""

import pytest

from envpack.fleet import parse_address
from envpack.fleet.cluster import Address
from envpack.support.errors import UsageError


def test_workers_of_this_machine_and_schedulers_are_read():
    assert parse_address("local:2") == Address(workers=2)
    for text in ("tcp://10.0.0.1:8786", "tls://scheduler.example:8786", "tcp://[::1]:8786"):
        assert parse_address(text) == Address(scheduler=text)
        assert str(parse_address(text)) == text


@pytest.mark.parametrize(
    "text",
    [
        *("local", "local:", "local:0", "local:257", "local:-1", "local:1000", "http://host:1", "tcp://host"),
        *("tcp://host:0", "tcp://host:65536", "tcp://host:1/x", "tls://user:word@host:1", "ucx://host:1", " local:1"),
    ],
)
def test_other_addresses_are_refused(text):
    with pytest.raises(UsageError) as found:
        parse_address(text)
    assert found.value.kind == "bad-cluster-address"
    assert "local:2" in found.value.hint
