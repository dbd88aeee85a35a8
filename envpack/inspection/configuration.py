"""Inspects what configurations declare."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from envpack.inspection.finding import Finding, caution
from envpack.repository import CONFIG_NAME, Model


def declaration_findings(model: Model) -> Iterator[Finding]:
    """Inputs and outputs that are declared more than once: a server loads such a model, and takes one of them."""
    for kind, tensors in (("input", model.config.input), ("output", model.config.output)):
        for name, count in Counter(tensor.name for tensor in tensors).items():
            if count > 1:
                yield caution(
                    "declared-twice",
                    model.folder / CONFIG_NAME,
                    f"the {kind} {name!r} is declared {count} times, and servers take only one of them",
                    f"give each {kind} its own name",
                )
