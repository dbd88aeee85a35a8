"""Errors for users: their parts, and how they travel between the processes of a fleet."""

import pickle

from envpack.support.errors import InputError, StorageError


def test_the_parts_are_in_the_order_in_which_they_are_read():
    error = InputError("bad-lock", "it is no lock", "write it again", "m.lock:3", details="all of it")
    parts = (error.kind, error.message, error.hint, error.where, error.details)
    assert parts == ("bad-lock", "it is no lock", "write it again", "m.lock:3", "all of it")
    assert str(error) == "m.lock:3: it is no lock (write it again)"
    assert (error.exit_code, StorageError("a", "b").exit_code) == (3, 7)


def test_an_error_of_a_worker_is_the_same_here():
    error = pickle.loads(pickle.dumps(InputError("kind", "message", "hint", "where", details="details")))
    assert (error.kind, error.message, error.hint, error.where, error.details) == (
        *("kind", "message", "hint", "where", "details"),
    )


def test_no_part_has_a_secret():
    address = "https://user:secret@host/simple"
    error = pickle.loads(pickle.dumps(InputError("k", address, address, address, details=address)))
    assert "secret" not in f"{error} {error.details} {error.args}"
