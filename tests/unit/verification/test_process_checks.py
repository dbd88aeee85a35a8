"""Faults that only a model's process shows, and not its files: it runs another Python or other packages."""

from dataclasses import replace

import pytest

from envpack.server.interface import Process
from envpack.verification.checks.process import (
    StubState,
    check_environment,
    check_isolation,
    check_libpython,
    check_user_site,
)

ROOT = "/models/m/environment"
LIBPYTHON = f"{ROOT}/lib/libpython3.10.so.1.0"
GOOD = StubState(Process(7, "triton_python_b", dead=False, arguments=()), (LIBPYTHON,), {"CONDA_PREFIX": ROOT}, ROOT)
CHECKS = (check_environment, check_libpython, check_isolation)


@pytest.mark.parametrize("check", CHECKS)
def test_a_process_of_the_environment_passes(check):
    assert check(GOOD).status == "ok"


def test_servers_from_25_08_on_set_another_variable():
    assert check_environment(replace(GOOD, variables={"VIRTUAL_ENV": ROOT})).status == "ok"


def test_an_environment_that_was_activated_elsewhere():
    check = check_environment(replace(GOOD, variables={"CONDA_PREFIX": "/home/me/env"}))
    assert (check.status, check.evidence) == ("failed", f"the process was started in /home/me/env, not in {ROOT}")
    assert "not relocatable" in check.fix


def test_an_environment_without_a_variable():
    check = check_environment(replace(GOOD, variables={"PATH": "/bin"}))
    assert check.status == "warning"
    assert "bin/activate does not set it" in check.evidence


def test_the_python_library_of_the_system():
    check = check_libpython(replace(GOOD, mapped=("/usr/lib/x86_64-linux-gnu/libpython3.10.so.1.0",)))
    assert (check.status, check.evidence) == (
        "failed",
        "/usr/lib/x86_64-linux-gnu/libpython3.10.so.1.0 is outside the environment",
    )


def test_two_python_libraries_in_one_process():
    check = check_libpython(replace(GOOD, mapped=(LIBPYTHON, "/usr/lib/libpython3.11.so.1.0")))
    assert check.status == "failed"
    assert check.evidence.endswith(f"{LIBPYTHON}, /usr/lib/libpython3.11.so.1.0")


def test_a_stub_with_python_linked_in():
    assert check_libpython(replace(GOOD, mapped=("/models/m/triton_python_backend_stub",))).status == "ok"


def test_packages_of_the_system():
    numpy = "/usr/lib/python3/dist-packages/numpy/core/_multiarray.cpython-310-x86_64-linux-gnu.so"
    check = check_isolation(replace(GOOD, mapped=(LIBPYTHON, numpy)))
    assert check.status == "failed"
    assert check.evidence == f"1 files loaded from outside the environment, first {numpy}"


@pytest.mark.parametrize("check", CHECKS)
def test_an_unreadable_process_skips_the_check(check):
    found = check(replace(GOOD, mapped=(), variables={}))
    assert found is None or found.status == "skipped"


@pytest.mark.parametrize("check", [check_environment, check_isolation])
def test_a_model_without_an_environment_skips_the_check(check):
    assert check(replace(GOOD, root="")) is None


def test_the_evidence_names_how_the_user_site_is_disabled():
    assert "PYTHONNOUSERSITE is set" in check_user_site("", {"PYTHONNOUSERSITE": "1"}).evidence
    assert "without PYTHONNOUSERSITE" in check_user_site("", {}).evidence
