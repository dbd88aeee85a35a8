"""A verdict with all of its parts, and the part for one model."""

from envpack.verification.verdict import (
    EnvironmentSize,
    Failure,
    Latency,
    ModelVerdict,
    PackageSize,
    Phase,
    SampleCount,
    StubIdentity,
    Verdict,
    failed,
    passed,
    skipped,
    warning,
)

EVIL = "<script>document.title = 'evil'</script><img src=x onerror=\"document.title = 'evil'\">"


def full_verdict():
    packages = tuple(PackageSize(f"package-{index}", 40_000_000 >> index) for index in range(30))
    environment = EnvironmentSize("/models/good/python3.10", "folder", sum(p.bytes for p in packages), packages)
    good = ModelVerdict(
        name="good",
        ok=True,
        load_seconds=2.4,
        stub=StubIdentity(7, "/models/good/triton_python_backend_stub", "3.10.13", "1.26.4", "0.1.0"),
        samples=SampleCount(179, 180, "images", needed=175, expected=180),
        checks=(passed("load", "READY after 2.4 s"), warning("libraries", "libffi.so.8 the system's", "add libffi")),
        latency=Latency(20, 0.0021, 0.004),
        phases=(Phase("extraction", 0.4, 1.0), Phase("import", 1.4, 0.6), Phase("initialize", 2.0, 0.8)),
        environment=environment,
        log=("one line", "another " + "long " * 100),
    )
    bad = ModelVerdict(
        name="a_model_with_quite_a_long_name_that_a_phone_has_no_room_for",
        ok=False,
        load_seconds=0.3,
        failure=Failure("load-failed", f"ValueError: {EVIL}", ("model.py:3 in initialize", EVIL), "correct the model"),
        checks=(failed("load", EVIL, "correct the model"), skipped("infer", "not sent")),
        log=(EVIL,),
    )
    checks = (failed("together", "loaded at the same time, good fails", "use less memory"),)
    return Verdict(
        ok=False,
        repository="/srv/a/rather/deep/folder/for/models",
        release="24.10",
        server="2.51.0",
        runtime="docker",
        image="example/tritonserver:24.10-py3",
        models=(good, bad),
        checks=checks,
        leftovers=("shared memory /dev/shm/x",),
        started="2026-01-01T00:00:00+00:00",
        seconds=9.0,
        verdict_seconds=8.0,
    )


def of(verdict, name):
    return next(model for model in verdict.models if model.name == name)
