"""Custom metrics: three kinds, their values, and every way to get them wrong."""

import uuid

import pytest

REPLY_ERROR = (
    "try:\n    {what}\n    return [reply('nothing')]\n"
    "except pb_utils.TritonModelException as error:\n    return [reply(str(error))]"
)
SERVER_PART = "Failed to process the request for model 'script_0', message: "


def family(kind, name=None):
    name = name or "m" + uuid.uuid4().hex
    return f"family = pb_utils.MetricFamily('{name}', 'for a test', pb_utils.MetricFamily.{kind})\n"


def error_of(served, setup, what):
    return served.run_code(setup + REPLY_ERROR.format(what=what))


def test_a_counter_counts(served):
    code = family("COUNTER") + (
        "metric = family.Metric(labels={'model': 'script'})\nmetric.increment(2)\nmetric.increment(0.5)\n"
        "return [reply(metric.value())]"
    )
    assert served.run_code(code) == 2.5


def test_a_gauge_goes_up_and_down_and_can_be_set(served):
    code = family("GAUGE") + (
        "metric = family.Metric()\nvalues = []\n"
        "for change in (lambda: metric.set(7), lambda: metric.increment(-9)):\n"
        "    change()\n    values.append(metric.value())\n"
        "return [reply(values)]"
    )
    assert served.run_code(code) == [7, -2]


def test_a_histogram_observes(served):
    code = family("HISTOGRAM") + (
        "metric = family.Metric(labels={}, buckets=[0.1, 1.0, 2.5])\nfor v in (0.5, 3):\n    metric.observe(v)\n"
        "return [reply('observed')]"
    )
    assert served.run_code(code) == "observed"


def test_a_histogram_may_have_no_buckets(served):
    code = family("HISTOGRAM") + (
        "metric = family.Metric(labels={}, buckets=[])\nmetric.observe(0.5)\nreturn [reply('observed')]"
    )
    assert served.run_code(code) == "observed"


def test_the_same_labels_are_the_same_metric(served):
    code = family("COUNTER") + (
        "one, other = (family.Metric(labels={'a': 'b'}) for _ in range(2))\none.increment(3)\n"
        "return [reply(other.value())]"
    )
    assert served.run_code(code) == 3


@pytest.mark.parametrize(
    ("kind", "arguments", "text"),
    [
        ("COUNTER", "labels=[]", "Failed to create metric. Labels must be a dictionary."),
        ("COUNTER", "buckets=[1.0]", "Failed to create metric. Unexpected buckets found."),
        ("HISTOGRAM", "", "Failed to create metric. Missing required buckets."),
        ("HISTOGRAM", "buckets=(1.0,)", "Failed to create metric. Buckets must be a list."),
        ("HISTOGRAM", "buckets=['x']", "Failed to create metric. Buckets must be numbers."),
    ],
)
def test_wrong_arguments_are_named(served, kind, arguments, text):
    assert error_of(served, family(kind), f"family.Metric({arguments})") == text


@pytest.mark.parametrize(
    ("kind", "arguments", "operation", "prefix", "reason"),
    [
        ("COUNTER", "", "increment(-1)", "Failed to increment metric value: ", "can only be incremented monotonically"),
        ("COUNTER", "", "set(1)", "Failed to set metric value: ", "does not support Set"),
        ("GAUGE", "", "observe(1)", "Failed to observe metric value: ", "does not support Observe"),
        ("HISTOGRAM", "buckets=[1.0]", "value()", "Failed to get metric value: ", "does not support Value"),
    ],
)
def test_what_the_server_refuses_is_told(served, kind, arguments, operation, prefix, reason):
    message = error_of(served, family(kind) + f"metric = family.Metric({arguments})\n", f"metric.{operation}")
    assert message.startswith(prefix + SERVER_PART)
    assert reason in message


def test_a_family_of_another_kind_under_the_same_name_is_refused(served):
    message = error_of(served, family("COUNTER", "taken") + "self.family = family\n", family("GAUGE", "taken").strip())
    assert message.startswith("Error when creating MetricFamily: " + SERVER_PART)
    served.run("self.family = None\nreturn [reply(1)]")


def test_a_metric_does_not_outlive_its_family(served):
    message = error_of(served, family("COUNTER") + "metric = family.Metric()\ndel family\n", "metric.increment(1)")
    assert message.startswith(
        "Failed to increment metric value: "
        "Invalid metric operation as the corresponding 'MetricFamily' has been deleted."
    )


def test_a_thousand_error_replies_end_neither_stub_nor_server(served):
    """Upstream's stub reads the text of an error after it has allowed the server to free it."""
    code = family("COUNTER") + (
        "metric = family.Metric()\ntexts = set()\n"
        "for _ in range(1000):\n"
        "    try:\n        metric.increment(-1)\n"
        "    except pb_utils.TritonModelException as error:\n        texts.add(str(error))\n"
        "return [reply(sorted(texts))]"
    )
    (text,) = served.run_code(code)
    assert "non-negative" in text


def test_metrics_leave_no_memory_behind(served):
    code = family("GAUGE") + "metric = family.Metric(labels={'a': 'b'})\nmetric.set(1)\nreturn [reply(metric.value())]"
    served.run(code)
    before = served.free()
    for _ in range(20):
        served.run(code)
    assert served.frees_all_again(before)


def test_auto_complete_and_import_may_not_ask_the_server(served):
    """In the process that completes a configuration nobody listens, and waiting would hang the load."""
    assert "works from initialize() to finalize() only" in served.failures["too_early"]
