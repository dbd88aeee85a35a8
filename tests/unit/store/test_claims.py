"""Claims: one machine makes a thing, the others wait; a dead one delays them no longer than its claim lasts."""

import os
import threading
import time

import pytest

from envpack.store import claims
from envpack.store.claims import claimed, live_claims, probe
from tests.steps import Steps
from tests.waiting import soon

from .conftest import claimed_paths

KEY = "0" * 32


def take(store, is_made=lambda: False, waiting=lambda: None, expiry=60):
    return claimed(
        store.objects, "environment", KEY, clock=store.clock, is_made=is_made, waiting=waiting, expiry=expiry
    )


def test_a_claim_is_given_back(store):
    with take(store) as mine:
        assert mine
        assert claimed_paths(store) == [f"claims/environment/{KEY}/1"]
        assert live_claims(store.objects, store.clock) == 1
    assert claimed_paths(store) == []


def test_a_claim_is_given_back_after_a_failure(store):
    with pytest.raises(RuntimeError), take(store):
        raise RuntimeError
    assert claimed_paths(store) == []


def silent(monkeypatch, store, request):
    """Let a store answer one kind of request no more; returns who ends that, and what was answered."""
    answers, answered = threading.Event(), []
    monkeypatch.setattr(claims, "_LONGEST_END", 0.1)
    monkeypatch.setattr(store.objects, request, lambda *_: answered.append(answers.wait(20)))
    return answers, answered


def test_ctrl_c_does_not_wait_for_the_end_of_a_claim(store, monkeypatch):
    with pytest.raises(KeyboardInterrupt), take(store):
        answers, answered = silent(monkeypatch, store, "write")
        raise KeyboardInterrupt
    assert answered == []
    answers.set()
    assert soon(lambda: answered)


def test_ctrl_c_does_not_wait_for_the_end_of_a_probe(store, monkeypatch):
    def interrupt(*_):
        raise KeyboardInterrupt

    answers, answered = silent(monkeypatch, store, "delete")
    monkeypatch.setattr(store.objects, "create", interrupt)
    with pytest.raises(KeyboardInterrupt):
        probe(store.objects)
    assert answered == []
    answers.set()
    assert soon(lambda: answered)


def test_a_number_is_not_used_twice(store):
    for number in (1, 2, 3):
        with take(store):
            assert claimed_paths(store) == [f"claims/environment/{KEY}/{number}"]
    assert len(store.objects.list("claims")) == 1


def test_who_lists_before_others_have_come_and_gone_gets_no_claim(store, monkeypatch):
    """Numbers that others have removed meanwhile can be created again."""
    with take(store):
        pass
    listed = claims._claims(store.objects, f"claims/environment/{KEY}/")
    for _ in range(2):
        with take(store):
            pass
    answers = [listed]
    real = claims._claims
    monkeypatch.setattr(claims, "_claims", lambda *words: answers.pop() if answers else real(*words))
    assert claims.take(store.objects, f"claims/environment/{KEY}/", store.clock, 0.6) is None
    assert [path for path in claimed_paths(store) if path.endswith("/2")] == []


@pytest.mark.parametrize("is_mine", [True, False])
def test_a_claim_is_held_if_only_the_answer_was_lost(store, monkeypatch, is_mine):
    """The request is repeated then, and says that the claim exists."""
    create = store.objects.create

    def lost(path, owner):
        create(path, owner if is_mine else b"0" * len(owner))
        return False

    monkeypatch.setattr(store.objects, "create", lost)
    claim = claims.take(store.objects, f"claims/environment/{KEY}/", store.clock, 0.6)
    assert (claim is not None) is is_mine


def test_an_owner_that_stood_still_releases_nothing(store, monkeypatch):
    stem = f"claims/environment/{KEY}/"
    late = claims.take(store.objects, stem, store.clock, 60)
    monkeypatch.setattr(late, "_written", late._written - 61)
    assert not late.held
    late.release()
    assert claimed_paths(store) == [f"{stem}1"]


def test_a_second_machine_waits_until_the_first_has_made_it(store):
    made, begun, results = threading.Event(), threading.Event(), []

    def second():
        with take(store, made.is_set, begun.set) as mine:
            results.append(mine)

    with take(store) as mine:
        assert mine
        thread = threading.Thread(target=second)
        thread.start()
        assert begun.wait(60)
        assert results == []
        made.set()
        thread.join(60)
    assert results == [False]


def test_a_living_owner_keeps_its_claim_for_longer_than_it_lasts(store):
    with take(store, expiry=3):
        written = {found.path: found.modified for found in store.objects.list("claims")}
        (path,) = written
        assert soon(lambda: store.objects.head(path).modified > written[path])


def test_the_claim_of_a_dead_machine_expires(store):
    store.objects.create(f"claims/environment/{KEY}/7", b"{}")
    waited = []
    with take(store, waiting=lambda: waited.append(True), expiry=2) as mine:
        assert mine
        assert waited == [True]
        assert claimed_paths(store) == [f"claims/environment/{KEY}/7", f"claims/environment/{KEY}/8"]
    assert claimed_paths(store) == []


def test_a_claim_from_the_future_is_over(store):
    """The clock was set back after its owner died: it would be waited for until that time."""
    path, later = f"claims/environment/{KEY}/7", time.time() + 86400
    store.objects.create(path, b"{}")
    os.utime(store.location.folder / path, (later, later))
    assert live_claims(store.objects, store.clock, expiry=60) == 0
    with take(store, expiry=60) as mine:
        assert mine


def test_of_two_that_wait_for_a_dead_machine_one_gets_the_claim_at_a_time(store):
    store.objects.create(f"claims/environment/{KEY}/1", b"{}")
    inside, most, results = [], [], []

    def machine():
        with take(store, expiry=2) as mine:
            inside.append(mine)
            most.append(len(inside))
            results.append(mine)
            inside.remove(mine)

    threads = [threading.Thread(target=machine) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert results == [True] * 4
    assert max(most) == 1


def test_a_store_with_conditions_is_recognised_and_no_probe_stays(store):
    honours, clock = probe(store.objects)
    assert honours
    assert list(store.objects.list("probes")) == []
    store.objects.write("now", b"")
    assert abs(clock.now() - store.objects.head("now").modified) < 60


def test_a_store_that_ignores_conditions_is_named(store, monkeypatch):
    monkeypatch.setattr(store.objects, "create", lambda path, content: bool(store.objects.write(path, content)) or True)
    steps = Steps()
    with store.claimed("environment", KEY, "it", steps) as mine:
        assert mine
    assert [text for text in steps.seen if "ignores conditional writes" in text]


def test_the_wait_is_said_once(store, monkeypatch):
    monkeypatch.setattr(claims, "_PAUSE", 0.01)
    store.objects.create(f"claims/environment/{KEY}/1", b"{}")
    steps = Steps()
    with store.claimed("environment", KEY, "environment 0", steps) as mine:
        assert mine
    assert steps.seen == ["another machine makes environment 0; wait for it"]
