"""Renders a verdict as one HTML file: no script, no network access, no further files."""

from __future__ import annotations

from pathlib import Path

from envpack.support.replacement import write_text
from envpack.verification.report_charts import draw_environments, draw_load
from envpack.verification.verdict import Verdict

_TEMPLATES = Path(__file__).parent
_TEMPLATE = "report.html.jinja"


def write_report(verdict: Verdict, file: Path) -> None:
    """Write a verdict as HTML, replacing the file atomically.

    Text from models, logs and environments is escaped.

    Raises:
        InputError: the file cannot be written.

    """
    write_text(file, render(verdict))


def render(verdict: Verdict) -> str:
    """The HTML text."""
    import jinja2

    import envpack

    templates = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_TEMPLATES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return templates.get_template(_TEMPLATE).render(
        verdict=verdict,
        load=draw_load(verdict.models),
        environments=draw_environments(verdict.models),
        version=envpack.__version__,
    )
