"""Circles of ensembles, and the order in which models are loaded."""

from dataclasses import dataclass
from pathlib import Path

import pytest

from envpack.repository.selection import find_cycles, in_loading_order
from envpack.support.errors import InputError


@dataclass(frozen=True)
class Node:
    name: str
    steps: tuple[str, ...] = ()
    folder: Path = Path("/models")


@pytest.mark.parametrize(
    ("steps", "cycles"),
    [
        ({}, []),
        ({"a": ["b", "c"], "b": ["c"], "c": []}, []),
        ({"a": ["missing"]}, []),
        ({"a": ["a"]}, [("a", "a")]),
        ({"a": ["b"], "b": ["a"]}, [("a", "b", "a")]),
        ({"x": ["b"], "c": ["a"], "a": ["b"], "b": ["c"]}, [("c", "a", "b", "c")]),
        ({"a": ["a"], "b": ["c"], "c": ["b"], "d": ["a"]}, [("a", "a"), ("b", "c", "b")]),
    ],
)
def test_each_circle_is_found_once(steps, cycles):
    assert sorted(find_cycles(steps)) == cycles


def order(models, *wanted, calls=None, callers=()):
    known = {model.name: model for model in models}

    def called(model):
        return (calls or {}).get(model.name, ())

    wanted_models = [known[name] for name in wanted]
    ordered = in_loading_order(wanted_models, known.get, called, lambda model: model.name in callers)
    return [model.name for model in ordered]


def test_models_come_after_those_that_they_run_and_in_the_order_asked_for():
    models = [Node("a", ("c", "b")), Node("b", ("d",)), Node("c"), Node("d"), Node("e", ("missing",))]
    assert order(models, "e", "a") == ["e", "c", "d", "b", "a"]
    assert order(models, "d", "b") == ["d", "b"]


def test_models_come_after_those_that_they_call():
    models = [Node("a"), Node("b", ("e",)), Node("c"), Node("d"), Node("e")]
    calls = {"a": ("b", "missing"), "e": ("d",)}
    assert order(models, "c", "a", calls=calls) == ["c", "d", "e", "b", "a"]


def test_models_that_may_call_any_and_what_needs_them_come_last_in_whatever_order_they_are_named():
    models = [Node("a", ("b",)), Node("b"), Node("c"), Node("d")]
    for wanted in ("abcd", "dcba", "bacd", "cad"):
        assert order(models, *wanted, callers="b")[-2:] == ["b", "a"]
    assert order(models, *"dbc", callers="bc") == ["d", "b", "c"]


def test_models_may_call_each_other_in_a_circle():
    calls = {"a": ("b",), "b": ("c", "d"), "c": ("a",)}
    assert order([Node(name) for name in "abcd"], "a", calls=calls) == ["c", "d", "b", "a"]


def test_a_circle_is_named():
    with pytest.raises(InputError, match="the ensembles a -> b -> a run each other") as caught:
        order([Node("a", ("b",)), Node("b", ("a",)), Node("x", ("b",))], "a", "x")
    assert caught.value.kind == "ensemble-cycle"


@pytest.mark.timeout(60)
def test_layers_of_ensembles_take_no_longer_than_their_number():
    """Each model of a layer runs both of the next: 2 to the power of 40 paths."""
    layers = [[Node(f"{layer}{side}", (f"{layer + 1}l", f"{layer + 1}r")) for side in "lr"] for layer in range(40)]
    models = [*(node for layer in layers for node in layer), Node("40l"), Node("40r")]
    assert len(order(models, "0l")) == 81
    assert list(find_cycles({model.name: model.steps for model in models})) == []


def test_a_long_chain_is_no_deep_recursion():
    models = [Node(f"m{number}", (f"m{number + 1}",)) for number in range(5000)]
    assert order(models, "m0")[0] == "m4999"
    closed = {f"m{number}": [f"m{(number + 1) % 5000}"] for number in range(5000)}
    assert [len(cycle) for cycle in find_cycles(closed)] == [5001]
