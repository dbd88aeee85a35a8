"""Verifies that a real Triton server can serve a model repository."""

from typing import TYPE_CHECKING

from envpack.support.lazy_imports import lazy_imports

if TYPE_CHECKING:
    from envpack.verification.answers import TOGETHER, responses_difference
    from envpack.verification.checks.inference import configuration_mismatch, percentile
    from envpack.verification.checks.server import combine_verdicts
    from envpack.verification.explanation import explain
    from envpack.verification.loading import DeadStubTimer, abort_and_read_frames, load_model
    from envpack.verification.published import verify_image, verify_published
    from envpack.verification.report import write_report
    from envpack.verification.requests import generate_requests
    from envpack.verification.run import verify
    from envpack.verification.samples import SAMPLES_FILE, Samples, add_samples, read_samples
    from envpack.verification.stub_processes import dead_stubs, instances
    from envpack.verification.verdict import ModelVerdict, SampleCount, Verdict
else:
    __getattr__, __all__ = lazy_imports(__name__, __file__)
