"""The phases of a load, from the lines of the server's log and what the stub reports of itself."""

import json

import pytest

from envpack.verification.measurements import read_phases

FIRST = 'I1121 10:00:00.000000 1 server.cc:1] "start"\n'


def line(second, text):
    return f'I1121 10:00:{second:09.6f} 1 file.cc:1] "{text}"\n'


def log(start, *, completes=True):
    """A load whose stub is started at 12 s, after that for the configuration at 10 s, and which is ready at 16 s."""
    report = {
        "instance": "m_0",
        "import_seconds": 1.0,
        "initialize_seconds": 0.5,
        **({"start": start} if start else {}),
    }
    quoted = json.dumps(report).replace('"', '\\"')
    return FIRST + "".join(
        (
            line(10, "Starting Python backend stub: …") if completes else "",
            line(11, "TRITONBACKEND_ModelInstanceInitialize: m_0 (CPU device 0)"),
            line(12, "Starting Python backend stub: …"),
            line(15, f"envpack-stub {quoted}"),
            line(16, "TRITONBACKEND_ModelInstanceInitialize: instance initialization successful (device 0)"),
        )
    )


def phases(text):
    return [(phase.name, round(phase.start, 3), round(phase.seconds, 3)) for phase in read_phases(text, text)]


@pytest.mark.parametrize("start", ["", "cold"])
def test_an_instance_that_starts_cold_imports_the_model_itself(start):
    assert phases(log(start)) == [
        ("configuration", 10, 1),
        ("stub start", 12, 1.5),
        ("import", 13.5, 1),
        ("initialize", 14.5, 0.5),
    ]


def test_the_import_of_a_warm_start_is_a_part_of_the_configuration():
    assert phases(log("warm")) == [("configuration", 10, 1), ("stub start", 12, 2.5), ("initialize", 14.5, 0.5)]


def test_without_a_configuration_the_first_instance_makes_the_template():
    assert phases(log("warm", completes=False)) == [
        ("stub start", 12, 1.5),
        ("import", 13.5, 1),
        ("initialize", 14.5, 0.5),
    ]
