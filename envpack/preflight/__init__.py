"""Says before anything is started what will not go together: stub, environment, Triton release, machine.

Files are read, nothing of them is run. `preflight_model` looks at a model of a repository, `find_mismatches` compares
what its caller has read.
"""

from envpack.preflight.environment_facts import EnvironmentFacts, read_environment_facts
from envpack.preflight.host import Host, host_of_image, this_host
from envpack.preflight.model import preflight_model
from envpack.preflight.rules import Mismatch, find_mismatches
from envpack.preflight.stub_needs import StubNeeds, read_stub_needs

__all__ = [
    "EnvironmentFacts",
    "Host",
    "Mismatch",
    "StubNeeds",
    "find_mismatches",
    "host_of_image",
    "preflight_model",
    "read_environment_facts",
    "read_stub_needs",
    "this_host",
]
