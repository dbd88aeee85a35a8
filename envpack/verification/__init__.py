"""Proves that a model repository is fit to serve, in a real Triton server."""

from envpack.verification.kubernetes import JobOptions, job_yaml, make_job
from envpack.verification.run import VerifyOptions, verify
from envpack.verification.runtimes.choice import RuntimeOptions
from envpack.verification.runtimes.preload import find_preload
from envpack.verification.runtimes.server_location import ServerInstallation, find_server
from envpack.verification.verdict import (
    SCHEMA,
    Check,
    Failure,
    ModelVerdict,
    SampleCount,
    StubIdentity,
    Verdict,
)

__all__ = [
    "SCHEMA",
    "Check",
    "Failure",
    "JobOptions",
    "ModelVerdict",
    "RuntimeOptions",
    "SampleCount",
    "ServerInstallation",
    "StubIdentity",
    "Verdict",
    "VerifyOptions",
    "find_preload",
    "find_server",
    "job_yaml",
    "make_job",
    "verify",
]
