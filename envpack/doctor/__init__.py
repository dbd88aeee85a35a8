"""What this machine has of what envpack can use, each with what to do where it is missing."""

from envpack.doctor.examination import PROBES, examine
from envpack.doctor.observation import Observation, State

__all__ = ["PROBES", "Observation", "State", "examine"]
