"""Locks of what tests serve on 127.0.0.1."""

import pytest

from envpack.conda.settings import CondaSettings
from envpack.lock.resolve import LockOptions, lock_requirements
from envpack.requirements.model import Requirements
from envpack.requirements.target import Target
from envpack.support.errors import EnvironmentBuildError
from envpack.support.progress import NoProgress

from .sources import PYTHON

BOTH = Requirements(conda=("rooted", "plain <1.1"), pip=("tree", "leaf<1.1"))


def lock_for(requirements, served, cache, **options):
    target = options.pop("target", Target("linux-64", PYTHON, "2.35", "12.6"))
    channels = options.pop("channels", (served.url("/conda"),))
    lock_options = LockOptions(channels=channels, settings=CondaSettings(), cache=cache, **options)
    return lock_requirements(requirements, target, lock_options, NoProgress())


def names(lock):
    return {package.name: package.version for package in (*lock.conda, *lock.pip)}


def refused(call, *args, **kwargs):
    with pytest.raises(EnvironmentBuildError) as caught:
        call(*args, **kwargs)
    return caught.value
