"""Metrics that models make, and whose values they read."""

import pytest

from envpack.local.metrics import INCREMENT, OBSERVE, SET, Metrics
from envpack.local.model_process import ModelFailed

COUNTER, GAUGE, HISTOGRAM = range(3)


def test_a_model_reads_what_it_has_counted():
    metrics = Metrics()
    counter = metrics.create_metric(metrics.create_family("requests", COUNTER), '{"model": "m", "n": "1"}')
    gauge = metrics.create_metric(metrics.create_family("heat", GAUGE), "null")
    for number, change, value in ((counter, INCREMENT, 2.5), (counter, INCREMENT, 0.0), (gauge, SET, 5.0)):
        metrics.change(number, change, value)
    metrics.change(gauge, INCREMENT, -1.5)
    assert [metrics.value(number) for number in (counter, gauge)] == [2.5, 3.5]


def test_equal_names_and_labels_share_one_value():
    metrics = Metrics()
    families = [metrics.create_family("f", COUNTER) for _ in range(2)]
    assert families[0] != families[1]
    numbers = [metrics.create_metric(family, '{"a": "b", "c": "1"}') for family in families]
    same = metrics.create_metric(families[0], '{"c": "1", "a": "b"}')
    other = metrics.create_metric(families[1], '{"a": "c"}')
    assert len({*families, *numbers, same, other}) == 6
    metrics.change(numbers[0], INCREMENT, 3)
    assert [metrics.value(number) for number in (*numbers, same, other)] == [3, 3, 3, 0]
    metrics.delete(numbers[0])
    metrics.delete(numbers[0])  # again
    assert metrics.value(numbers[1]) == 3, "another model still has it"
    metrics.delete(families[0])
    metrics.delete(families[0])
    with pytest.raises(KeyError):
        metrics.create_metric(families[0], "{}")


def test_labels_of_one_family_are_no_others():
    metrics = Metrics()
    numbers = [metrics.create_metric(metrics.create_family(name, GAUGE), "{}") for name in "ab"]
    metrics.change(numbers[0], SET, 1)
    assert [metrics.value(number) for number in numbers] == [1, 0]


def test_what_a_metric_does_not_allow():
    metrics = Metrics()
    families = [metrics.create_family(f"f{kind}", kind) for kind in (COUNTER, GAUGE, HISTOGRAM)]
    numbers = [metrics.create_metric(family, "{}") for family in families]
    metrics.change(numbers[2], OBSERVE, 1)
    said = []
    for call in (
        lambda: metrics.create_family("f0", GAUGE),
        lambda: metrics.create_family("1f", GAUGE),
        lambda: metrics.create_metric(families[0], '{"__a": "b"}'),
        lambda: metrics.create_metric(families[0], '{"a": 1}'),
        lambda: metrics.create_metric(families[2], "{}", [0.5, 1, 1]),
        lambda: metrics.change(numbers[0], INCREMENT, -0.5),
        lambda: metrics.change(numbers[0], SET, 1),
        lambda: metrics.change(numbers[1], OBSERVE, 1),
        lambda: metrics.change(numbers[2], INCREMENT, 1),
        lambda: metrics.value(numbers[2]),
    ):
        with pytest.raises(ModelFailed) as raised:
            call()
        said.append(raised.value.text)
    assert said == [
        "the metric family 'f0' exists already, as a counter",
        "'1f' is no name of a metric family: letters, digits, _ and :, and no digit first",
        "'__a' is no name of a label: letters, digits and _, and no digit or __ first",
        "the value of the label 'a' is no string: 1",
        "the buckets of a histogram must rise: [0.5, 1, 1]",
        "a counter can only grow, not by -0.5",
        "a counter has no set()",
        "a gauge has no observe()",
        "a histogram has no increment()",
        "a histogram has no value()",
    ]
