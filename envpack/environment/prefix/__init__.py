"""From an environment that somebody else made, conda's or a virtual one, to one of ours."""

from envpack.environment.prefix.build import environment_from_prefix
from envpack.environment.prefix.detect import Prefix, detect_prefix

__all__ = ["Prefix", "detect_prefix", "environment_from_prefix"]
