"""Errors for users: their parts, and how they travel between the processes of a fleet."""

import pickle

import pytest

from envpack.support.errors import InputError, StorageError, require_proc


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


def test_a_system_without_proc_is_named_before_anything_is_started(tmp_path):
    require_proc()
    with pytest.raises(StorageError, match="is not mounted") as raised:
        require_proc(tmp_path)
    assert (raised.value.where, raised.value.hint) == (str(tmp_path), "mount -t proc proc /proc")
