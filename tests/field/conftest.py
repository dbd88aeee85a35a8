"""Two small channels and two small package indexes on the web, for the cases of this folder."""

import pytest

from tests.conda_packages import index, make_conda_package
from tests.web import serve
from tests.wheels import make_source, make_wheel, write_index


@pytest.fixture(scope="session")
def addresses(tmp_path_factory):
    """The words of the cases' files, each with the address that it stands for."""
    root = tmp_path_factory.mktemp("served")
    channel, other = root / "channel", root / "other"
    for version in ("3.9.1", "3.10.2", "3.11.1", "3.12.1"):
        make_conda_package(channel, "python", version, {})
    make_conda_package(channel, "numpy", "1.26.4", {}, build="py310h1_0")
    make_conda_package(channel, "numpy", "2.1.0", {}, build="py310h1_0")
    make_conda_package(channel, "x264", "1!161.3030", {}, build="h2_0")
    make_conda_package(channel, "tensorflow", "1.15", {}, depends=["numpy <2"])
    make_conda_package(other, "special", "1.0", {})
    public, own = root / "public", root / "own"
    for version in ("1.0", "1.1", "2.0"):
        make_wheel(public / "files", "leaf", version, {"leaf.py": ""})
    make_wheel(public / "files", "numpy", "1.0", {"numpy.py": ""})
    make_wheel(public / "files", "tree", "1.0", {"tree.py": ""}, needs=("leaf<2",))
    make_wheel(public / "files", "wrapper", "1.0", {"wrapper.py": ""}, needs=("sourced",))
    make_wheel(public / "files", "winonly", "1.0", {"winonly.py": ""}, tag="py3-none-win_amd64")
    make_source(public / "files", "sourced", "1.0")
    for name in ("leaf", "numpy"):
        make_wheel(own / "files", name, "0.5", {f"{name}.py": ""})
    write_index(public)
    write_index(own)
    index(channel)
    index(other)
    with serve(root) as site:
        yield {
            "OWN_INDEX": site.url("/own/simple"),
            "INDEX": site.url("/public/simple"),
            "CHANNEL": site.url("/channel"),
            "OTHER": site.url("/other"),
        }
