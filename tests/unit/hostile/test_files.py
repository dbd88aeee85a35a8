"""Files of others, damaged and rearranged at random: read, or refused in a documented way; never any other error."""

import io
import json
import os
import tarfile
from unittest import mock

import pytest
from hypothesis import example, given, strategies as st

from envpack.archive.inspection import inspect_environment
from envpack.archive.manifest import is_made_by_envpack, read_metadata
from envpack.archive.reading import opened_archive
from envpack.conda.settings import read_conda_settings
from envpack.environment.inventory import INVENTORY, inventory_text
from envpack.environment.store import SCHEMA, read_environment
from envpack.inspection.facts import read_environment_facts, this_host
from envpack.inspection.preflight import find_mismatches
from envpack.lock.lockfile import Lock
from envpack.repository.model import examine_model
from envpack.server.tensors import read_served_config
from envpack.settings.project import open_project
from envpack.verification.requests import generate_requests
from envpack.verification.samples import read_samples
from tests.faults.broken_models import CONFIG
from tests.hostile import NAMES, damaged, hostile, read_or_refused, trees
from tests.unit.lock.test_lock import LOCK

SERVED = read_served_config(
    {
        "max_batch_size": 2,
        "sequence_batching": {},
        "input": [
            {"name": name, "data_type": f"TYPE_{name}", "dims": [-1, 2]}
            for name in ("FP16", "BF16", "INT8", "UINT64", "BOOL", "STRING")
        ],
    }
)


@hostile
@given(trees | st.fixed_dictionaries({"data": trees, "envpack": trees, "validation_data": trees}))
def test_samples(tmp_path, content):
    (tmp_path / "smoke.json").write_text(json.dumps(content))
    with read_or_refused():
        read_samples(tmp_path / "smoke.json", SERVED)


@hostile
@given(damaged(json.dumps({"data": [[{"FP16": [[1, 2]], "INT8": {"content": [1, 2], "shape": [1, 2]}}]]}).encode()))
def test_damaged_samples(tmp_path, content):
    (tmp_path / "smoke.json").write_bytes(content)
    with read_or_refused():
        read_samples(tmp_path / "smoke.json", SERVED)


@hostile
@given(damaged(b'triton = "24.10"\nbackends = "~/b"\nchannels = ["a"]\n[models.m]\npython = "3.10"\nexclude = ["x"]\n'))
def test_damaged_settings_of_a_project(tmp_path, content):
    (tmp_path / "envpack.toml").write_bytes(content)
    with read_or_refused():
        open_project(tmp_path)


@hostile
@example(b'backend: "\\python"\n')  # Python's protobuf only warns
@given(damaged(f'{CONFIG}parameters {{ key: "EXECUTION_ENV_PATH" value {{ string_value: "/e" }} }}\n'.encode()))
def test_damaged_configurations_of_a_model(tmp_path, content):
    (tmp_path / "m/1").mkdir(parents=True, exist_ok=True)
    (tmp_path / "m/config.pbtxt").write_bytes(content)
    with read_or_refused():
        examine_model(tmp_path / "m")


@hostile
@given(damaged(LOCK.text.encode()))
def test_damaged_lockfiles(tmp_path, content):
    with read_or_refused():
        Lock.parse(content.decode("utf-8", "replace"), tmp_path / "envpack.lock")


_MANIFEST = dict.fromkeys(("key", "python", "minor", "glibc", "glibcxx", "platform", "content"), "1")
_MANIFEST |= {"schema": SCHEMA, "size": 1, "stand_ins": 0, "packages": []}
manifests = trees | st.dictionaries(st.sampled_from(sorted(_MANIFEST)), trees, max_size=3).map(
    lambda changes: _MANIFEST | changes | {"schema": SCHEMA}
)
inventories = trees | st.lists(trees | st.tuples(trees, trees), max_size=3).map(
    lambda files: {"schema": 1, "files": files}
)


@hostile
@given(manifests, inventories)
def test_descriptions_of_environments(tmp_path, manifest, inventory):
    (tmp_path / "bin").mkdir(exist_ok=True)
    (tmp_path / "bin/activate").write_text("")
    (tmp_path / "envpack-environment.json").write_text(json.dumps(manifest))
    (tmp_path / INVENTORY).write_text(json.dumps(inventory))
    for read in (inspect_environment, read_environment, read_metadata, is_made_by_envpack):
        with read_or_refused():
            read(tmp_path)
    with read_or_refused():
        find_mismatches(None, read_environment_facts(tmp_path), None, this_host())


def settings_of(condarc):
    with mock.patch.dict(os.environ, {"CONDARC": str(condarc)}, clear=True):
        return read_conda_settings()


@hostile
@given(trees | st.dictionaries(st.sampled_from(NAMES), trees))
def test_settings_of_conda(tmp_path, content):
    (tmp_path / "condarc").write_text(json.dumps(content))
    with read_or_refused():
        settings_of(tmp_path / "condarc").resolve(("a", "defaults", *NAMES))


CONDARC = b"""channels: [a, &all [https://me:word@h/c]]
channel_alias: https://${TOKEN}@h
custom_channels: {team: https://h/c}
custom_multichannels: {all: *all, defaults: [x]}
proxy_servers: {https: http://p:1}
ssl_verify: ~/ca.pem
"""
YAML = st.lists(
    st.sampled_from([*CONDARC.decode().splitlines(), "channels: [2001-99-99, 1_0:99, 0x, ~]", "<<: [{a: &a [*a]}]"])
    | st.sampled_from(["a: &b [x, x]", "channels: &c [*b, *b, *b]", "channels: [*c, *c]", "? [a]\n: b", "!!int x: y"]),
    max_size=6,
).map(lambda lines: "\n".join(lines).encode())


@hostile
@given(damaged(CONDARC) | YAML)
def test_damaged_settings_of_conda(tmp_path, content):
    (tmp_path / "condarc").write_bytes(content)
    with read_or_refused():
        settings_of(tmp_path / "condarc").resolve(("a", "defaults", "all", "team/x"))


@pytest.mark.timeout(30)
def test_settings_of_conda_that_multiply_are_read_soon(tmp_path):
    """Each line stands for ten times the one before it; written out, they would fill every memory."""
    lines = ["a0: &a0 [x]", *(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 40))]
    (tmp_path / "condarc").write_text("\n".join([*lines, "channels: [*a39, y]", "custom_channels: {z: *a39}"]))
    assert settings_of(tmp_path / "condarc").channels == ("y",)


def _archive():
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w", format=tarfile.PAX_FORMAT) as packed:
        for name, text in (("bin/activate", b"x"), (INVENTORY, inventory_text(()).encode()), ("é" * 120, b"y" * 600)):
            info = tarfile.TarInfo(name)
            info.size, info.mtime = len(text), 1.5
            packed.addfile(info, io.BytesIO(text))
    return content.getvalue()


@hostile
@given(damaged(_archive()), trees | manifests)
def test_damaged_archives_and_their_sidecars(tmp_path, content, sidecar):
    (tmp_path / "e.tar").write_bytes(content)
    (tmp_path / "e.tar.json").write_text(json.dumps(sidecar))
    with read_or_refused():
        inspect_environment(tmp_path / "e.tar")
    with read_or_refused():
        find_mismatches(None, read_environment_facts(tmp_path / "e.tar"), None, this_host())
    with read_or_refused(), opened_archive(tmp_path / "e.tar") as archive:
        for member in archive:
            assert member.size >= 0
    read_metadata(tmp_path / "e.tar")
    is_made_by_envpack(tmp_path / "e.tar")


@pytest.mark.parametrize("dims", [[1 << 62] * 8, [0], [-1] * 100])
def test_requests_for_any_dimensions(dims):
    config = read_served_config({"input": [{"name": "A", "data_type": "TYPE_FP64", "dims": dims}]})
    assert sum(tensor.size for request in generate_requests(config) for tensor in request.inputs) <= 1 << 24
