"""The rings of the tests, and which tests stay together when several processes run them.

    pytest -n 3 --dist loadscope        three processes, each with one group of tests at a time

Tests of one group share what takes long to make, such as a server, and run after each other in one process.
"""

import re

import pytest

# By folder, in the order in which they start: the group that ends last decides how long a run takes.
RINGS = {
    "tests/distribution": "distribution",
    "tests/container": "container",
    "tests/portability": "portability",
    "tests/environment": "environment",
    "tests/server/stub": "stub",
    "tests/server/releases": "releases",
    "tests/server": "verification",
    "tests/report": "report",
    "tests/store": "store",
    "tests/native": "native",
    "tests/unit": "unit",
}
OTHER = "other"
_ORDER = [*RINGS.values(), OTHER]
# Rings in which the tests for one Python or one release share a server; in their node ids stands which.
_SERVERS = {"stub": re.compile(r"[\[-](3\.\d+)(?=[-\]])"), "releases": re.compile(r"[\[-](2\d\.\d\d)(?=[-\]])")}
# Rings that share one daemon, or what one command builds, from beginning to end.
_WHOLE = {"container", "distribution"}


def ring_of(node_id):
    """The ring of a test."""
    return next((ring for folder, ring in RINGS.items() if node_id.startswith(f"{folder}/")), OTHER)


def group_of(node_id):
    """The group of a test: all of the ring, all that share a server, or all of a file."""
    ring = ring_of(node_id)
    if ring in _SERVERS:
        found = _SERVERS[ring].search(node_id)
        return f"{ring} {found[1]}" if found else node_id.partition("::")[0]
    return ring if ring in _WHOLE else node_id.partition("::")[0]


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    items.sort(key=lambda item: _ORDER.index(ring_of(item.nodeid)))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """Distribute whole groups, in the order in which they were collected."""
    from xdist.scheduler import LoadScopeScheduling

    class GroupScheduling(LoadScopeScheduling):
        def _split_scope(self, nodeid):
            return group_of(nodeid)

    if config.getvalue("dist") != "loadscope":
        return None
    config.option.loadscopereorder = False
    return GroupScheduling(config, log)
