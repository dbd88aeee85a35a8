"""Addresses of clusters."""

import pytest

from envpack.fleet.cluster import Address, parse_address
from envpack.support.errors import UsageError


def test_workers_of_this_machine_and_schedulers_are_read():
    for workers in (1, 2, 256):
        assert parse_address(f"local:{workers}") == Address(workers=workers)
        assert str(Address(workers=workers)) == f"local:{workers}"
    for text in ("tcp://10.0.0.1:8786", "tls://scheduler.example:1", "tcp://[::1]:65535"):
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
    assert (found.value.kind, found.value.hint) == (
        "bad-cluster-address",
        "write it as local:2, tcp://host:8786 or tls://host:8786",
    )


def test_an_impossible_number_of_workers_is_said_with_the_possible_ones():
    with pytest.raises(UsageError) as found:
        parse_address("local:257")
    assert found.value.message == "'local:257' has 257 workers; between 1 and 256 are possible"
    with pytest.raises(UsageError) as found:
        parse_address("tcp://host")
    assert found.value.message == "'tcp://host' is not the address of a cluster"
