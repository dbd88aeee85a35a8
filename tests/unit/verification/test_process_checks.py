"""Faults that only a model's process shows, and not its files: it runs another Python or other packages."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from envpack.repository.model import open_model
from envpack.repository.placement import point_to_environment
from envpack.server.interface import Process
from envpack.settings.releases import find_release
from envpack.verification import stub_processes
from envpack.verification.checks.process import (
    Examined,
    check_environment,
    check_isolation,
    check_libpython,
    check_libraries,
    check_numpy,
    check_preload,
    check_stability,
    check_start,
    check_stub,
    check_user_site,
    check_versions,
    examine,
    process_checks,
)
from envpack.verification.stub_processes import Instance, instances
from envpack.verification.verdict import StubIdentity, failed, passed, skipped, warning
from tests.tables import every_row
from tests.unit.verification import words

ROOT = "/models/m/environment"
LIBPYTHON = f"{ROOT}/lib/libpython3.10.so.1.0"
STUB = Process(7, "triton_python_b", dead=False, arguments=())
GOOD = Examined(
    server=None,
    model=None,
    instances=(Instance(STUB, STUB),),
    stub=StubIdentity(7, "/stub", "3.10", "1.26.4", ""),
    mapped=(LIBPYTHON,),
    variables={"CONDA_PREFIX": ROOT},
    root=ROOT,
    log="",
)


@pytest.mark.parametrize(
    ("check", "expected"),
    [
        (check_environment, passed("environment", f"started in {ROOT}")),
        (check_libpython, passed("libpython", LIBPYTHON)),
        (check_isolation, passed("isolation", f"Python and its packages are from {ROOT}")),
    ],
)
def test_a_process_of_the_environment_passes(check, expected):
    assert check(GOOD) == expected


def test_servers_from_25_08_on_set_another_variable():
    check = check_environment(replace(GOOD, variables={"VIRTUAL_ENV": f"{ROOT}/"}))
    assert check == passed("environment", f"started in {ROOT}")


def test_an_environment_that_was_activated_elsewhere():
    check = check_environment(replace(GOOD, variables={"CONDA_PREFIX": "/home/me/env"}))
    assert (check.id, check.status) == ("environment", "failed")
    assert f"/home/me/env, not in {ROOT}" in check.evidence


def test_an_environment_without_a_variable():
    check = check_environment(replace(GOOD, variables={"PATH": "/bin"}))
    assert check == warning(
        "environment",
        "the process has neither CONDA_PREFIX nor VIRTUAL_ENV: bin/activate does not set it",
        "rebuild the environment with envpack build, or correct bin/activate",
    )


def test_the_python_library_of_the_system():
    check = check_libpython(replace(GOOD, mapped=("/usr/lib/x86_64-linux-gnu/libpython3.10.so.1.0",)))
    assert check == failed(
        "libpython",
        "/usr/lib/x86_64-linux-gnu/libpython3.10.so.1.0 is outside the environment",
        "the environment has no libpython of the stub's version: build stub and environment for the same Python",
    )


def test_two_python_libraries_in_one_process():
    check = check_libpython(replace(GOOD, mapped=(LIBPYTHON, "/usr/lib/libpython3.11.so.1.0")))
    assert check == failed(
        "libpython",
        f"more than one Python in one process: {LIBPYTHON}, /usr/lib/libpython3.11.so.1.0",
        "a library in the environment is linked to another Python; find it with ldd and rebuild it",
    )


def test_a_stub_with_python_linked_in():
    check = check_libpython(replace(GOOD, mapped=("/models/m/triton_python_backend_stub",)))
    assert check == passed("libpython", "Python is linked into the stub")


def test_packages_of_the_system():
    numpy = "/usr/lib/python3/dist-packages/numpy/core/_multiarray.cpython-310-x86_64-linux-gnu.so"
    check = check_isolation(replace(GOOD, mapped=(LIBPYTHON, numpy)))
    assert check == failed(
        "isolation",
        f"1 files loaded from outside the environment, first {numpy}",
        "the environment lacks the file, or its activate script does not isolate it from the machine's own Python",
    )


@pytest.mark.parametrize(
    ("check", "expected"),
    [
        (check_environment, skipped("environment", "the variables of process 7 cannot be read")),
        (check_libpython, skipped("libpython", "the memory map of process 7 cannot be read")),
        (check_isolation, None),
    ],
)
def test_an_unreadable_process_skips_the_check(check, expected):
    assert check(replace(GOOD, mapped=(), variables={})) == expected


@pytest.mark.parametrize("check", [check_environment, check_isolation])
def test_a_model_without_an_environment_skips_the_check(check):
    assert check(replace(GOOD, root="")) is None


def test_packages_of_the_servers_user_are_a_failure():
    log = "before\nenvpack-user-site-was-read\n"
    check = check_user_site(replace(GOOD, log=log, variables={"PYTHONNOUSERSITE": "1"}))
    assert (check.id, check.status) == ("user-site", "failed")


@pytest.mark.parametrize(
    ("variables", "how"), [({"PYTHONNOUSERSITE": "1"}, "PYTHONNOUSERSITE is set"), ({}, "without PYTHONNOUSERSITE")]
)
def test_the_evidence_names_how_the_user_site_is_disabled(variables, how):
    check = check_user_site(replace(GOOD, variables=variables))
    assert check == passed("user-site", f"packages in ~/.local were not read ({how})")


class Server(words.Server):
    """A server whose models are served from /srv, with one stub of the model m per entry of ``resident``."""

    def __init__(self, resident, executable="/srv/m/triton_python_backend_stub"):
        super().__init__()
        self.resident, self._executable = resident, executable
        self.text, self.mapped = "", ("/srv/m/environment/lib/libpython3.10.so.1.0",)
        self.processes = [replace(words.STUB, pid=pid) for pid in resident]

    def memory_bytes(self, pid):
        return self.resident[pid]

    def variables(self, pid):
        return {"PID": str(pid)}

    def executable(self, pid):
        return self._executable

    def server_path(self, path):
        return "/".join(("/srv", *path.parts[path.parts.index("m") :]))


def with_its_own_stub(model):
    (model.folder / "triton_python_backend_stub").touch()
    return model


def test_the_stub_in_the_models_folder_is_the_one_that_runs(model):
    running = examine(Server({7: 1}), with_its_own_stub(model), str)
    assert running.stub.pid == 7
    check = check_stub(running)
    assert check == passed("stub", "process 7: Python 3.10, /srv/m/triton_python_backend_stub")


def test_a_foreign_stub_beside_the_models_own_is_a_fault(model):
    foreign = "/opt/tritonserver/backends/python/triton_python_backend_stub"
    running = examine(Server({7: 1}, foreign), with_its_own_stub(model), str)
    assert running.stub.executable == foreign
    check = check_stub(running)
    assert check == failed(
        "stub",
        f"process 7 runs {foreign} although the model has its own stub",
        "put Triton's utilities beside the stub in the backend directory",
    )


def test_variables_are_those_of_the_process_that_the_server_has_started(model):
    """A new title of the model's process is written over its variables."""
    server = Server({7: 1})
    server.watched = lambda pid: (replace(words.STUB, pid=9, parent=7),)
    server.mapped = ()
    running = examine(server, model, str)
    assert (running.pid, running.variables) == (9, {"PID": "7"})


@pytest.mark.parametrize("own", [True, False])
def test_a_stub_whose_file_cannot_be_read_or_of_the_server_is_no_fault(model, own):
    server = Server({7: 1, 8: 1}, "" if own else "/opt/tritonserver/backends/python/triton_python_backend_stub")
    check = check_stub(examine(server, with_its_own_stub(model) if own else model, str))
    assert check.status == "ok"
    assert check.evidence.startswith("process 7 and 1 more: ")


def test_a_model_without_a_process_is_a_fault(model):
    running = examine(Server({}), model, str)
    assert running is None
    (check,) = process_checks(running)
    assert check == failed("stub", "no living process runs the model", "read the server's log")


def test_the_same_processes_are_stable_whatever_their_memory(model):
    check = check_stability(Server({7: 30 << 20, 8: 5 << 20}), model, {7: 10 << 20, 8: 5 << 20})
    assert check == passed("stability", "same processes; 35 MiB in memory, +20 MiB")


@pytest.mark.parametrize(
    ("now", "evidence"),
    [
        ({8: 1}, "processes [7] became [8]"),
        ({}, "processes [7] became []"),
        ({7: 1, 8: 1}, "processes [7] became [7, 8]"),
    ],
)
def test_a_replaced_process_is_a_fault(model, monkeypatch, now, evidence):
    monkeypatch.setattr(stub_processes, "_REPORT_SECONDS", 0)
    check = check_stability(Server(now), model, {7: 1})
    assert check == failed(
        "stability", evidence, "the model's process ended during a request; see its last lines of output"
    )


def test_what_replaces_a_process_says_why_it_ended(model):
    server = Server({8: 1})
    for instance, why in [("other_0_0", "was killed"), ("m_0_0", "exited with status 3")]:
        said = json.dumps(f"'{instance}' was restarted (1, process 8): the model's process 7 {why}")
        server.text += f"W1128 19:49:06.229655 31388 model.py:0] {said}\n"
    check = check_stability(server, model, {7: 1})
    assert check.evidence == "processes [7] became [8]: the model's process 7 exited with status 3"


@pytest.mark.parametrize(
    ("numpy", "version", "release", "fails"),
    [
        ("2.0.1", "", "24.10", True),
        ("10.0", "", "24.10", True),
        ("1.26.4", "", "24.10", False),
        ("", "", "24.10", False),
        ("2.0.1", "0.1.0", "24.10", False),
        ("2.0.1", "", "25.08", False),
        ("2.0.1", "", None, False),
    ],
)
def test_tritons_own_stub_up_to_24_10_does_not_support_numpy_2(model, numpy, version, release, fails):
    stub = StubIdentity(7, "/stub", "3.10", numpy, version)
    check = check_numpy(replace(GOOD, model=model, stub=stub, release=find_release(release) if release else None))
    assert (check and (check.id, check.status)) == (("numpy", "failed") if fails else None)


@pytest.mark.parametrize("version", ["2.0.1", "1.26.4"])
def test_the_numpy_of_a_process_that_hides_what_it_has_loaded_is_that_of_its_environment(tmp_path, version):
    packages = tmp_path / "m/env/lib/python3.10/site-packages"
    (packages / f"numpy-{version}.dist-info").mkdir(parents=True)
    (tmp_path / "m/1").mkdir()
    (tmp_path / "m/1/model.py").touch()
    (tmp_path / "m/config.pbtxt").write_text('backend: "python"')
    point_to_environment(open_model(tmp_path / "m"), "$$TRITON_MODEL_DIRECTORY/env")
    running = replace(GOOD, model=open_model(tmp_path / "m"), stub=StubIdentity(7, "/stub", "", "", ""))
    check = check_numpy(replace(running, release=find_release("24.10")))
    assert (check is not None and f"runs NumPy {version};" in check.evidence) == (version == "2.0.1")


EXTRACTED = "/tmp/python_env_a1B2c3/0"


@pytest.mark.parametrize(
    ("environment", "mapped", "root"),
    [
        ("", (f"{EXTRACTED}/lib/libpython3.10.so.1.0",), ""),
        ("env", (f"{EXTRACTED}/lib/x.so",), "/srv/m/env"),
        ("env.tar.gz", ("/usr/lib/x.so", f"{EXTRACTED}/lib/x.so"), EXTRACTED),
        ("env.tar.gz", ("/usr/lib/x.so", f"/x{EXTRACTED}/lib/x.so"), "/srv/m/env.tar.gz"),
    ],
)
def test_where_the_server_has_unpacked_the_environment(model, environment, mapped, root):
    (model.folder / "env").mkdir()
    (model.folder / "env.tar.gz").touch()
    if environment:
        value = f'parameters {{ key: "EXECUTION_ENV_PATH" value {{ string_value: "{model.folder}/{environment}" }} }}'
        (model.folder / "config.pbtxt").write_text(f'backend: "python" {value}')

    server = Server({7: 1})
    server.mapped = mapped
    found = examine(server, open_model(model.folder), str)
    assert (found.pid, found.mapped, found.variables, found.root) == (7, mapped, {"PID": "7"}, root)


MAY_NOT_BE = "may not be 100% compatible with"


@every_row(
    ("line", "evidence", "fix"),
    [
        (
            "a.py:4: Warning: Trying to unpickle estimator Forest from version 1.8.0 when using version 1.7.2. This",
            "scikit-learn 1.7.2 reads what scikit-learn 1.8.0 wrote, and warns of it",
            "require the version that wrote it, scikit-learn==1.8.0, or write it again",
        ),
        (
            f"[W095] Model 'en' (3.0.1) was trained with spaCy v3.0.0 and {MAY_NOT_BE} the current version (3.7.5). If",
            "spacy 3.7.5 reads what spacy 3.0.0 wrote, and warns of it",
            "require the version that wrote it, spacy==3.0.0, or write it again",
        ),
        (
            "R) or\nconfiguration generated by an older version of XGBoost, please export the model by calling",
            "xgboost reads what another version wrote, and warns of it",
            "require the version that wrote it, or write it again",
        ),
    ],
)
def test_data_of_another_version_of_a_library_is_a_warning(line, evidence, fix):
    assert check_versions(replace(GOOD, log=f"loading\n{line}\n")) == warning("versions", evidence, fix)
    assert check_versions(replace(GOOD, log="unpickle estimator\n")) is None


def test_native_libraries_of_the_system_are_a_warning(model):
    good = replace(GOOD, server=Server({7: 1}), model=model)
    own = (f"{ROOT}/lib/libz.so.1", "/srv/m/libmine.so", "/usr/lib/libc.so.6", "/usr/lib/libstdc++.so.6")
    check = check_libraries(replace(good, mapped=own))
    assert check == passed("libraries", "1 native libraries, all from the environment")
    system = tuple(f"/usr/lib/lib{name}.so.1" for name in "zyxw")
    check = check_libraries(replace(good, mapped=(*own, *system)))
    assert check == warning(
        "libraries",
        "native libraries from the system: libw.so.1, libx.so.1, liby.so.1 and 1 more",
        "works as long as every server's image has them; packages that contain them, or for those of Python "
        "--set python_preference=managed, remove the dependency",
    )
    elsewhere = check_libraries(replace(good, mapped=(*system, "/home/me/lib/liba.so")))
    assert "from the system: /home/me/lib/liba.so, libw.so.1, " in elsewhere.evidence
    old = check_libraries(replace(good, mapped=(*system, f"{ROOT}/lib/libpython3.7m.so.1.0")))
    assert old.fix == "works as long as every server's image has them; packages that contain them remove the dependency"
    assert check_libraries(replace(good, root="")) is None
    assert check_libraries(replace(good, mapped=())) is None


@pytest.mark.parametrize(
    ("mapped", "found"),
    [
        ("/usr/lib/libtcmalloc.so.4", True),
        ("/usr/lib/libtcmalloc.so.4.5.3", True),
        ("/usr/lib/libtcmalloc.so.45", False),
        ("/usr/lib/libz.so.1", False),
    ],
)
def test_a_preloaded_library_is_in_the_models_process(mapped, found):
    check = check_preload(replace(GOOD, mapped=(LIBPYTHON, mapped), preload=(Path("/usr/lib/libtcmalloc.so.4"),)))
    assert (check.id, check.ok) == ("preload", found)
    assert check_preload(GOOD) is None


class Warm(Server):
    """A server with two instances of the model m, forked from process 9, and these reports of how they started."""

    def __init__(self, *starts, log=""):
        super().__init__({7: 1, 8: 1})
        self.mapped = ("/lib/libc.so.6",)
        self.text = log + "".join(
            f'envpack-stub {{"instance": "m_0_{number}", "start": "{start}"}}\n' for number, start in enumerate(starts)
        )

    def children(self, of=None):
        if of is not None:
            return ()
        return tuple(
            Process(pid, "triton_python_b", False, (*ARGUMENTS, f"m_0_{number}", "DEFAULT"))
            for number, pid in enumerate((7, 8))
        )

    def watched(self, pid):
        return (Process(pid + 10, "triton_python_b", False, (*ARGUMENTS, "m", "DEFAULT", "--template"), parent=9),)


ARGUMENTS = ("stub", "/srv/m/1/model.py", "region", "1", "1", "1", "/b", "336")
OURS = StubIdentity(17, "/srv/m/triton_python_backend_stub", "3.10", "1.26.4", "0.1.0")
COLD = "envpack stub: 'm' starts cold: the model has set a timer\n"
FIX = "keep that out of the module level of model.py and what it imports, or use envpack build m --start cold"


def started(model, server, *, stub=OURS, parameter="", variable=""):
    if parameter:
        line = f'parameters {{ key: "ENVPACK_START" value {{ string_value: "{parameter}" }} }}\n'
        (model.folder / "config.pbtxt").write_text(line)
        model = open_model(model.folder)
    variables = {"ENVPACK_START": variable} if variable else {}
    found = instances(server, model.name)
    running = replace(GOOD, server=server, model=model, instances=found, stub=stub, variables=variables)
    return check_start(replace(running, log=server.log()))


@pytest.mark.parametrize(
    "where", [{"parameter": "warm"}, {"variable": "warm"}, {"parameter": "warm", "variable": "cold"}]
)
def test_instances_that_started_warm_are_counted_with_their_template(model, where):
    check = started(model, Warm("warm", "warm"), **where)
    assert check == passed("start", "warm: 2 instances of the template, process 9")


@pytest.mark.parametrize("where", [{}, {"parameter": "cold", "variable": "warm"}, {"variable": "cold"}])
def test_a_model_that_is_to_start_cold_is_not_looked_at(model, where):
    assert started(model, Warm("cold", "cold"), **where) is None


def test_an_instance_that_started_cold_is_named_with_the_cause(model):
    check = started(model, Warm("warm", "cold", log=COLD), parameter="warm")
    assert check == warning("start", "m_0_1 started cold: the model has set a timer", FIX)


def test_an_instance_without_a_report_counts_as_cold(model, monkeypatch):
    monkeypatch.setattr(stub_processes, "_REPORT_SECONDS", 0.1)
    check = started(model, Warm("cold"), parameter="warm")
    assert check == warning("start", "m_0_0, m_0_1 started cold: see the server's log", FIX)


def test_another_stub_starts_no_model_warm(model):
    check = started(model, Warm(), parameter="warm", stub=replace(OURS, version=""))
    evidence = "not warm: only envpack's stub starts models warm"
    assert check == warning("start", evidence, "envpack build m --start warm")
