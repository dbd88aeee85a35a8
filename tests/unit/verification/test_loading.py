"""Measuring for how long a dead stub has not been reaped by the server."""

from envpack.verification.loading import DeadStubTimer

FIRST, SECOND = 7, 8


def test_a_dead_stub_counts_from_its_first_observation():
    dead = DeadStubTimer(10.0)
    for now in (10.1, 10.2, 10.3):
        dead.update(frozenset({FIRST}), now)
    dead.update(frozenset({FIRST, SECOND}), 10.4)
    assert round(dead.seconds, 6) == 0.3


def test_a_reaped_stub_is_forgotten():
    dead = DeadStubTimer(10.0)
    dead.update(frozenset({FIRST}), 10.1)
    dead.update(frozenset({FIRST}), 10.2)
    dead.update(frozenset(), 10.3)
    assert dead.seconds == 0


def test_time_in_which_the_machine_was_stopped_does_not_count():
    dead = DeadStubTimer(10.0)
    dead.update(frozenset({FIRST}), 10.1)
    dead.update(frozenset({FIRST}), 3610.1)
    assert dead.seconds < 0.3
    dead.update(frozenset({FIRST}), 3610.2)
    assert dead.seconds > 0.3
