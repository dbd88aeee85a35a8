"""Verifies that a real Triton server can serve a model repository."""

from typing import TYPE_CHECKING

from envpack.support.lazy_imports import lazy_imports

if TYPE_CHECKING:
    from envpack.verification.answers import TOGETHER as TOGETHER, responses_difference as responses_difference
    from envpack.verification.checks.inference import (
        configuration_mismatch as configuration_mismatch,
        percentile as percentile,
    )
    from envpack.verification.combined import combine_verdicts as combine_verdicts
    from envpack.verification.fault_catalogue import explain as explain
    from envpack.verification.generated import generate_requests as generate_requests
    from envpack.verification.kubernetes import JobOptions as JobOptions, job_yaml as job_yaml, make_job as make_job
    from envpack.verification.loading import (
        DeadStubTimer as DeadStubTimer,
        abort_and_read_frames as abort_and_read_frames,
    )
    from envpack.verification.published import verify_image as verify_image, verify_published as verify_published
    from envpack.verification.recorded import add_samples as add_samples
    from envpack.verification.report import write_report as write_report
    from envpack.verification.run import VerifyOptions as VerifyOptions, verify as verify
    from envpack.verification.samples import (
        SAMPLES_FILE as SAMPLES_FILE,
        Samples as Samples,
        read_samples as read_samples,
    )
    from envpack.verification.stub_processes import dead_stubs as dead_stubs, instances as instances
    from envpack.verification.verdict import (
        SCHEMA as SCHEMA,
        Check as Check,
        Failure as Failure,
        ModelVerdict as ModelVerdict,
        SampleCount as SampleCount,
        StubIdentity as StubIdentity,
        Verdict as Verdict,
    )

__getattr__, __all__ = lazy_imports(__name__, __file__)
