"""Metrics that models make, and what a scrape of a server would show."""

import pytest

from envpack.local import ModelFailed
from envpack.local.metrics import INCREMENT, OBSERVE, SET, Metrics

COUNTER, GAUGE, HISTOGRAM = range(3)


def test_all_metrics_in_the_format_of_prometheus():
    metrics = Metrics()
    family = metrics.create_family("requests", "How many", COUNTER)
    first = metrics.create_metric(family, '{"model": "m", "n": 1}', None)
    plain = metrics.create_metric(family, "null", None)
    heat = metrics.create_metric(metrics.create_family("heat", "Now", GAUGE), "{}", None)
    times = metrics.create_family("times", "Seconds", HISTOGRAM)
    histogram = metrics.create_metric(times, '{"a": "b"}', (0.5, 2.0))
    for number, change, value in (
        (first, INCREMENT, 2.5),
        (first, INCREMENT, 0.0),
        (plain, INCREMENT, 1.0),
        (heat, SET, 5.0),
        (heat, INCREMENT, -1.5),
        (histogram, OBSERVE, 0.5),
        (histogram, OBSERVE, 0.6),
        (histogram, OBSERVE, 3.0),
    ):
        metrics.change(number, change, value)
    assert [metrics.value(number) for number in (first, plain, heat)] == [2.5, 1.0, 3.5]
    assert metrics.lines() == [
        "# HELP requests How many",
        "# TYPE requests counter",
        'requests{model="m",n="1"} 2.5',
        "requests 1",
        "# HELP heat Now",
        "# TYPE heat gauge",
        "heat 3.5",
        "# HELP times Seconds",
        "# TYPE times histogram",
        'times_count{a="b"} 3',
        'times_sum{a="b"} 4.1',
        'times_bucket{a="b",le="0.5"} 1',
        'times_bucket{a="b",le="2"} 2',
        'times_bucket{a="b",le="+Inf"} 3',
    ]


def test_equal_names_and_labels_share_one_value():
    metrics = Metrics()
    families = [metrics.create_family("f", text, COUNTER) for text in ("first", "second")]
    assert families[0] != families[1]
    numbers = [metrics.create_metric(family, '{"a": "b"}', None) for family in families]
    other = metrics.create_metric(families[1], '{"a": "c"}', None)
    assert len({*families, *numbers, other}) == 5
    metrics.change(numbers[0], INCREMENT, 3)
    assert [metrics.value(number) for number in (*numbers, other)] == [3, 3, 0]
    assert metrics.lines() == ["# HELP f first", "# TYPE f counter", 'f{a="b"} 3', 'f{a="c"} 0']
    metrics.delete_metric(numbers[0])
    metrics.delete_metric(numbers[0])  # again
    assert metrics.value(numbers[1]) == 3, "another model still has it"
    metrics.delete_family(families[0])
    metrics.delete_family(families[0])
    with pytest.raises(KeyError):
        metrics.create_metric(families[0], "{}", None)
    for number in (numbers[1], other):
        metrics.delete_metric(number)
    assert metrics.lines() == []


def test_labels_of_one_family_are_no_others():
    metrics = Metrics()
    numbers = [metrics.create_metric(metrics.create_family(name, "", GAUGE), "{}", None) for name in "ab"]
    metrics.change(numbers[0], SET, 1)
    assert [metrics.value(number) for number in numbers] == [1, 0]


def test_what_a_kind_of_metric_does_not_allow():
    metrics = Metrics()
    numbers = [
        metrics.create_metric(metrics.create_family(f"f{kind}", "", kind), "{}", (1.0,) if kind == HISTOGRAM else None)
        for kind in (COUNTER, GAUGE, HISTOGRAM)
    ]
    said = []
    for call in (
        lambda: metrics.create_family("f0", "", GAUGE),
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
        "Metric family 'f0' already exists, as a counter",
        "TRITONSERVER_METRIC_KIND_COUNTER can only be incremented monotonically by non-negative values.",
        "TRITONSERVER_METRIC_KIND_COUNTER does not support Set",
        "TRITONSERVER_METRIC_KIND_GAUGE does not support Observe",
        "TRITONSERVER_METRIC_KIND_HISTOGRAM does not support Increment",
        "TRITONSERVER_METRIC_KIND_HISTOGRAM does not support Value",
    ]
