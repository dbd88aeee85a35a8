"""The catalogue of broken repositories: each a small change to a good one, with the required report."""

from tests.faults.repositories import answers, code, configuration, container, environment, host, layout, stub
from tests.faults.repositories.broken import ANY, Broken, Kit, Site

CATALOGUE: tuple[Broken, ...] = (
    *layout.ENTRIES,
    *configuration.ENTRIES,
    *environment.ENTRIES,
    *stub.ENTRIES,
    *code.ENTRIES,
    *answers.ENTRIES,
    *host.ENTRIES,
    *container.ENTRIES,
)

__all__ = ["ANY", "CATALOGUE", "Broken", "Kit", "Site"]
