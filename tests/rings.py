"""The rings of the tests, the part of a run that each test belongs to, and which tests stay together.

    pytest --part gate      every kind of real thing once; `make test`
    pytest --part quick     of the gate, the unit tests and the wire that take little time; `make check`
    pytest --part 2         one of six slices of the rest; `make slice SLICE=2`
    pytest                  everything; `make test-all`

A test belongs to the gate, unless the Python or the Triton release that it runs on is not one of the gate's, or it has
the marker ``thorough``. What is not in the gate belongs to one slice, by its ring and its Python.

    pytest -n 4 --dist loadscope        four processes, each with one group of tests at a time

Tests of one group share what takes long to make, such as a server, and run after each other in one process.
"""

import os
import re

import pytest

from envpack.settings.releases import all_releases

# Ring and slice by folder, in the order in which they start: the group that ends last decides how long a run takes.
_FOLDERS = {
    "tests/distribution": ("distribution", "6"),
    "tests/container": ("container", "6"),
    "tests/portability": ("portability", "3"),
    "tests/environment": ("environment", "2"),
    "tests/field": ("field", "6"),
    "tests/server/stub": ("stub", "1"),
    "tests/server/releases": ("releases", "5"),
    "tests/server/flow": ("flow", "5"),
    "tests/server": ("verification", "4"),
    "tests/local": ("local", "1"),
    "tests/report": ("report", "6"),
    "tests/store": ("store", "6"),
    "tests/golden": ("golden", "6"),
    "tests/native": ("native", "1"),
    "tests/unit": ("unit", "2"),
}
RINGS = {folder: ring for folder, (ring, _) in _FOLDERS.items()}
_SLICE_OF_RING = dict(_FOLDERS.values())
_ORDER = [*RINGS.values()]
# Rings in which the tests for one Python or one release share a server; in their node ids stands which.
_SERVERS = {"stub": re.compile(r"[\[-](3\.\d+)(?=[-\]])"), "releases": re.compile(r"[\[-](2\d\.\d\d)(?=[-\]])")}
# Rings that share one daemon, or what one command builds, from beginning to end.
_WHOLE = {"container", "distribution"}
# Rings that wait for servers and other programs more than they compute.
_WAITING = {"container", "environment", "flow", "local", "releases", "store", "stub", "verification"}

GATE, QUICK, ALL = "gate", "quick", "all"
SLICES = ("1", "2", "3", "4", "5", "6")
PARTS = (GATE, *SLICES)
# Rings without a test in the gate: they compile for other machines and build wheels.
_SLICED = {"distribution", "portability"}
# The oldest Python, that of the default release, which runs with both NumPys, and the newest without a container.
_GATE_PYTHONS = ("3.6", "3.10", "3.13")
# Parameters of the tests in the gate, by ring.
_GATE_PARAMETERS = {
    "stub": {"python": _GATE_PYTHONS},
    "local": {"python": _GATE_PYTHONS[-1:]},
    "releases": {"release": ("23.04", "24.10"), "python": ("3.6", "3.10")},
    "environment": {"minor": _GATE_PYTHONS[:1], "virtual": ("venv",), "locked": (True,)},
    "flow": {"template": ("model",), "form": (("dir",),)},
    "verification": {"attempt": (0,)},
    "native": {"sanitized": ("some epochs",), "release": ("23.04", "24.10", list(all_releases())[-1])},
}
# The slices of the ring `stub`; on a Python of the gate, only thorough tests are left.
_PYTHONS_OF_SLICES = {
    "1": ("3.6", "3.7", "3.8"),
    "2": ("3.9", "3.10"),
    "3": ("3.11", "3.12"),
    "5": ("3.13", "3.14", "3.15"),
}
# Unit tests that take long, such as by real time-outs, programs and whole builds, and are not in the inner loop.
NOT_QUICK = {
    f"tests/unit/{file}.py"
    for file in (
        "repository/adoption/test_asked_functions",
        "archive/test_archives",
        "cli/test_streams",
        "conda/test_match_specs",
        "conda/test_slow_channels",
        "deployment/objects/test_placed_publications",
        "deployment/test_fetching",
        "deployment/test_manipulations",
        "deployment/test_pulled_image",
        "development/test_session",
        "hostile/test_installed_packages",
        "local/test_limit",
        "local/test_model_process",
        "repository/test_config_editor_properties",
        "requirements/test_replaced_values",
        "server/test_process_end",
        "server/test_supervisor",
        "store/test_claims",
        "store/test_s3",
        "store/test_shared_work",
        "workflow/test_doctor_probes",
        "workflow/test_plan",
        "test_compatibility",
        "test_rings",
        "test_skips",
        "test_templates",
        "test_typings",
    )
}
_QUICK_NATIVE = "tests/native/test_native.py::test_wire["
_BY_PYTHON = {"flow", "stub"}  # rings whose tests belong to the slice of their Python
_SLICE_OF_PYTHON = {python: part for part, pythons in _PYTHONS_OF_SLICES.items() for python in pythons}


def ring_of(node_id):
    """The ring of a test."""
    for folder, ring in RINGS.items():
        if node_id.startswith(f"{folder}/"):
            return ring
    raise pytest.UsageError(f"{node_id} is in no ring: add its folder to _FOLDERS in tests/rings.py")


def group_of(node_id):
    """The group of a test: all of the ring, all that share a server, or all of a file."""
    ring = ring_of(node_id)
    if ring in _SERVERS:
        found = _SERVERS[ring].search(node_id)
        return f"{ring} {found[1]}" if found else node_id.partition("::")[0]
    return ring if ring in _WHOLE else node_id.partition("::")[0]


def part_of(item):
    """The part of a test: ``gate``, or the number of a slice as text."""
    ring, parameters = ring_of(item.nodeid), getattr(getattr(item, "callspec", None), "params", {})
    if ring not in _SLICED and item.get_closest_marker("thorough") is None:
        wanted = _GATE_PARAMETERS.get(ring, {})
        if all(parameters[name] in wanted[name] for name in wanted.keys() & parameters.keys()):
            return GATE
    by_python = ring in _BY_PYTHON and "python" in parameters
    return _SLICE_OF_PYTHON[parameters["python"]] if by_python else slice_of(ring)


def is_quick(item):
    """Whether a test belongs to the inner loop."""
    file = item.nodeid.partition("::")[0]
    of_unit = ring_of(item.nodeid) == "unit" and file not in NOT_QUICK
    return (of_unit or item.nodeid.startswith(_QUICK_NATIVE)) and part_of(item) == GATE


def parameters(rows, gate, ids=str):
    """Rows as parameters of a test; those that are not in ``gate`` are thorough."""
    return [pytest.param(row, marks=[] if row in gate else [pytest.mark.thorough], id=ids(row)) for row in rows]


def part_of_python(minor):
    """The part in which the stub's tests run on a Python."""
    return GATE if minor in _GATE_PYTHONS else _SLICE_OF_PYTHON[minor]


def part_of_sanitizer(name):
    """The part in which the native tests run with a build of `tests.compiled.SANITIZED`."""
    return GATE if name in _GATE_PARAMETERS["native"]["sanitized"] else slice_of("native")


def slice_of(ring):
    """The slice of a ring's tests that are not in the gate, by other than their Python."""
    return _SLICE_OF_RING[ring]


def pytest_addoption(parser):
    words = "the gate, the quick tests of it, or one of six slices of all other tests"
    parser.addoption("--part", choices=(GATE, QUICK, *SLICES), help=words)


def pytest_configure(config):
    config.addinivalue_line("markers", "thorough: the test belongs to a slice, not to the gate")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config, items):
    items.sort(key=lambda item: _ORDER.index(ring_of(item.nodeid)))
    part = config.getoption("--part")
    if part:
        chosen = {item for item in items if (is_quick(item) if part == QUICK else part_of(item) == part)}
        config.hook.pytest_deselected(items=[item for item in items if item not in chosen])
        items[:] = [item for item in items if item in chosen]


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """Distribute whole groups: to as many processes as there are cores in the order of the rings, to the others first
    those of rings that wait.
    """
    from xdist.scheduler import LoadScopeScheduling

    class GroupScheduling(LoadScopeScheduling):
        def _split_scope(self, nodeid):
            return group_of(nodeid)

        def _assign_work_unit(self, node):
            computes = self.nodes.index(node) < (os.cpu_count() or 1)
            if not computes:
                waiting = (group for group in self.workqueue if ring_of(next(iter(self.workqueue[group]))) in _WAITING)
                first = next(waiting, None)
                if first is not None:
                    self.workqueue.move_to_end(first, last=False)
            super()._assign_work_unit(node)

    if config.getvalue("dist") != "loadscope":
        return None
    config.option.loadscopereorder = False
    return GroupScheduling(config, log)
