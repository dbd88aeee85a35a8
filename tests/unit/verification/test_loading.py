"""For how long a dead stub goes unnoticed by the server."""

from envpack.verification.loading import DeadStubTimer

FIRST, SECOND = 7, 8


def test_one_that_stays_dead_counts_from_when_it_was_seen():
    dead = DeadStubTimer(10.0)
    for now in (10.1, 10.2, 10.3):
        dead.update(frozenset({FIRST}), now)
    dead.update(frozenset({FIRST, SECOND}), 10.4)
    assert round(dead.seconds, 6) == 0.3


def test_one_that_the_server_has_waited_for_is_forgotten():
    dead = DeadStubTimer(10.0)
    dead.update(frozenset({FIRST}), 10.1)
    dead.update(frozenset({FIRST}), 10.2)
    dead.update(frozenset(), 10.3)
    assert dead.seconds == 0


def test_time_in_which_the_machine_stood_still_does_not_count():
    dead = DeadStubTimer(10.0)
    dead.update(frozenset({FIRST}), 10.1)
    dead.update(frozenset({FIRST}), 3610.1)
    assert dead.seconds < 0.3
    dead.update(frozenset({FIRST}), 3610.2)
    assert dead.seconds > 0.3
