"""A verdict as one HTML file: no script, no network, nothing beside it."""

from envpack.verification.report.page import write_report

__all__ = ["write_report"]
